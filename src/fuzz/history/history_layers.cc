// Layers of a history's model: choices decide what each is, and in what it differs from the others.
#include "fuzz/history/history_layers.h"

#include <algorithm>

#include "attn/page_table.h"
#include "backends/fill/rows.h"
#include "fuzz/history/history_sizes.h"
#include "fuzz/history/history_words.h"

namespace shadowgraph {
namespace {

constexpr int32_t kManyHeads = 17;  // of a layer: then less of the rest

/// Query heads that share a KV head: few, or around a tile's rows where no other size is large.
int32_t choose_group(bool latent, Choices& c, const History& h) {
  if (h.sizes != HistorySizes::kSmall) return c.of({1, 3});
  if (!c.one_in("wide_group", 8)) return c.of("group_size", {1, 3, 4, 7});
  return latent ? near_edge(c, Axis::kHeads, 66) : c.of({2, 5, 6, 8, 9, 12, 16, 17});
}

LayerKind layer(bool latent, Choices& c, const History& h, int32_t window_left) {
  const int32_t kv_heads = latent ? 1 : c.of("kv_heads", {1, 2});
  LayerKind kind;
  kind.params = {.num_qo_heads = kv_heads * choose_group(latent, c, h),
                 .num_kv_heads = kv_heads,
                 .head_dim_qk = latent ? 6 : 4,
                 .head_dim_vo = 4,
                 .sm_scale = 0.5f,
                 .causal = true,
                 .window_left = window_left};
  kind.mla = latent;
  return kind;
}

/// Chooses small chunks, so that a context has several.
void choose_dual_chunks(Choices& c, History* h) {
  ModelConfig& m = h->model;
  const int32_t len =
      m.page_size * (is_long(*h) ? c.of({1, 2, 8, 32}) : c.of("chunk_pages", {1, 2, 3}));
  m.dual_chunk.local_size = c.of("local_size", {0, 1, 5});
  m.dual_chunk.chunk_size = len + m.dual_chunk.local_size;
  m.dual_chunk.original_max_position = c.of("original_max_position", {0, 4, 12});
  for (int32_t i = c.of("layers", {1, 2}); i > 0; --i) {
    m.layers.push_back(layer(false, c, *h, -1));
    m.layers.back().dual_chunk = true;
  }
}

/// Layers of one family of states, alike in what their metadata is made of.
void choose_recurrent_layers(const Backend& b, Choices& c, History* h) {
  RecurrentLayer l;
  l.family = c.of("family", b.info().recurrent);
  const bool lightning = l.family == RecurrentFamily::kLightning;
  l.conv_width = lightning ? 0 : c.between("conv_width", 2, 4);
  l.chunk_size =
      h->sizes == HistorySizes::kSmall ? c.of("chunk_size", {4, 5, 8}) : c.of({16, 31, 64});
  const int32_t layers = c.between("recurrent_layers", 1, 2);
  for (int32_t i = 0; i < layers; ++i) {
    l.num_k_heads = c.of("k_heads", {1, 2});
    const bool grouped = !lightning && l.family != RecurrentFamily::kKda;
    l.num_v_heads = l.num_k_heads * (grouped ? c.of("v_heads_of_k", {1, 2, 3}) : 1);
    l.head_dim_k = c.of("head_dim_k", {4, 3, 8});
    l.head_dim_v = lightning ? l.head_dim_k : c.of("head_dim_v", {4, 5});
    l.scale = l.family == RecurrentFamily::kMamba2 ? 1.0f : c.of({0.5f, 0.25f});
    h->model.layers.emplace_back().math = l;
  }
  RuntimeConfig& r = h->runtime;
  r.state_slots = r.max_requests + (r.radix ? c.between(2, 4) : c.between(0, 1));
  r.state_chunk = l.chunk_size;
  h->model.track_states = r.radix;
  h->runner.state_slots = r.state_slots + 1;
}

/// Layers that choose a few of the keys: contexts of few pages, which small rows fill or few
/// packed ones.
void choose_sparse_layers(Choices& c, History* h) {
  SparseLayer l;
  const bool packed = c.one_in("packed", 4);
  l.topk = c.of("sparse_topk", {1, 2, 3, 5, 8, 70});
  l.ragged_prefill = c.one_in("ragged", 2);
  if (!packed) {
    l.latents = LatentLayout::kRows;
    l.latent_dtype = c.of("latent_dtype", {DType::kF32, DType::kBF16, DType::kF16});
    l.head_dim = c.of("head_dim", {6, 4, 17});
    l.head_dim_v = 4;
  }
  const int32_t layers = packed ? 1 : c.between("layers", 1, 2);
  for (int32_t i = 0; i < layers; ++i) {
    l.sm_scale = c.of({0.5f, 1.0f});
    l.index_heads = c.of("index_heads", {1, 2});
    l.num_heads = packed ? 1 : c.of("heads", {1, 2, 3});
    h->model.layers.emplace_back().math = l;
  }
  RuntimeConfig& r = h->runtime;
  r.max_context_len = h->model.page_size * c.of("context_pages", {1, 2}) + c.between(8, 24);
  r.max_chunk = c.of("max_chunk", {4, 30, 70});
  h->model.max_context_len = r.max_context_len;
}

/// Small windows and blocks, of one ratio that overlaps and one that does not; a model may have
/// layers of each, and of neither.
void choose_v4_layers(const Backend& b, Choices& c, History* h) {
  RuntimeConfig& r = h->runtime;
  const int32_t page_size = h->model.page_size;
  std::vector<int32_t> ratios = {0};
  if (page_size >= 2) ratios.push_back(page_size >= 16 && c.one_in("wide_ratio", 2) ? 8 : 2);
  if (page_size >= 4) ratios.push_back(4);
  V4Layer l;
  l.pools = c.of("pools", b.info().v4);
  // A window's pages hold what is pooled, too.
  if (r.window_left >= 0) r.window_left = std::max(r.window_left, page_size >= 4 ? 7 : 1);
  l.window = r.window_left >= 0 ? r.window_left + 1 : c.between(1, 9);
  l.rows = l.pools == V4Pools::kUnified ? r.max_requests + 1 : 0;
  l.index_topk = r.max_context_len + 8;  // every block is chosen, or few are
  const int32_t few = l.pools == V4Pools::kPaged ? c.of("index_topk", {1, 2, 4, 0}) : 0;
  if (few > 0) l.index_topk = few;
  // A latent of the engine's size, once: 512 elements
  const bool packed = l.pools == V4Pools::kPaged && page_size <= 4 && c.one_in("packed", 8);
  l.head_dim = packed ? kV4Codes + kRopeDim : c.of("head_dim", {8, 4, 17});
  l.layout = packed ? LatentLayout::kV4 : LatentLayout::kRows;
  l.rope_dim = packed ? kRopeDim : 4;
  std::ranges::reverse(ratios);
  for (int32_t i = packed ? 1 : c.between("layers", 1, 3); i > 0; --i) {
    l.num_heads = packed ? 1 : c.of("heads", {1, 2, 3});
    l.sm_scale = c.of({0.5f, 1.0f});
    l.ratio = c.of("ratio", std::span<const int32_t>(ratios));
    LayerKind& kind = h->model.layers.emplace_back();
    kind.math = l;
    kind.params.causal = true;
  }
}

/// Chooses layers of the kinds that the backend serves.
void choose_kinds(const Backend& b, Choices& c, History* h) {
  if (b.info().sparse) return choose_sparse_layers(c, h);
  if (b.info().dual_chunk) return choose_dual_chunks(c, h);
  if (!b.info().v4.empty()) return choose_v4_layers(b, c, h);
  if (!b.info().recurrent.empty()) choose_recurrent_layers(b, c, h);
  if (!b.info().dense) return;
  ModelConfig& m = h->model;
  const RuntimeConfig& r = h->runtime;
  const bool latent = b.info().latent && (!b.info().heads || c.one_in("mla", 5));
  m.layers.push_back(layer(latent, c, *h, -1));
  // Layers share what a step is planned with, and room for partial results.
  if (!b.info().heads && c.one_in("twin_layers", 3)) m.layers.push_back(m.layers.front());
  const bool windows = b.info().window_with_encoder || r.max_encoder_len == 0;
  if (b.info().heads && windows && (r.window_left >= 0 || c.one_in("window", 3)))
    m.layers.push_back(layer(
        latent, c, *h, r.window_left >= 0 ? r.window_left : choose_window("window_left", c, *h)));
  // The window's pool has what its window sees, and no more of a chunk.
  const int32_t seen_pages = r.window_left < 0 ? 2 : (r.window_left + 1) / m.page_size;
  if (b.info().local && r.max_encoder_len == 0 && seen_pages > 0 && c.one_in("local", 4)) {
    m.attention_chunk = m.page_size * c.between("chunk_pages", 1, std::min(seen_pages, 2));
    m.layers.push_back(layer(latent, c, *h, -1));
    m.layers.back().local = true;
  }
  // From a token of each request to all of them at once.
  if (latent && b.info().prefix_chunks)
    m.prefix_chunk_tokens = c.of("prefix_chunk_tokens", {0, 0, 0, 0, 0, 0, 1, 4, 9, 20, 50, 200});
  if (r.max_encoder_len > 0) {
    m.layers.push_back(layer(latent, c, *h, -1));
    m.layers.back().cross = true;
    m.layers.back().params.causal = false;
  }
}

bool shares(const Backend& b, PlanKey key) {
  const auto keys = b.info().plan_keys;
  return std::ranges::find(keys, key) != keys.end();
}

/// How a layer differs from another one.
using Change = void (*)(const History& h, Choices& c, LayerKind* layer, LayerValues* values);

void change_scale(const History&, Choices&, LayerKind* layer, LayerValues*) {
  layer->params.sm_scale *= 2;
}
void change_cap(const History&, Choices&, LayerKind* layer, LayerValues*) {
  float& cap = layer->params.logits_soft_cap;
  cap = cap == 0 ? 0.5f : 0;
}
void change_sinks(const History&, Choices&, LayerKind*, LayerValues* values) {
  values->sinks = !values->sinks;
}
void change_key_scale(const History&, Choices&, LayerKind*, LayerValues* values) {
  values->k_scale *= 4;
}
void change_value_scale(const History&, Choices&, LayerKind*, LayerValues* values) {
  values->v_scale *= 4;
}
void change_heads(const History&, Choices& c, LayerKind* layer, LayerValues*) {
  layer->params.num_qo_heads += layer->params.num_kv_heads * c.of({1, 4});
}
/// A window's pool has what the widest window sees.
void change_window(const History& h, Choices& c, LayerKind* layer, LayerValues*) {
  int32_t& window = layer->params.window_left;
  const int32_t most = h.model.swa_pool ? h.runtime.window_left : std::max(9, window),
                before = window;
  window = c.between(0, most);
  if (window == before) window = before > 0 ? before - 1 : most;
}

/// Changes that make a layer differ from others that share its lists and plans.
std::vector<Change> changes_of(const Backend& b, const History& h, const LayerKind& layer) {
  std::vector<Change> changes = {change_scale};
  if (h.runner.data == RunnerData::kRandom) changes.push_back(change_cap);
  if (b.info().sinks) changes.push_back(change_sinks);
  if (is_fp8(h.runner.kv_dtype))
    changes.insert(changes.end(), {change_key_scale, change_value_scale});
  if (!shares(b, PlanKey::kHeads)) changes.push_back(change_heads);
  const bool windowed = has_window(layer) && !(h.model.swa_pool && h.runtime.window_left == 0);
  if (windowed && !shares(b, PlanKey::kWindow)) changes.push_back(change_window);
  return changes;
}

/// A, B, A: a layer that differs from another one in one thing, and maybe that one again. What a
/// backend makes for the first, and uses for all, serves one of them wrongly.
void add_sisters(const Backend& b, Choices& c, History* h) {
  std::vector<LayerKind>& layers = h->model.layers;
  std::vector<LayerValues>& values = h->runner.values;
  std::vector<size_t> dense;
  for (size_t i = 0; i < layers.size(); ++i)
    if (is_dense_attention(layers[i])) dense.push_back(i);
  if (dense.empty() || !c.one_in("sisters", 2)) return;
  const size_t first = dense[c.below(static_cast<uint32_t>(dense.size()))];
  const std::vector<Change> changes = changes_of(b, *h, layers[first]);
  LayerKind layer = layers[first];
  LayerValues own = values[first];
  changes[c.below(static_cast<uint32_t>(changes.size()))](*h, c, &layer, &own);
  const LayerKind again = layers[first];
  const LayerValues again_own = values[first];
  layers.push_back(layer), values.push_back(own), h->sisters = 1;
  if (!c.one_in(3)) return;
  layers.push_back(again), values.push_back(again_own), h->sisters = 2;
}

}  // namespace

void choose_layers(const Backend& b, Choices& c, History* h) {
  choose_kinds(b, c, h);
  const auto many = [](const LayerKind& k) { return k.params.num_qo_heads > kManyHeads; };
  if (std::ranges::none_of(h->model.layers, many)) return;
  h->runtime.max_requests = std::min(h->runtime.max_requests, 2);
  h->steps = std::min(h->steps, 8);
}

void choose_scalars(const Backend& b, Choices& c, History* h) {
  RunnerOptions& r = h->runner;
  const bool selects = r.data == RunnerData::kSelector;
  LayerValues of_all;
  if (is_fp8(r.kv_dtype))
    of_all.k_scale = c.of("k_scale", {1.0f, 0.25f, 2.0f}),
    of_all.v_scale = c.of("v_scale", {1.0f, 0.5f, 4.0f});
  of_all.sinks = b.info().dense && b.info().sinks && c.one_in("sinks", 4);
  const float scale = selects ? kSelectorScale : c.of({0.5f, 1.0f, 0.25f});
  const bool caps = b.info().dense && r.data == RunnerData::kRandom && c.one_in("soft_cap", 4);
  const float cap = caps ? 1.0f : 0.0f;
  for (LayerKind& layer : h->model.layers) {
    layer.params.sm_scale = scale;
    layer.params.logits_soft_cap = cap;
    r.values.push_back(is_dense_attention(layer) ? of_all : LayerValues{});
  }
  add_sisters(b, c, h);
}

}  // namespace shadowgraph
