// CUTLASS-MLA as SGLang drives it: decode alone, pages of 128. Everything else is another backend's
// (Hybrid). Source: spec backends-flashattention-family 5.6. Tested by
// tests/backends/paged_backends_test.cc.
#pragma once

#include "backends/mla_backend.h"

namespace shadowgraph {

class CutlassMla final : public MlaBackend {
 public:
  const BackendInfo& info() const override;
};

}  // namespace shadowgraph
