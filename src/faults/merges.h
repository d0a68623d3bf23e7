// Faults of results that are merged. Spec faults-known K36, K39 to K43, K57, K60.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A prefill in two parts is planned without the window: the prefix's list is the whole prefix, and
/// no mask says which query has left what behind. Its run is given the window, and counts it from
/// the end of the prefix.
struct PrefixWithoutWindow final : Tap {
  void limits(Limits& limits) override;
};

/// States are merged two by two, and two empty ones give NaN.
struct TwoEmptyStates final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// The second of two parts has its LSE in the other base than the one that its merge takes it for.
struct OtherBaseMerged final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// A merge leaves its LSE unwritten.
struct MergedLseUnwritten final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Splits none of which has a key give NaN.
struct SplitsWithoutKeys final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// A row without keys has LSE +inf, and what merges it is made for -inf: it gets all the weight.
struct EmptyIsPlusInfinity final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Attention pads groups of heads to a power of two, and what merges its splits does not know.
struct MergeWithoutGroupPadding final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// The LSE of splits that are merged is the last one's.
struct LseOfOneSplit final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
