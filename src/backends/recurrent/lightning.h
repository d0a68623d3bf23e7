// Lightning: Lightning attention, decaying linear attention over state slots. Facts:
// docs/metadata.md "Recurrent layers". Tested by tests/backends/recurrent_test.cc.
#pragma once

#include "backends/recurrent/recurrent_backend.h"

namespace shadowgraph {

/// Rows without a slot are skipped. No trees.
class Lightning final : public RecurrentBackend {
 public:
  const BackendInfo& info() const override;

 protected:
  PadRow pad_row(bool verify) const override;
};

}  // namespace shadowgraph
