// DeepSeek-V4 as SGLang drives it: all metadata is per token. A token sees its window by slots, the
// newest first, and the blocks that are whole by then; what it stores, where its state is, and
// which block it ends is metadata, too. Facts: docs/metadata.md "DeepSeek-V4". Tested by
// tests/backends/deepseek_v4_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "backends/fill/buffer_rows.h"
#include "backends/fill/rows.h"
#include "launch/v4_tokens.h"

namespace shadowgraph {

class DeepseekV4 : public Backend, public V4Buffers {
 public:
  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;

  // V4Buffers; behind kFirstOwn those of the class; then of each layer f32 [tokens, head_dim], what
  // the compressor pools.

  /// The layer of a group; nullptr: the model has none.
  static const V4Layer* layer_of(const ModelConfig& model, V4Group group);
  /// Tokens that one step may add and the next take back.
  static int32_t drafts(const ModelConfig& model) {
    return std::max({1, model.num_draft_tokens, model.num_steps});
  }

 protected:
  /// What a fill writes to, of one request after the other: memory of V4Tokens.
  struct Scene {
    const ForwardBatch& batch;
    const Meta& meta;
    Filler& f;
    std::span<const int32_t> slots = {};  // of the request
    // Staged whole, by buffer
    std::array<std::span<int32_t>, kFirstOwn> ints = {};
    std::array<std::span<int64_t>, kFirstOwn> longs = {};

    const Limits& limits() const { return meta.limits; }
    int64_t slot(const V4Token& /*t*/, int64_t position) const {
      return slots[static_cast<size_t>(position)];
    }
    int64_t stored(const V4Token& t) const { return slot(t, t.position()); }
    int64_t in_window(int64_t slot, const V4Token& /*t*/) const {
      return limits().model.swa_pool ? translate(batch.full_to_swa, slot) : slot;
    }
    template <class Fn>
    void put(size_t buffer, int64_t first, int64_t count, Fn fn, const V4Token& /*t*/) {
      const auto at = [&](int64_t j) { return static_cast<size_t>(first + j); };
      if (is_long(buffer)) {
        for (int64_t j = 0; j < count; ++j) longs[buffer][at(j)] = fn(j);
      } else {
        for (int64_t j = 0; j < count; ++j) ints[buffer][at(j)] = static_cast<int32_t>(fn(j));
      }
    }
  };
  using Writer = V4Tokens<Scene>;
  static const V4Layer& first_layer(const ModelConfig& model);

  /// One layer of a step.
  struct Layer {
    const V4Layer& layer;
    const V4Tensors& tensors;
    const LayerIo& io;
    const Buffer& pooled;  // unbound without blocks
  };
  static V4Group group_of(const V4Layer& layer) {
    return layer.shape().overlaps() ? V4Group::kC4 : V4Group::kC128;
  }

  // What differs where pools do.
  virtual V4Pools pools() const { return V4Pools::kPaged; }
  virtual size_t num_own() const { return 0; }
  virtual void bind_lists(Binder& binder, const Limits& limits) const;
  /// Called token by token, in order: where it is stored, what it sees.
  virtual void fill_lists(Scene& s, Writer& writer, const V4Token& t) const;
  virtual void end_lists(const Scene& /*s*/) const {}
  virtual void run(Stream& stream, const Meta& meta, const Layer& l) const;

  // Parts of a layer's launches. Slots and pages below the first are padding's.
  static void store_tokens(Stream& stream, const Meta& meta, const Layer& l, int64_t first_slot);
  static void compress_tokens(Stream& stream, const Meta& meta, const Layer& l, int32_t first_page);
  static void store_block_ends(Stream& stream, const Meta& meta, const Layer& l,
                               const WritableLatentPool& pool, int64_t first_slot);
  static void choose_blocks(Stream& stream, const Meta& meta, const Layer& l);
  static SparseAttention attention_of(const Layer& l);

 private:
  Status check(const Limits& limits) const;
  static void bind_group(Binder& binder, const Limits& limits, V4Group group);
  static void bind_raw(Binder& binder, const Limits& limits);
  /// Columns of a list of all blocks.
  static int32_t block_columns(const Limits& limits, const V4Layer& layer);
  V4TokenRules rules_of(const Limits& limits) const;
  void fill_tokens(Scene& s) const;
  static void fill_raw(const Scene& s);
  void list_blocks(Stream& stream, const Meta& meta) const;
  void expand(Stream& stream, const Meta& meta, const StepIo& step) const;
};

/// What both backends say alike of themselves.
std::span<const ForwardMode> v4_modes();
/// A row of a buffer of a group's blocks.
constexpr BufferInfo v4_row(V4Group group, V4Buffers::GroupBufferId id, Role role) {
  return {.buffer = static_cast<int>(V4Buffers::of(group, id)), .role = role, .group = group};
}
/// Rows of the buffers that both have.
inline constexpr auto kV4Buffers = [] {
  using V4 = V4Buffers;
  std::array<BufferInfo, 18> rows = {
      {{V4::kSeqLens, Role::kTokenLens},
       {V4::kPositions, Role::kTokenPositions},
       dead(named("req_pool_indices_repeated", {V4::kPoolRows, Role::kTokenPoolRows}),
            "tables and slots are of its request already"),
       {V4::kPageTable, Role::kTokenPages},
       {V4::kWindowOutLoc, Role::kWindowStored},
       unread(V4::kTokenOffsets, "the blocks that compressors store by it are compared")}};
  size_t i = 6;
  for (const V4Group g : kV4Groups) {
    rows[i++] = v4_row(g, V4::kOutLoc, Role::kBlockStored);
    rows[i++] = v4_row(g, V4::kLensRaw, Role::kBlocksWhole);
    rows[i++] = v4_row(g, V4::kLensClamp1, Role::kBlocksClamped);
    rows[i++] = v4_row(g, V4::kTopkLens, Role::kBlocksChosen);
    rows[i++] = v4_row(g, V4::kStatePages, Role::kStatePages);
    rows[i++] = v4_row(g, V4::kExtraPages, Role::kExtraPages);
  }
  return rows;
}();
/// Lists of slots are read in pieces of so many: columns are a multiple, the rest -1.
inline constexpr int64_t kV4ListColumns = 64;  // edge: keys
constexpr int64_t v4_columns(int64_t entries) {
  return (entries + kV4ListColumns - 1) / kV4ListColumns * kV4ListColumns;
}

}  // namespace shadowgraph
