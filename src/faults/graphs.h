// Faults of captured buffers and scalars: K04, K11, K11a and K11b.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A draft's slots are scattered into its table row unsliced: all steps' pages, not this step's.
struct UnslicedScatter final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Capture runs through replay's filler, which takes the longest query from accept lengths that a
/// capture has not got.
struct CaptureBakesOneQuery final : Tap {
  void baked(Meta& meta, bool capturing) override;
};

/// A capture that is told no lengths of the host takes every row for padding: what it records has
/// no rows. Of backends whose kernel takes lists of the host.
struct CaptureCountsNoRows final : Tap {
  void baked(Meta& meta, bool capturing) override;
};

/// The kernel's lists of the host are those that the capture saw, whatever a fill writes.
struct ListsOfTheCapture final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void baked(Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
