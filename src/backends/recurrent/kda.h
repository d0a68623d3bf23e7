// Kda: Kimi Delta Attention, delta rule with a decay per channel, behind a convolution. Facts:
// docs/metadata.md "Recurrent layers". Tested by tests/backends/recurrent_test.cc.
#pragma once

#include "backends/recurrent/recurrent_backend.h"

namespace shadowgraph {

/// Rows without a slot are computed from zero, and a verify keeps that.
class Kda final : public RecurrentBackend {
 public:
  const BackendInfo& info() const override;

 protected:
  PadRow pad_row(bool verify) const override;
};

}  // namespace shadowgraph
