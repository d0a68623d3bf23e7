// Faults of captured buffers and scalars. Spec faults-known K04, K11.
#pragma once

#include "check/runner.h"

namespace shadowgraph {

/// A draft's slots are scattered into its table row unsliced: all steps' pages, not this step's.
struct UnslicedScatter final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) const override;
};

/// Capture runs through replay's filler, which takes the longest query from accept lengths that a
/// capture has not got.
struct CaptureBakesOneQuery final : Tap {
  void baked(Meta& meta, bool capture) const override;
};

}  // namespace shadowgraph
