// Gdn: Gated DeltaNet, gated delta rule over state slots, behind a convolution. Facts:
// docs/metadata.md "Recurrent layers". Tested by tests/backends/recurrent_test.cc.
#pragma once

#include "backends/recurrent/recurrent_backend.h"

namespace shadowgraph {

/// Its packed decode gives rows without a slot 0; a verify computes them from zero, and keeps that.
class Gdn final : public RecurrentBackend {
 public:
  const BackendInfo& info() const override;

 protected:
  PadRow pad_row(bool verify) const override;
};

}  // namespace shadowgraph
