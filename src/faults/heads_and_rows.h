// Faults of which rows and heads a kernel computes. Spec faults-known K07, K56.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A tile of queries, here of 4, is stored whole: rows of nobody, too.
struct TileStoredWhole final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Which head a block computes is found by the size of a group, where the number of KV heads is
/// meant. Of kernels whose grid has a block for each head.
struct HeadsByGroupSize final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
