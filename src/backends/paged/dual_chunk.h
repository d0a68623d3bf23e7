// Dual-chunk attention as SGLang drives it for Qwen-1M models: a query of chunk n attends with one
// copy of itself to its own chunk, with another to chunk n - 1, with a third to all before, and the
// three results are merged by their natural LSE. Facts: docs/metadata.md "Dual chunks". Tested by
// tests/backends/dual_chunk_test.cc.
//
// A decode has a row for each request; a prefill one for each chunk that a request's queries touch,
// the engine's walk from chunk to chunk as data. Keys are stored times the factor of the whole
// prompt's length, or of a decode's, and carry it from then on. Sparse prefill, and the queries for
// it, have no part here.
#pragma once

#include "backends/fill/rows.h"

namespace shadowgraph {

class DualChunkAttention final : public Backend {
 public:
  /// Meta's buffers. B requests; V rows: B, of a prefill as many as chunks may cut.
  enum BufferId : uint8_t {
    kCacheSeqlens,      // [B]
    kQueryStartLoc,     // [B + 1]
    kSeqStartLoc,       // [B + 1]
    kRowStartLoc,       // [V + 1] queries of a prefill's rows
    kSeqLensIntra,      // [V]
    kSeqLensSucc,       // [V]; no row may have two chunks: not bound
    kSeqLensInter,      // [V]; or three
    kBlockTablesIntra,  // [V, pages of a chunk]
    kBlockTablesSucc,   // [V, pages of a chunk]
    kBlockTables,       // [V, pages of all chunks but two]
    kScalingFactor,     // f32 [B]; only where a model has a trained length
    kOutCacheLoc,       // [tokens]
    kScaledKeys,        // f32 [tokens, kv heads * head_dim_qk]
    kIntraOut,          // f32 [tokens, heads * head_dim_vo], and so on: each part's
    kIntraLse,
    kSuccOut,
    kSuccLse,
    kInterOut,
    kInterLse,
    kMergedOut,  // of intra and succ
    kMergedLse,
    kNumBuffers
  };
  /// The longest real row's; bounds that no launch here depends on.
  enum ScalarId : uint8_t { kMaxQueryLen, kMaxIntra, kMaxSucc, kMaxInter, kNumScalars };

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  std::vector<KeyList> key_lists(const Meta& meta, const LayerKind& kind) const override;
};

}  // namespace shadowgraph
