// AscendGdn: Gated DeltaNet on an NPU. Padding has length 0 and names slot 0, which is nobody's;
// its kernels take offsets, by which padding has no tokens. Facts: docs/metadata.md "Recurrent
// layers". Tested by tests/backends/recurrent_test.cc.
#pragma once

#include "backends/recurrent/recurrent_backend.h"

namespace shadowgraph {

class AscendGdn final : public RecurrentBackend {
 public:
  const BackendInfo& info() const override;

 protected:
  PadRow pad_row(bool /*verify*/) const override { return PadRow::kSkip; }
  int32_t pad_slot() const override { return 0; }
  bool has_dense_rows() const override { return false; }
};

}  // namespace shadowgraph
