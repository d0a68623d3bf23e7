// CUTLASS-MLA as SGLang drives it: only decode, pages of 128. Everything else is another backend's
// (Hybrid). Facts: docs/metadata.md "Siblings". Tested by tests/backends/paged_backends_test.cc.
#pragma once

#include "backends/paged/mla_backend.h"

namespace shadowgraph {

class CutlassMla final : public MlaBackend {
 public:
  const BackendInfo& info() const override;

 protected:
  // Its kernel is told the requests' own lengths.
  void bind_own(Binder& /*binder*/, const Limits& /*limits*/) const override {}
  void fill_own(const ForwardBatch& /*batch*/, const Limits& /*limits*/,
                Filler& /*filler*/) const override {}
  std::span<const int32_t> kernel_lens(Stream& /*stream*/, const Meta& meta) const override {
    return elements<int32_t>(meta[kKvLens]);
  }
};

}  // namespace shadowgraph
