// Faults of a parameter that reaches one path and not another. Spec faults-known K34, K37, K38,
// K73, K74, K83.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A decode's lists hold as many keys as the window, and not one more: W before the query and its
/// own. Of backends whose decode sees all that is listed.
struct DecodeWindowOfW final : Tap {
  void limits(Limits& limits) override;
};

/// Whether logits are capped is settled by the plan, which is not told; what is said to the run is
/// ignored. Of backends that plan.
struct PlannedWithoutCap final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// An MLA decode takes its scale for one in base 2: its softmax is flatter, and its LSE is of that.
struct MlaScaleWithoutLog2e final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// The entry that returns an LSE drops k_scale and v_scale. Of prefills over a cache.
struct ScalesLostWithLse final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Where keys need no widening, as they are already fp8, they are returned before their scale is
/// read. Of backends that read pages, and of Triton.
struct FastPathWithoutScales final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// The queries of a request stand on an axis of the grid that has a limit, here of 2 bits; what is
/// beyond is dropped.
struct QueriesOnASmallAxis final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
