// Faults of what lengths are taken to mean. Spec faults-known K01, K31.
#pragma once

#include "check/runner.h"

namespace shadowgraph {

/// The lengths of a draft extend are taken for full ones, and are the prefix.
struct PrefixOnlyExtent final : Tap {
  void batch(ForwardBatch& batch, TapStorage& storage) const override;
};

/// They are full ones, and taken for the prefix.
struct DoubleCountedExtent final : Tap {
  void batch(ForwardBatch& batch, TapStorage& storage) const override;
};

struct FirstEncoderLength final : Tap {
  void batch(ForwardBatch& batch, TapStorage& storage) const override;
};

}  // namespace shadowgraph
