#include "backends/deepseek_v4.h"

#include <string>

#include "backends/paged_backend.h"

namespace shadowgraph {
namespace {

using V4 = DeepseekV4;

constexpr ForwardMode kModes[] = {
    ForwardMode::kExtend,        ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,          ForwardMode::kTargetVerify, ForwardMode::kDraftExtend,
    ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill, ForwardMode::kDraftDecode};
constexpr V4Pools kPools[] = {V4Pools::kPaged};
constexpr int block_list(V4Group g) { return static_cast<int>(V4::of(g, V4::kBlocks)); }
constexpr auto kRoles = v4_roles<4>(
    {{{V4::kWindow, Role::kWindowSlots},
      {V4::kWindowLens, Role::kWindowSeen},
      {block_list(V4Group::kC4), Role::kBlockSlots, -1, static_cast<int>(V4Group::kC4)},
      {block_list(V4Group::kC128), Role::kBlockSlots, -1, static_cast<int>(V4Group::kC128)}}});

constexpr BackendInfo kInfo{.name = "deepseek_v4",
                            .about = "DeepSeek-V4: a window, and compressed blocks behind it",
                            .modes = kModes,
                            .page_sizes = {},
                            .tree = false,
                            .heads = false,
                            .swa_pool = true,
                            .dense = false,
                            .v4 = kPools,
                            .fields = {},
                            .roles = kRoles};

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
  if (l.ratio < 2 || l.ratio > 128 || m.page_size % l.ratio != 0) {
    refuse(status, "ratio", "2 to 128, and pages are whole blocks", l.ratio);
  } else if (m.swa_pool && l.shape().window() > l.window) {
    refuse(status, "window", "what the compressor pools: their states go with the window's pages",
           l.window);
  }
  if (l.rope_dim < 0 || l.rope_dim % 2 != 0 || l.rope_dim > l.head_dim)
    refuse(status, "rope_dim", "even, and no more than head_dim", l.rope_dim);
}

}  // namespace

std::span<const ForwardMode> v4_modes() { return kModes; }

const BackendInfo& DeepseekV4::info() const { return kInfo; }

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
  if (m.dcp_size != 1) refuse(&status, "dcp_size", "1", m.dcp_size);
  if (m.layers.empty()) refuse(&status, "layers", "at least one", 0);
  if (m.track_states) refuse(&status, "track_states", "no", 1);
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

void DeepseekV4::bind_lists(Binder& b, const Limits& limits) const {
  const ModelConfig& m = limits.model;
  b.ints(kWindow, "swa_page_indices", {limits.tokens, v4_columns(first_layer(m).window)});
  b.ints(kWindowLens, "swa_topk_lengths", {limits.tokens});
  for (const V4Group g : kV4Groups) {
    const V4Layer* l = layer_of(m, g);
    if (l == nullptr) continue;
    const bool c4 = g == V4Group::kC4;
    const int64_t blocks = limits.max_kv_len / l->ratio;
    b.ints(static_cast<int>(of(g, kBlocks)), c4 ? "c4_page_indices" : "c128_page_indices",
           {limits.tokens, v4_columns(std::max<int64_t>(1, blocks))});
    if (!c4) continue;
    const int64_t columns = v4_columns(l->index_topk);
    b.scratch(kChosen, "c4_indices", DType::kI32, {limits.tokens, columns}, 1);
    b.scratch(kChosenSlots, "c4_sparse_page_indices", DType::kI32, {limits.tokens, columns}, 1);
  }
}

void DeepseekV4::bind_group(Binder& b, const Limits& limits, V4Group g) {
  const bool c4 = g == V4Group::kC4;
  const std::string name = c4 ? "c4_" : "c128_";
  const auto ints = [&](GroupBufferId id, const char* what) {
    b.ints(static_cast<int>(of(g, id)), name + what, {limits.tokens});
  };
  b.slots(static_cast<int>(of(g, kOutLoc)), name + "out_loc", limits.tokens);
  ints(kLensRaw, "topk_lengths_raw");
  ints(kLensClamp1, "topk_lengths_clamp1");
  if (c4) ints(kTopkLens, "sparse_topk_lengths");
  ints(kStatePages, "state_indices");
  ints(kExtraPages, "state_extra");
}

Status DeepseekV4::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check(limits);
  if (!status.ok()) return status;
  const ModelConfig& m = limits.model;
  const size_t pooled = kFirstOwn + num_own();
  Binder b(arena, limits, pooled + m.layers.size());
  b.ints(kSeqLens, "seq_lens_casual", {limits.tokens});
  b.ints(kPositions, "positions_casual", {limits.tokens});
  b.ints(kPoolRows, "req_pool_indices_repeated", {limits.tokens});
  b.table(kPageTable, "page_table", limits.tokens, limits.max_kv_len, m.page_size);
  b.ints(kTokenOffsets, "compress_cu_seqlens", {limits.rows + 1});
  b.slots(kWindowOutLoc, "swa_out_loc", limits.tokens);
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
