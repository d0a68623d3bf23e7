#include "backends/sparse/deepseek_v4.h"

#include <string>

#include "backends/fill/graph_storage.h"
#include "backends/paged/paged_backend.h"

namespace shadowgraph {
namespace {

using V4 = DeepseekV4;

constexpr ForwardMode kDeepseekV4Modes[] = {
    ForwardMode::kExtend,        ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,          ForwardMode::kTargetVerify, ForwardMode::kDraftExtend,
    ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill, ForwardMode::kDraftDecode};
constexpr V4Pools kDeepseekV4Pools[] = {V4Pools::kPaged};
constexpr auto kDeepseekV4Buffers = with_family(
    kV4Buffers,
    {{V4::kRawPoolRows, Role::kPoolRows},
     {V4::kRawLens, Role::kKeyLens},
     {V4::kRawOutLoc, Role::kStored},
     unread(V4::kRawPrefixLens, "a launch expands it: the lengths of tokens are read"),
     dead(named("c4_topk_lengths_clamp1",
                v4_row(V4Group::kC4, V4::kLensClamp1, Role::kBlocksClamped)),
          "only the indexer takes it, and its scores are an input of the twin"),
     dead(named("c128_topk_lengths_raw", v4_row(V4Group::kC128, V4::kLensRaw, Role::kBlocksWhole)),
          "attention takes the clamped lengths"),
     {V4::kWindow, Role::kWindowSlots},
     {V4::kWindowLens, Role::kWindowSeen},
     v4_row(V4Group::kC4, V4::kBlocks, Role::kBlockSlots),
     v4_row(V4Group::kC128, V4::kBlocks, Role::kBlockSlots)});

constexpr BackendInfo kDeepseekV4Info{
    .name = "deepseek_v4",
    .about = "DeepSeek-V4: a window, and compressed blocks behind it",
    .modes = kDeepseekV4Modes,
    .page_sizes = {},
    .heads = false,
    .swa_pool = true,
    .in_graph_tables = true,
    .dense = false,
    .v4 = kDeepseekV4Pools,
    .graph_storage = kOneForEachBucket,
    .buffers = kDeepseekV4Buffers};

/// What the kernels, and the lists that layers share, can do with one layer.
void check_layer(const V4Layer& l, const V4Layer& first, const ModelConfig& m, Status* status) {
  if (l.window < 1 || l.window != first.window)
    refuse(status, "window", ">= 1, the same in all layers", l.window);
  if (l.pools == V4Pools::kUnified && l.layout == LatentLayout::kV4)
    refuse(status, "layout", "rows: a unified pool has no pages", static_cast<int64_t>(l.layout));
  if (l.layout == LatentLayout::kDsa || (l.layout == LatentLayout::kV4 && l.head_dim != 512))
    refuse(status, "layout", "rows, or DeepSeek-V4's with head_dim 512", l.head_dim);
  if (l.pools == V4Pools::kUnified && (l.rows < 2 || l.rows != first.rows))
    refuse(status, "rows", "rows of req_to_token, the same in all layers", l.rows);
  if (!l.has_blocks()) return;
  if (l.ratio < 2 || l.ratio > 128 || m.page_size % l.ratio != 0) {  // edge: tokens, keys
    refuse(status, "ratio", "2 to 128, and pages are whole blocks", l.ratio);
  } else if (m.swa_pool && l.shape().window() > l.window) {
    refuse(status, "window", "what the compressor pools: their states go with the window's pages",
           l.window);
  }
  if (l.rope_dim < 0 || l.rope_dim % 2 != 0 || l.rope_dim > l.head_dim)
    refuse(status, "rope_dim", "even, and no more than head_dim", l.rope_dim);
}

/// Binds a buffer with an entry per token: fill writes it, or a step's first launch expands it.
void bind_tokens(Binder& b, const Limits& limits, size_t buffer, const std::string& name,
                 int64_t columns = 0) {
  const int id = static_cast<int>(buffer);
  const DType dtype = V4::is_long(buffer) ? DType::kI64 : DType::kI32;
  if (limits.model.in_graph_tables && columns > 0)
    return b.scratch(id, name, dtype, {limits.tokens, columns}, 1);
  if (limits.model.in_graph_tables) return b.scratch(id, name, dtype, {limits.tokens}, 1);
  if (columns > 0) return b.ints(id, name, {limits.tokens, columns});
  if (dtype == DType::kI64) return b.slots(id, name, limits.tokens);
  b.ints(id, name, {limits.tokens});
}

}  // namespace

std::span<const ForwardMode> v4_modes() { return kDeepseekV4Modes; }

const BackendInfo& DeepseekV4::info() const { return kDeepseekV4Info; }

const V4Layer* DeepseekV4::layer_of(const ModelConfig& model, V4Group group) {
  for (const LayerKind& kind : model.layers) {
    const V4Layer* l = v4_of(kind);
    if (l != nullptr && l->has_blocks() && group_of(*l) == group) return l;
  }
  return nullptr;
}

const V4Layer& DeepseekV4::first_layer(const ModelConfig& model) {
  return *v4_of(model.layers.front());
}

Status DeepseekV4::check(const Limits& limits) const {
  Status status = serves(info(), limits);
  const ModelConfig& m = limits.model;
  if (m.layers.empty()) refuse(&status, "layers", "at least one", 0);
  if (!status.ok()) return status;
  for (const LayerKind& kind : m.layers) {
    const V4Layer& l = *v4_of(kind);
    check_layer(l, first_layer(m), m, &status);
    if (!l.has_blocks() || !status.ok()) continue;
    const V4Layer& like = *layer_of(m, group_of(l));
    if (l.ratio != like.ratio || l.index_topk != like.index_topk)
      refuse(&status, "ratio", "4, and one other", l.ratio);
    const bool few = l.index_topk < limits.max_kv_len / l.ratio;
    if (l.index_topk < 1 || (few && group_of(l) == V4Group::kC4 && pools() == V4Pools::kUnified))
      refuse(&status, "index_topk", ">= 1, of a unified pool the longest request's blocks",
             l.index_topk);
  }
  return status;
}

int32_t DeepseekV4::block_columns(const Limits& limits, const V4Layer& layer) {
  const int64_t blocks = limits.max_kv_len / layer.ratio;
  return static_cast<int32_t>(v4_columns(std::max<int64_t>(1, blocks)));
}

void DeepseekV4::bind_lists(Binder& b, const Limits& limits) const {
  const ModelConfig& m = limits.model;
  bind_tokens(b, limits, kWindow, "swa_page_indices", v4_columns(first_layer(m).window));
  bind_tokens(b, limits, kWindowLens, "swa_topk_lengths");
  for (const V4Group g : kV4Groups) {
    const V4Layer* l = layer_of(m, g);
    if (l == nullptr) continue;
    const bool c4 = g == V4Group::kC4;
    if (!c4) bind_tokens(b, limits, of(g, kBlocks), "c128_page_indices", block_columns(limits, *l));
    if (!c4) continue;
    b.scratch(static_cast<int>(of(g, kBlocks)), "c4_page_indices", DType::kI32,
              {limits.tokens, block_columns(limits, *l)}, 1);
    const int64_t columns = v4_columns(l->index_topk);
    b.scratch(kChosen, "c4_indices", DType::kI32, {limits.tokens, columns}, 1);
    b.scratch(kChosenSlots, "c4_sparse_page_indices", DType::kI32, {limits.tokens, columns}, 1);
  }
}

void DeepseekV4::bind_group(Binder& b, const Limits& limits, V4Group g) {
  const bool c4 = g == V4Group::kC4;
  const auto tokens = [&](GroupBufferId id, const char* what) {
    bind_tokens(b, limits, of(g, id), std::string(c4 ? "c4_" : "c128_") + what);
  };
  tokens(kOutLoc, "out_loc");
  tokens(kLensRaw, "topk_lengths_raw");
  tokens(kLensClamp1, "topk_lengths_clamp1");
  if (c4) tokens(kTopkLens, "sparse_topk_lengths");
  tokens(kStatePages, "state_indices");
  tokens(kExtraPages, "state_extra");
}

void DeepseekV4::bind_raw(Binder& b, const Limits& limits) {
  b.ints(kRawPoolRows, "raw_req_pool_indices", {limits.rows});
  b.ints(kRawPrefixLens, "raw_prefix_lens", {limits.rows});
  b.ints(kRawLens, "raw_seq_lens", {limits.rows});
  b.slots(kRawOutLoc, "raw_out_cache_loc", limits.tokens);
}

Status DeepseekV4::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check(limits);
  if (!status.ok()) return status;
  const ModelConfig& m = limits.model;
  const size_t pooled = kFirstOwn + num_own();
  Binder b(*this, arena, limits, pooled + m.layers.size());
  bind_tokens(b, limits, kSeqLens, "seq_lens_casual");
  bind_tokens(b, limits, kPositions, "positions_casual");
  bind_tokens(b, limits, kPoolRows, "req_pool_indices_repeated");
  b.table(kPageTable, "page_table", limits.tokens, limits.max_kv_len, m.page_size,
          m.in_graph_tables ? Lifetime::kScratch : Lifetime::kPerStep);
  b.ints(kTokenOffsets, "compress_cu_seqlens", {limits.rows + 1});
  bind_tokens(b, limits, kWindowOutLoc, "swa_out_loc");
  if (m.in_graph_tables) bind_raw(b, limits);
  bind_lists(b, limits);
  for (const V4Group g : kV4Groups)
    if (layer_of(m, g) != nullptr) bind_group(b, limits, g);
  for (size_t kind = 0; kind < m.layers.size(); ++kind) {
    const V4Layer& l = *v4_of(m.layers[kind]);
    if (l.has_blocks())
      b.scratch(static_cast<int>(pooled + kind), "pooled" + std::to_string(kind), DType::kF32,
                {limits.tokens, l.head_dim}, l.head_dim);
  }
  return b.bind(meta);
}

}  // namespace shadowgraph
