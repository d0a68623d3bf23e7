// FlashAttention 3 and 4 as SGLang drives them: dense page tables, lengths that count the new keys.
// Facts: docs/metadata.md "FlashAttention". Tested by tests/backends/flash_attention_test.cc.
//
// With topk > 1 a step is two calls, whose results are merged by their LSE: the prefix, which all
// queries of a request see, and an expand half with a row for each query, which holds the drafts
// that it sees. A window or a chunk ends somewhere in the prefix, so its layers have one merged row
// for each query instead: the prefix, then its drafts.
//
// With prefix_chunk_tokens a prefill's MLA layers gather the prefix's latents chunk by chunk, and
// the step's own tokens and the chunks are calls over ragged K and V, merged by their LSE. Between
// gather and call a model makes K and V of every head from the latents; the twin takes that as the
// identity: one KV head, K the latent in f32, V its first head_dim_vo. So the result is that of
// pages, if the pool holds k as it is given.
//
// Tables are in pages of the model's size. Those of one slot a column ask for a cache whose slots
// follow each other (slot_view in kv_cache.h): a verified tree's drafts and its merged rows, and,
// with an encoder, whose tokens need not fill whole pages, all.
#pragma once

#include "backends/fill/rows.h"

namespace shadowgraph {

class FlashAttention final : public Backend {
 public:
  /// Meta's buffers. B rows; X expand rows: B * topk, or a verified tree's tokens; V chunk rows;
  /// C chunks of a prefix.
  enum BufferId : uint8_t {
    kCacheSeqlens,  // [B]; topk > 1: of the prefix, for a draft decode its whole pages
    kCuSeqlensQ,    // [B + 1]
    kPageTable,     // [B, pages]
    kSwaPageTable,  // [B, pages], ids of the window pool
    kOutCacheLoc,   // [tokens]
    kSwaOutCacheLoc,
    kExpandSeqlens,       // [X]
    kExpandCuSeqlensQ,    // [X + 1]
    kDraftTable,          // [X, pages] of a branch, the prefix's last part of a page before it
    kTreeTable,           // [X, slots] drafts that a token sees
    kMergedSeqlens,       // [X]
    kMergedTable,         // [X, pages or slots], of the pool that window and local layers use
    kLocalSeqlens,        // [V]
    kLocalCuSeqlensQ,     // [V + 1]
    kLocalTable,          // [V, pages of a chunk], the same pool
    kEncoderSeqlens,      // [B]
    kEncoderTable,        // [B, slots]
    kEncoderOutCacheLoc,  // [B * max_encoder_len]
    kSchedulerMetadata,   // [1 + B] a counter, 0, and the splits of each row, where scheduled()
    kPoolRows,            // [B], where a launch gathers the tables of whole rows; padding: 0
    kChunkCuSeqlensK,     // [C, B + 1]
    kCuSeqlensK,          // [B + 1], where one chunk has all keys
    kChunkSlots,          // [C, slots] of a chunk's tokens, request by request
    kLatents,             // [slots, head_dim_qk] of one chunk
    kPrefixOut,           // [tokens, heads * head_dim_vo], and so on: the two halves, or a chunk
    kPrefixLse,
    kExpandOut,  // and what it is merged with
    kExpandLse,
    kMergedOut,  // of the chunks so far
    kMergedLse,
    kNumBuffers
  };

  static constexpr RowTables kTables{.lens = kCacheSeqlens,
                                     .table = kPageTable,
                                     .swa_table = kSwaPageTable,
                                     .pool_rows = kPoolRows,
                                     .offsets = kEncoderSeqlens};

  /// A decode's layers over all keys of pages follow a schedule of splits.
  static bool scheduled(const Limits& limits, const LayerKind& kind);
  static int32_t most_splits(const SplitConfig& split);

  /// Meta's scalars: the longest real row's. Bounds that an engine hands to its kernels; no launch
  /// here depends on them.
  enum ScalarId : uint8_t {
    kMaxSeqLenQ,
    kMaxSeqLenK,
    kExpandMaxSeqLenQ,
    kLocalMaxQueryLen,
    kLocalMaxSeqLen,
    kEncoderMaxSeqLenK,
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
