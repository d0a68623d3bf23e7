// TRTLLM-MHA as SGLang drives it: FlashAttention's tables without trees; its prefill kernel reads
// the key offsets too. Facts: docs/metadata.md "Siblings". Tested by
// tests/backends/trtllm_mha_test.cc.
#pragma once

#include "backends/paged/paged_backend.h"

namespace shadowgraph {

class TrtllmMha final : public PagedBackend {
 public:
  enum OwnBufferId : uint8_t {
    kCuSeqlensK = kFirstOwn,  // [rows + 1]
    kPrefillLens,             // [rows] of the prefill kernel, made of both
    kNumBuffers
  };

  const BackendInfo& info() const override;

 protected:
  size_t num_buffers() const override { return kNumBuffers; }
  bool counts_rows() const override { return true; }
  std::span<const int32_t> kernel_lens(Stream& stream, const Meta& meta) const override;
  void bind_own(Binder& binder, const Limits& limits) const override;
  void fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const override;
};

}  // namespace shadowgraph
