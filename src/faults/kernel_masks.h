// Faults of who sees whom inside a kernel. Spec faults-known K22, K54.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// Scores before the window are masked, and values are not: they are loaded, and multiplied by 0.
struct ValuesBeforeWindow final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// The causal mask is aligned at the top left: query i sees keys up to i, whatever the prefix. Of
/// Triton's kernels the prefix needs no mask.
struct CausalFromTheTop final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
