// TRTLLM-MLA as SGLang drives it. Facts: docs/metadata.md "Siblings". Tested by
// tests/backends/trtllm_mla_test.cc.
#pragma once

#include "backends/paged/mla_backend.h"

namespace shadowgraph {

class TrtllmMla : public MlaBackend {
 public:
  enum OwnBufferId : uint8_t {
    kSeqLensQ = kFirstOwnOfMla,  // [rows]
    kFirstOwnOfTrtllm
  };

  const BackendInfo& info() const override;

 protected:
  std::span<const int32_t> query_counts(const Meta& meta) const override {
    return elements<int32_t>(meta[kSeqLensQ]);
  }
  int64_t column_multiple(int32_t page_size) const override;
  size_t num_buffers() const override { return kFirstOwnOfTrtllm; }
  bool counts_rows() const override { return true; }
  void bind_own(Binder& binder, const Limits& limits) const override;
  void fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const override;
};

}  // namespace shadowgraph
