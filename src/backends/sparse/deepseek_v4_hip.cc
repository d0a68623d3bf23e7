#include "backends/sparse/deepseek_v4_hip.h"

#include <algorithm>
#include <string>

#include "backends/fill/graph_storage.h"
#include "backends/recurrent/recurrent_backend.h"
#include "launch/sparse_launch.h"

namespace shadowgraph {
namespace {

using Hip = DeepseekV4Hip;

constexpr V4Pools kDeepseekV4HipPools[] = {V4Pools::kUnified};
constexpr BufferInfo list_row(int kind, std::optional<V4Group> group = {}) {
  return {static_cast<int>(Hip::list(kind)), Role::kLatentList, static_cast<int>(Hip::indptr(kind)),
          group};
}
constexpr std::string_view kInLists = "kernels of a unified pool read lists by their offsets";
constexpr auto kDeepseekV4HipBuffers = with_family(
    kV4Buffers,
    {dead(named("page_table", {Hip::kPageTable, Role::kTokenPages}), kInLists),
     dead(named("c4_topk_lengths_raw", v4_row(V4Group::kC4, Hip::kLensRaw, Role::kBlocksWhole)),
          kInLists),
     dead(named("c4_topk_lengths_clamp1",
                v4_row(V4Group::kC4, Hip::kLensClamp1, Role::kBlocksClamped)),
          kInLists),
     dead(
         named("c4_sparse_topk_lengths", v4_row(V4Group::kC4, Hip::kTopkLens, Role::kBlocksChosen)),
         kInLists),
     dead(named("c128_topk_lengths_raw", v4_row(V4Group::kC128, Hip::kLensRaw, Role::kBlocksWhole)),
          kInLists),
     dead(named("c128_topk_lengths_clamp1",
                v4_row(V4Group::kC128, Hip::kLensClamp1, Role::kBlocksClamped)),
          kInLists),
     list_row(0),
     list_row(1, V4Group::kC4),
     list_row(2, V4Group::kC128),
     {static_cast<int>(Hip::own(Hip::kOwnList)), Role::kOwnRows,
      static_cast<int>(Hip::own(Hip::kOwnIndptr))}});

const BackendInfo& the_info() {
  static const BackendInfo info{.name = "deepseek_v4_hip",
                                .about = "DeepSeek-V4 over one pool of rings and blocks (AMD)",
                                .modes = v4_modes(),
                                .page_sizes = {},
                                .heads = false,
                                .dense = false,
                                .v4 = kDeepseekV4HipPools,
                                .shares_prefixes = false,
                                .graph_storage = kOneForEachBucket,
                                .buffers = kDeepseekV4HipBuffers};
  return info;
}

constexpr int kNumLists = 3;

int list_of(const V4Layer& layer) {
  if (!layer.has_blocks()) return 0;
  return layer.shape().overlaps() ? 1 : 2;
}

/// Slots of all rings: unified_swa_pages.
int64_t ring_slots(const V4Layer& l, const ModelConfig& m) {
  return int64_t{l.rows} * l.ring(DeepseekV4::drafts(m));
}

}  // namespace

const BackendInfo& DeepseekV4Hip::info() const { return the_info(); }

bool DeepseekV4Hip::is_prefill(ForwardMode mode) { return is_state_prefill(mode); }

bool DeepseekV4Hip::has_list(const ModelConfig& model, int kind, const V4Layer** layer) {
  *layer = nullptr;
  for (const LayerKind& k : model.layers) {
    if (list_of(*v4_of(k)) != kind) continue;
    *layer = v4_of(k);
    return true;
  }
  return false;
}

void DeepseekV4Hip::bind_lists(Binder& b, const Limits& limits) const {
  constexpr const char* kNames[kNumLists] = {"kv_", "c4_kv_", "c128_kv_"};
  const int64_t window = first_layer(limits.model).window;
  for (int kind = 0; kind < kNumLists; ++kind) {
    const V4Layer* l = nullptr;
    if (!has_list(limits.model, kind, &l)) continue;
    const int64_t entries = window + (l->has_blocks() ? limits.max_kv_len / l->ratio : 0);
    const std::string name = kNames[kind];
    b.list(static_cast<int>(list(kind)), name + "indices", limits.tokens * entries);
    b.ints(static_cast<int>(indptr(kind)), name + "indptr", {int64_t{limits.tokens} + 1});
  }
  if (!is_prefill(limits.mode)) return;
  const int64_t own_entries = std::min<int64_t>(window, std::max(1, limits.max_q_len));
  b.list(static_cast<int>(own(kOwnList)), "extend_indices", limits.tokens * own_entries);
  b.ints(static_cast<int>(own(kOwnIndptr)), "extend_indptr", {int64_t{limits.tokens} + 1});
}

void DeepseekV4Hip::fill_lists(Scene& s, Writer& writer, const V4Token& t) const {
  const ModelConfig& m = s.limits().model;
  const int32_t window = first_layer(m).window, ring = first_layer(m).ring(drafts(m));
  const bool prefill = is_prefill(s.limits().mode);
  const auto at = static_cast<size_t>(t.index);
  const auto ring_slot = [&](int32_t p) { return t.pool_row * ring + p % ring; };
  const bool stored = !t.padding && (!prefill || t.kv_len - 1 - t.position() < window);
  s.longs[kWindowOutLoc][at] = stored ? ring_slot(t.position()) : 0;

  const int32_t first = std::max(0, t.len - window);
  const int32_t own_first = prefill ? std::max(first, t.prefix_len) : t.len;
  const auto next = [&](size_t list_id, size_t indptr_id, int32_t count) {
    const std::span<int32_t> ends = s.f.ints(static_cast<int>(indptr_id));
    if (at == 0) ends[0] = 0;
    ends[at + 1] = ends[at] + count;
    return s.f.list<int32_t>(static_cast<int>(list_id), ends[at], count);
  };
  for (int kind = 0; kind < kNumLists; ++kind) {
    const V4Layer* l = nullptr;
    if (!has_list(m, kind, &l)) continue;
    const int32_t old = std::max(0, own_first - first);
    const int32_t blocks = !t.padding && l->has_blocks() ? t.len / l->ratio : 0;
    const std::span<int32_t> slots = next(list(kind), indptr(kind), old + blocks);
    for (int32_t j = 0; j < old; ++j) slots[static_cast<size_t>(j)] = ring_slot(own_first - 1 - j);
    for (int32_t j = 0; j < blocks; ++j)
      slots[static_cast<size_t>(old) + static_cast<size_t>(j)] =
          static_cast<int32_t>(writer.block_slot(t, group_of(*l), j));
  }
  if (!prefill) return;
  const int32_t count = t.len - own_first;
  const std::span<int32_t> rows = next(own(kOwnList), own(kOwnIndptr), count);
  for (int32_t j = 0; j < count; ++j)
    rows[static_cast<size_t>(j)] = static_cast<int32_t>(t.index) - j;
}

void DeepseekV4Hip::end_lists(const Scene& s) const {
  const auto end = [&](size_t list_id, size_t indptr_id) {
    if (!s.meta.has(list_id)) return;
    const std::span<int32_t> ends = s.f.ints(static_cast<int>(indptr_id));
    if (ends.size() == 1) ends[0] = 0;  // no token
    s.f.retire_behind(static_cast<int>(list_id), ends.back());
  };
  for (int kind = 0; kind < kNumLists; ++kind) end(list(kind), indptr(kind));
  end(own(kOwnList), own(kOwnIndptr));
}

void DeepseekV4Hip::run(Stream& stream, const Meta& meta, const Layer& l) const {
  const ModelConfig& m = meta.limits.model;
  const bool prefill = is_prefill(meta.limits.mode);
  const int32_t ring = l.layer.ring(drafts(m));
  if (!prefill) store_tokens(stream, meta, l, ring);
  if (l.layer.has_blocks()) {
    compress_tokens(stream, meta, l, l.layer.live_blocks(drafts(m)));
    store_block_ends(stream, meta, l, l.tensors.tokens,
                     ring_slots(l.layer, m) + m.page_size / l.layer.ratio);
  }
  const int kind = list_of(l.layer);
  SparseAttention c = attention_of(l);
  c.keys.pool = l.tensors.tokens;
  c.keys.indices = elements<int32_t>(meta[list(kind)]);
  c.keys.indptr = elements<int32_t>(meta[indptr(kind)]);
  if (prefill) {
    c.extra.pool.data = l.tensors.latents;
    c.extra.indices = elements<int32_t>(meta[own(kOwnList)]);
    c.extra.indptr = elements<int32_t>(meta[own(kOwnIndptr)]);
  }
  stream.launch(sparse_launch(c, token_rows(meta.limits)));
  if (prefill) store_tokens(stream, meta, l, ring);
}

}  // namespace shadowgraph
