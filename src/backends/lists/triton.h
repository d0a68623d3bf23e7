// Triton as SGLang drives it: lists of slots as CSR, decode in two stages with a number of splits
// for each row, and an extend kernel that has the cached prefix as a list and the step's own K and
// V as they come. Facts: docs/metadata.md "Drafts", "Triton". Tested by
// tests/backends/triton_test.cc and triton_forward_test.cc.
//
// Window layers have lists of their own, from the first key that any query of a request sees: W + 1
// keys of a decode, and of a prefix W. All of them have one window. A query of a draft tree stands
// behind the prefix at its depth, and not at its place among the drafts, so the window of a verify
// is judged by kDepths.
//
// Slots are single tokens whatever the page size, so pages of the pool follow each other in memory
// (slot_view in kv_cache.h). Every layer of an extend has k and v, stored already or not.
#pragma once

#include "backends/fill/csr_rows.h"
#include "backends/fill/rows.h"

namespace shadowgraph {

class Triton final : public Backend {
 public:
  /// Meta's buffers. B rows; R decoded rows: B, or B * topk; S splits.
  enum BufferId : uint8_t {
    kKvIndptr,         // [B + 1], of decodes [R + 1]
    kKvIndices,        // int64 slots
    kWindowKvIndptr,   // the same of window layers
    kWindowKvIndices,  // int64 slots of the window pool, where there is one
    kWindowKvOffsets,  // [B] tokens of the prefix before its list
    kQoIndptr,         // [B + 1]
    kMaskIndptr,       // int64 [B + 1] bytes
    kCustomMask,       // of request i [q_len, prefix + q_len], 0 or 1: a byte each
    kDepths,           // [tokens] of a verify: ancestors among the drafts
    kNumKvSplits,      // [R]
    kWindowNumKvSplits,
    kAttnLogits,   // [R, heads * S * head_dim_vo] partial results
    kAttnLse,      // [R, heads * S]
    kOutCacheLoc,  // [tokens]
    kSwaOutCacheLoc,
    kNumBuffers
  };
  static constexpr CsrIds kKv{.indptr = kKvIndptr, .indices = kKvIndices};
  static constexpr CsrIds kWindowKv{.indptr = kWindowKvIndptr, .indices = kWindowKvIndices};

  enum ScalarId : uint8_t {
    kMaxExtendLen,  // queries of the longest real row; a graph has those of its bucket
    kNumScalars
  };

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  std::vector<KeyList> key_lists(const Meta& meta, const LayerKind& kind) const override;
};

}  // namespace shadowgraph
