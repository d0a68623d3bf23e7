// FlashInfer's MLA kernels as SGLang drives them: latent attention over lists of slots (CSR), one
// slot a token whatever the page size, not cut. Every query reads latents, a prefill's too. Facts:
// docs/metadata.md "FlashInfer". Tested by tests/backends/flashinfer_mla_test.cc.
#pragma once

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

class FlashInferMla final : public Backend {
 public:
  /// Meta's buffers.
  enum BufferId : uint8_t {
    kQoIndptr,     // [rows + 1]
    kKvIndptr,     // [rows + 1]
    kKvIndices,    // slots
    kKvLens,       // [rows] keys
    kLastPageLen,  // [rows] all 1
    kOutCacheLoc,  // [tokens]
    kNumBuffers
  };

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<KeyList> key_lists(const Meta& meta, const LayerKind& kind) const override;
};

}  // namespace shadowgraph
