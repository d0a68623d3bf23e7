// DeepSeek-V4 as SGLang drives it: all metadata is per token. A token sees its window by slots, the
// newest first, and the blocks that are whole by then; what it stores, where its state is, and
// which block it ends is metadata, too. Source: spec backends-flashinfer-triton-linear-sparse 10.
// Tested by tests/backends/deepseek_v4_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "backends/rows.h"

namespace shadowgraph {

/// Layers with the same blocks share lists: those of ratio 4, whose blocks overlap and are chosen,
/// and those of another, which see all of theirs.
enum class V4Group : uint8_t { kC4, kC128 };
inline constexpr V4Group kV4Groups[] = {V4Group::kC4, V4Group::kC128};

class DeepseekV4 : public Backend {
 public:
  /// Meta's buffers. Padding tokens are the first of nobody's request: length 1, slot 0.
  enum BufferId : uint8_t {
    kSeqLens,       // [tokens] the token itself counted: seq_lens_casual
    kPositions,     // [tokens]
    kPoolRows,      // [tokens] rows of req_to_token: req_pool_indices_repeated
    kPageTable,     // [tokens, pages] of the full pool
    kTokenOffsets,  // [rows + 1] tokens of the compressor's rows; the last has padding besides
    kWindow,        // [tokens, columns] slots, the newest first, then -1 to a multiple of 64
    kWindowLens,    // [tokens]
    kWindowOutLoc,  // [tokens] where they are stored
    // Of c4, for one layer after the other: what its scores choose, [tokens, columns]
    kChosen,       // whole blocks, ascending
    kChosenSlots,  // and their slots
    kFirstOfGroups
  };
  /// Of each group.
  enum GroupBufferId : uint8_t {
    kOutLoc,      // [tokens] slot of the block that it ends; below the first real one: none
    kLensRaw,     // [tokens] whole blocks
    kLensClamp1,  // [tokens] at least 1: of none the single entry is -1
    kTopkLens,    // [tokens] of c4: how many of them are chosen at most
    kBlocks,      // [tokens, columns] slots of all whole ones, then -1 to a multiple of 64
    kStatePages,  // [tokens] where the state of its block is
    kExtraPages,  // [tokens] and of the block before, where it ends one that overlaps; else 0
    kNumOfGroup
  };
  /// Behind both groups; then of each layer f32 [tokens, head_dim], what the compressor pools.
  static constexpr size_t kFirstOwn = size_t{kFirstOfGroups} + 2 * size_t{kNumOfGroup};
  static constexpr size_t of(V4Group group, GroupBufferId id) {
    return size_t{kFirstOfGroups} + static_cast<size_t>(group) * kNumOfGroup + id;
  }

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;

  /// The layer of a group; nullptr: the model has none.
  static const V4Layer* layer_of(const ModelConfig& model, V4Group group);
  /// Tokens that one step may add and the next take back.
  static int32_t drafts(const ModelConfig& model) {
    return std::max({1, model.num_draft_tokens, model.num_steps});
  }

 protected:
  /// One token of a step, for what metadata says of it.
  struct Token {
    int64_t index = 0;  // of the step
    int32_t len = 1;    // itself counted
    int32_t pool_row = 0;
    int32_t prefix_len = 0, kv_len = 1;   // of its request
    std::span<const int32_t> slots = {};  // of its request; empty: padding

    int32_t position() const { return len - 1; }
    int32_t slot(int32_t p) const { return slots.empty() ? 0 : slots[static_cast<size_t>(p)]; }
  };
  /// What all tokens share.
  struct Scene {
    const ForwardBatch& batch;
    const Meta& meta;
    const V4Layer& layer;  // the first: windows are alike
    Filler& f;
    // Staged whole, by buffer
    std::array<std::span<int32_t>, kFirstOwn> ints = {};
    std::array<std::span<int64_t>, kFirstOwn> slots = {};

    const Limits& limits() const { return meta.limits; }
    /// A row of a list that has as many columns for every token.
    std::span<int32_t> row(size_t buffer, const Token& t) const;
  };
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
  virtual void fill_lists(const Scene& s, const Token& t) const;
  virtual void end_lists(const Scene& /*s*/) const {}
  /// Where a block of a request lies, and its state.
  virtual int64_t block_slot(const Scene& s, const Token& t, const V4Layer& l, int32_t block) const;
  virtual int32_t state_page(const Scene& s, const Token& t, const V4Layer& l, int32_t block) const;
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
  void fill_token(const Scene& s, const Token& t) const;
  void fill_group(const Scene& s, const Token& t, V4Group group) const;
};

/// What both backends say alike of themselves.
std::span<const ForwardMode> v4_modes();
/// Roles of what is theirs alike, and of lists of what a token sees.
template <size_t n>
constexpr std::array<BufferRole, 16 + n> v4_roles(const std::array<BufferRole, n>& lists) {
  using V4 = DeepseekV4;
  std::array<BufferRole, 16 + n> all = {{{V4::kSeqLens, Role::kTokenLens},
                                         {V4::kPositions, Role::kTokenPositions},
                                         {V4::kPoolRows, Role::kTokenPoolRows},
                                         {V4::kWindowOutLoc, Role::kWindowStored}}};
  constexpr std::pair<V4::GroupBufferId, Role> kOfGroup[] = {
      {V4::kOutLoc, Role::kBlockStored},       {V4::kLensRaw, Role::kBlocksWhole},
      {V4::kLensClamp1, Role::kBlocksClamped}, {V4::kTopkLens, Role::kBlocksChosen},
      {V4::kStatePages, Role::kStatePages},    {V4::kExtraPages, Role::kExtraPages}};
  size_t i = 4;
  for (const V4Group g : kV4Groups)
    for (const auto& [id, role] : kOfGroup)
      all[i++] = {static_cast<int>(V4::of(g, id)), role, -1, static_cast<int>(g)};
  for (const BufferRole& role : lists) all[i++] = role;
  return all;
}
/// Lists of slots are read in pieces of so many: columns are a multiple, the rest -1.
inline constexpr int64_t kV4ListColumns = 64;
constexpr int64_t v4_columns(int64_t entries) {
  return (entries + kV4ListColumns - 1) / kV4ListColumns * kV4ListColumns;
}

}  // namespace shadowgraph
