// CUTLASS-MLA as SGLang drives it: only decode, pages of 128. Everything else is another backend's
// (Hybrid). Facts: docs/metadata.md "Siblings". Tested by tests/backends/paged_backends_test.cc.
#pragma once

#include "backends/paged/mla_backend.h"

namespace shadowgraph {

class CutlassMla final : public MlaBackend {
 public:
  const BackendInfo& info() const override;
};

}  // namespace shadowgraph
