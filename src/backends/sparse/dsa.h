// DeepSeek sparse attention as SGLang drives it: an indexer with keys of its own, in pages of 64,
// scores a request's tokens, the topk best become slots (or places among gathered latents), and an
// absorbed MLA kernel attends to these. Facts: docs/metadata.md "DSA". Tested by
// tests/backends/dsa_test.cc.
//
// Rows of tables are query tokens, whose row of a request is repeated; of a prefill they are
// requests, and each token says which. What an engine's kernels are scheduled by has no part here.
#pragma once

#include "backends/fill/rows.h"

namespace shadowgraph {

class DeepSeekSparse final : public Backend {
 public:
  /// Meta's buffers. B requests, T tokens, R rows of tables: T, of a prefill B.
  enum BufferId : uint8_t {
    kCacheSeqlens,     // [B]
    kCuSeqlensK,       // [B + 1]
    kCuSeqlensQ,       // [B + 1] of a prefill; else kDsaCuSeqlensQ is what an engine has
    kPageTable1,       // [R, tokens] slots; padding: those of page 0
    kRealPageTable,    // [R, pages]
    kExpanded,         // [T] dsa_seqlens_expanded
    kDsaCacheSeqlens,  // [T]
    kDsaCuSeqlensQ,    // [T + 1]
    kDsaCuSeqlensK,    // [T + 1]
    kContextLens,      // [T] what the scores of paged keys are computed for; not of a prefill
    // Prefills only
    kTokenToBatch,  // [T]
    kKs,            // [T] a token's first key among those of all requests
    kKe,            // [T] and behind its last
    kTopkOffset,    // [T] of a ragged one
    kFlatSlots,     // page_table_1_flattened, of a ragged one
    kOutCacheLoc,   // [T]
    // Written by each replay
    kPackedKeys,     // e4m3 [keys, 128] index keys of a prefill's requests
    kPackedScales,   // f32 [keys]
    kPackedLatents,  // of a ragged prefill
    kLogits,         // f32 [T, keys]
    kChoiceEnds,     // [T] of a prefill: behind the last key that a token may choose
    kAttendedLens,   // [T] kDsaCacheSeqlens, where kDsaCuSeqlensK agrees
    kChoice,         // [T, topk] positions
    kChosenSlots,    // [T, topk] what attention is given
    kNumBuffers
  };
  enum ScalarId : uint8_t { kMaxSeqLenQ, kMaxSeqLenK, kNumScalars };

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
};

/// A step whose index keys are gathered, and whose rows of tables are requests.
constexpr bool is_sparse_prefill(ForwardMode m) {
  return m == ForwardMode::kExtend || m == ForwardMode::kMixed || m == ForwardMode::kSplitPrefill;
}

/// The first sparse layer of a model, whose layers agree in what metadata is made of; nullptr: it
/// has none.
const SparseLayer* sparse_layer_of(const ModelConfig& model);

}  // namespace shadowgraph
