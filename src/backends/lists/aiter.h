// Aiter (ROCm) as SGLang drives it: its paged kernels read lists of slots (CSR), one slot a token
// whatever the page size; a chain of drafts of a model with heads is verified by its unified
// kernel, over a table of pages that a graph has for the longest context, and a tree by Triton's
// extend kernel, with Triton's metadata. Not modelled: the work plan of the persistent MLA kernels,
// and heads that are padded for them. Facts: docs/metadata.md "Aiter". Tested by
// tests/backends/aiter_test.cc.
#pragma once

#include "backends/fill/csr_rows.h"

namespace shadowgraph {

class Aiter final : public Backend {
 public:
  /// Meta's buffers; none where a tree is verified: they are its one child's. R lists: a row has
  /// one, of a draft tree topk.
  enum BufferId : uint8_t {
    kQoIndptr,  // [R + 1]
    kKvIndptr,  // [R + 1]
    kKvIndices,
    kSwaKvIndptr,
    kSwaKvIndices,   // slots of the window pool
    kKvLastPageLen,  // [R] all 1
    kKvLens,         // [rows], of the table
    kPageTable,      // [rows, pages]
    kSwaPageTable,
    kOutCacheLoc,  // [tokens]
    kSwaOutCacheLoc,
    kNumBuffers
  };
  /// Meta::scalars: the longest query, which shapes the kernels' grids.
  enum ScalarId : uint8_t { kMaxQLen, kNumScalars };
  static constexpr CsrIds kKv{kKvIndptr, kKvIndices}, kSwaKv{kSwaKvIndptr, kSwaKvIndices};

  /// triton: verifies trees. It outlives this.
  explicit Aiter(const Backend& triton) : triton_(triton) {}

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  std::vector<KeyList> key_lists(const Meta& meta, const LayerKind& kind) const override;
  Status for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const override;

 private:
  const Backend& triton_;
};

}  // namespace shadowgraph
