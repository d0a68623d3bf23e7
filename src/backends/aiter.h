// Aiter (ROCm) as SGLang drives it: its paged kernels read lists of slots (CSR), one slot a token
// whatever the page size; a chain of drafts of a model with heads is verified by its unified
// kernel, over a table of pages that a graph has for the longest context. Not modelled: trees of
// drafts, the work plan of the persistent MLA kernels, and heads that are padded for them. Source:
// spec backends-flashinfer-triton-linear-sparse 6. Tested by tests/backends/aiter_test.cc.
#pragma once

#include "backends/csr_rows.h"

namespace shadowgraph {

class Aiter final : public Backend {
 public:
  /// Meta's buffers.
  enum BufferId : uint8_t {
    kQoIndptr,  // [rows + 1]
    kKvIndptr,  // [rows + 1]
    kKvIndices,
    kSwaKvIndptr,
    kSwaKvIndices,   // slots of the window pool
    kKvLastPageLen,  // [rows] all 1
    kKvLens,         // [rows], of the table
    kPageTable,      // [rows, pages]
    kSwaPageTable,
    kOutCacheLoc,  // [tokens]
    kSwaOutCacheLoc,
    kNumBuffers
  };
  static constexpr CsrIds kKv{kKvIndptr, kKvIndices}, kSwaKv{kSwaKvIndptr, kSwaKvIndices};

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
};

}  // namespace shadowgraph
