// Faults of which launch waits for which, and of what one leaves to the next. Spec faults-known
// K15, K67, K68.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A persistent kernel takes its tiles from a counter beside the metadata that a fill sets to 0. A
/// second call with the same metadata finds it at its end, unless a merge between has reset it.
/// Of calls over pages.
struct TileCounterNotReset final : Tap {
  void bound(Meta& meta, bool capturing) override;
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// What follows a merge does not wait for it, and writes the partial results that it reads.
struct MergeWithoutBarrier final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// What reads metadata that a launch makes does not wait for that launch.
struct MetadataReadEarly final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
