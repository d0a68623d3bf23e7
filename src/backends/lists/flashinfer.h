// FlashInfer as SGLang drives it: lists of slots (CSR), one slot a token whatever the page size,
// and a plan that cuts queries into tiles and keys into chunks. Facts: docs/metadata.md
// "FlashInfer". Tested by tests/backends/flashinfer_test.cc.
//
// Layers share a wrapper: a list, a plan and a mask. Wrapper 0 is for layers with a window where
// there are any, else for all but cross-attention; wrapper 1 for those without a window, or for
// cross-attention.
//
// With ragged_prefill a prefill is two calls: the step's own tokens over ragged K and V, and the
// prefix over the pool, merged by their LSE; the tokens are stored after that. So neither wrapper's
// list has a slot of theirs. A draft extend v2 does the same where its lengths are known when it is
// bound, unless SplitConfig asks for one result everywhere.
//
// A batch with items to score has no ragged part: three arrays say which keys its items hide from
// each other. The engine drops a window there; here such layers are refused.
//
// A list of a window's layer begins at the first key that the first query sees. Where queries see
// different parts of it, and the list does not end with them, a packed mask says which: of the
// prefix alone, and of a draft's tree, whose tokens stand at their depth.
#pragma once

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

class FlashInfer final : public Backend {
 public:
  static constexpr int kNumWrappers = 2;
  enum class Part : uint8_t { kPaged, kRagged };

  /// The buffers of a wrapper.
  enum ListId : uint8_t {
    kKvIndptr,    // [R + 1]
    kKvIndices,   // slots
    kMask,        // packed bits, request by request [q_len, keys of its list]
    kMaskIndptr,  // [R + 1] bytes
    kNumListIds
  };
  /// The buffers of a wrapper's part: TilePlan's arrays.
  enum PlanId : uint8_t {
    kRequestIndices,
    kQoTileIndices,
    kKvTileIndices,
    kOIndptr,
    kMergeIndptr,
    kKvChunkSize,
    kBlockValidMask,
    kNumPlanIds
  };
  /// Meta's buffers. R rows of a list: B requests, of a draft decode topk branches each.
  enum BufferId : uint8_t {
    kQoIndptr,     // [R + 1]
    kLastPageLen,  // [R] all 1
    kOutCacheLoc,  // [tokens]
    kSwaOutCacheLoc,
    kEncoderOutCacheLoc,  // [B * max_encoder_len]
    kPartialOut,          // [partial rows, heads * head_dim_vo], of what a plan cuts
    kPartialLse,          // [partial rows, heads]
    kOwnOut,              // [tokens, heads * head_dim_vo], and so on: the two calls of a prefill
    kOwnLse,
    kPrefixOut,
    kPrefixLse,
    kItemPrefixLens,   // [B] keys before the first delimiter; of who has none all
    kTokenPosInItems,  // [B, Limits::max_items_len] from there on, 0 of a delimiter
    kMaxItemLens,      // [B] the largest of a row
    kFirstList,        // of each wrapper
    kFirstPlan = kFirstList + kNumWrappers * kNumListIds,
    kNumBuffers = kFirstPlan + 2 * kNumWrappers * kNumPlanIds
  };
  static constexpr int list(int wrapper, ListId id) {
    return kFirstList + wrapper * kNumListIds + id;
  }
  static constexpr int plan(int wrapper, Part part, PlanId id) {
    return kFirstPlan + (2 * wrapper + static_cast<int>(part)) * kNumPlanIds + id;
  }

  /// Meta's scalars. Launches read only split_kv().
  enum ScalarId : uint8_t {
    // The window that wrapper 0 has to be planned with: of layers some of whose queries see less
    // than their list, and have no mask; else -1
    kWindowLeft,
    kUseRagged,
    kExtendNoPrefix,  // no request of a prefill has one
    kPageSize,        // of lists: 1
    kNumQoHeads,      // of each wrapper
    kNumKvHeads = kNumQoHeads + kNumWrappers,
    kFirstSplitKv = kNumKvHeads + kNumWrappers,
    kNumScalars = kFirstSplitKv + 2 * kNumWrappers
  };
  static constexpr int split_kv(int wrapper, Part part) {
    return kFirstSplitKv + 2 * wrapper + static_cast<int>(part);
  }

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  std::vector<KeyList> key_lists(const Meta& meta, const LayerKind& kind) const override;
};

}  // namespace shadowgraph
