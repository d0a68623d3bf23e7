// generate_history: choices decide what a history has (history.h).
#include <algorithm>
#include <cassert>

#include "attn/page_table.h"
#include "backends/fill/rows.h"
#include "fuzz/history/history.h"
#include "fuzz/history/history_words.h"

namespace shadowgraph {
namespace {

/// What the runtime does beside plain paging: one of these at a time.
enum class Extra : uint8_t { kNone, kRadix, kSwaPool, kEncoder };
std::string_view name_of(Extra e) {
  constexpr std::string_view kNames[] = {"none", "radix", "swa_pool", "encoder"};
  return kNames[static_cast<size_t>(e)];
}

LayerKind layer(bool latent, Choices& c, int32_t window_left) {
  const int32_t kv_heads = latent ? 1 : c.of("kv_heads", {1, 2});
  LayerKind kind;
  kind.params = {.num_qo_heads = kv_heads * c.of("group_size", {1, 3, 4, 7}),
                 .num_kv_heads = kv_heads,
                 .head_dim_qk = latent ? 6 : 4,
                 .head_dim_vo = 4,
                 .sm_scale = 0.5f,
                 .causal = true,
                 .window_left = window_left};
  kind.mla = latent;
  return kind;
}

int32_t choose_page_size(const Backend& b, Choices& c) {
  const std::span<const int32_t> sizes = b.info().page_sizes;
  if (sizes.empty()) return c.of("page_size", {1, 2, 4, 16});
  return c.of("page_size", sizes);
}

/// Which of the runtime's features the backend has, and this history uses.
void choose_features(const Backend& b, Choices& c, History* h) {
  RuntimeConfig& r = h->runtime;
  const bool whole = b.info().whole_draft;
  if (whole || (has_mode(b.info(), ForwardMode::kTargetVerify) && c.one_in("speculates", 2))) {
    r.draft.topk = b.info().tree ? c.of("topk", {1, 2, 3}) : 1;
    r.draft.num_steps = c.between("num_steps", whole ? 2 : 1, 5);
    const int64_t most = std::min<int64_t>(r.draft.max_tokens(), 8);
    r.draft.num_draft_tokens =
        r.draft.topk == 1 ? r.draft.num_steps + 1 : c.between(1, static_cast<int>(most));
  }
  std::vector<Extra> extras = {Extra::kNone};
  if (b.info().shares_prefixes) extras.push_back(Extra::kRadix);
  if (b.info().swa_pool) extras.push_back(Extra::kSwaPool);
  if (b.info().encoder && r.draft.num_steps == 0) extras.push_back(Extra::kEncoder);
  switch (c.of("extra", std::span<const Extra>(extras))) {
    case Extra::kNone: break;
    case Extra::kRadix: r.radix = true; break;
    case Extra::kSwaPool: r.window_left = c.of("swa_window_left", {0, 1, 3, 5}); break;
    case Extra::kEncoder: r.max_encoder_len = c.of("max_encoder_len", {1, 2, 5}); break;
  }
  if (has_mode(b.info(), ForwardMode::kDllmExtend) && r.draft.num_steps == 0 &&
      r.max_encoder_len == 0)
    r.dllm_block = c.of("dllm_block", {0, 0, 0, 0, 0, 0, 0, 0, 2, 4});
}

/// Chooses small chunks, so that a context has several.
void choose_dual_chunks(Choices& c, History* h) {
  ModelConfig& m = h->model;
  const int32_t len = m.page_size * c.of("chunk_pages", {1, 2, 3});
  m.dual_chunk.local_size = c.of("local_size", {0, 1, 5});
  m.dual_chunk.chunk_size = len + m.dual_chunk.local_size;
  m.dual_chunk.original_max_position = c.of("original_max_position", {0, 4, 12});
  for (int32_t i = c.of("layers", {1, 2}); i > 0; --i) {
    m.layers.push_back(layer(false, c, -1));
    m.layers.back().dual_chunk = true;
  }
}

/// Layers of one family of states, alike in what their metadata is made of.
void choose_recurrent_layers(const Backend& b, Choices& c, History* h) {
  RecurrentLayer l;
  l.family = c.of("family", b.info().recurrent);
  const bool lightning = l.family == RecurrentFamily::kLightning;
  l.conv_width = lightning ? 0 : c.between("conv_width", 2, 4);
  l.chunk_size = c.of("chunk_size", {4, 5, 8});
  const int32_t layers = c.between("recurrent_layers", 1, 2);
  for (int32_t i = 0; i < layers; ++i) {
    l.num_k_heads = c.of("k_heads", {1, 2});
    const bool grouped = !lightning && l.family != RecurrentFamily::kKda;
    l.num_v_heads = l.num_k_heads * (grouped ? c.of("v_heads_of_k", {1, 2, 3}) : 1);
    l.head_dim_k = c.of("head_dim_k", {4, 3, 8});
    l.head_dim_v = lightning ? l.head_dim_k : c.of("head_dim_v", {4, 5});
    l.scale = l.family == RecurrentFamily::kMamba2 ? 1.0f : 0.5f;
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
  l.sm_scale = 0.5f;
  if (!packed) {
    l.latents = LatentLayout::kRows;
    l.latent_dtype = c.of("latent_dtype", {DType::kF32, DType::kBF16, DType::kF16});
    l.head_dim = c.of("head_dim", {6, 4, 17});
    l.head_dim_v = 4;
  }
  const int32_t layers = packed ? 1 : c.between("layers", 1, 2);
  for (int32_t i = 0; i < layers; ++i) {
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
  l.sm_scale = 0.5f;
  std::ranges::reverse(ratios);
  for (int32_t i = packed ? 1 : c.between("layers", 1, 3); i > 0; --i) {
    l.num_heads = packed ? 1 : c.of("heads", {1, 2, 3});
    l.ratio = c.of("ratio", std::span<const int32_t>(ratios));
    LayerKind& kind = h->model.layers.emplace_back();
    kind.math = l;
    kind.params.causal = true;
  }
}

void choose_layers(const Backend& b, Choices& c, History* h) {
  if (b.info().sparse) return choose_sparse_layers(c, h);
  if (b.info().dual_chunk) return choose_dual_chunks(c, h);
  if (!b.info().v4.empty()) return choose_v4_layers(b, c, h);
  if (!b.info().recurrent.empty()) choose_recurrent_layers(b, c, h);
  if (!b.info().dense) return;
  ModelConfig& m = h->model;
  const RuntimeConfig& r = h->runtime;
  const bool latent = b.info().latent && (!b.info().heads || c.one_in("mla", 5));
  m.layers.push_back(layer(latent, c, -1));
  // Layers share what a step is planned with, and room for partial results.
  if (!b.info().heads && c.one_in("twin_layers", 3)) m.layers.push_back(m.layers.front());
  const bool windows = b.info().window_with_encoder || r.max_encoder_len == 0;
  if (b.info().heads && windows && (r.window_left >= 0 || c.one_in("window", 3)))
    m.layers.push_back(
        layer(latent, c, r.window_left >= 0 ? r.window_left : c.of("window_left", {0, 1, 4})));
  // The window's pool has what its window sees, and no more of a chunk.
  const int32_t seen_pages = r.window_left < 0 ? 2 : (r.window_left + 1) / m.page_size;
  if (b.info().local && r.max_encoder_len == 0 && seen_pages > 0 && c.one_in("local", 4)) {
    m.attention_chunk = m.page_size * c.between("chunk_pages", 1, std::min(seen_pages, 2));
    m.layers.push_back(layer(latent, c, -1));
    m.layers.back().local = true;
  }
  // From a token of each request to all of them at once.
  if (latent && b.info().prefix_chunks)
    m.prefix_chunk_tokens = c.of("prefix_chunk_tokens", {0, 0, 0, 0, 0, 0, 1, 4, 9, 20, 50, 200});
  if (r.max_encoder_len > 0) {
    m.layers.push_back(layer(latent, c, -1));
    m.layers.back().cross = true;
    m.layers.back().params.causal = false;
  }
}

/// One of several ranks, whose pages are those of req_to_token together.
void choose_rank(Choices& c, History* h) {
  ModelConfig& m = h->model;
  m.dcp_size = c.of("dcp_size", {1, 2, 4});
  m.dcp_rank = static_cast<int32_t>(c.below(static_cast<uint32_t>(m.dcp_size)));
  h->runtime.page_size = m.page_size * m.dcp_size;
  h->runtime.num_pages = static_cast<int32_t>(pages_for(h->runtime.num_pages, m.dcp_size));
}

/// What the pools hold, and the order in which the device works.
void choose_device(Choices& c, History* h) {
  RunnerOptions& r = h->runner;
  using enum DType;
  if (r.data != RunnerData::kSelector)
    r.kv_dtype = c.of("kv_dtype", {kF32, kF32, kF32, kF32, kF16, kBF16, kE4M3, kE5M2});
  if (r.kv_dtype == kE4M3 || r.kv_dtype == kE5M2)
    r.k_scale = c.of("k_scale", {1.0f, 0.25f, 2.0f}),
    r.v_scale = c.of("v_scale", {1.0f, 0.5f, 4.0f});
  const bool caps = r.data == RunnerData::kRandom && c.one_in("soft_cap", 4);
  for (LayerKind& layer : h->model.layers) layer.params.logits_soft_cap = caps ? 1.0f : 0.0f;
  if (c.one_in("device_order", 3)) r.device.seed = 1 + c.below(1u << 16);
  r.plans_ahead = c.one_in("plans_ahead", 3);
}

/// Short contexts are cut, too: by the engine's rule for a small GPU, or at a fixed size.
void choose_splits(Choices& c, History* h) {
  SplitConfig& s = h->model.split;
  s.fixed_size = c.of("split.fixed_size", {0, 0, 0, 1, 3, 8});
  s.min_size = c.of("split.min_size", {128, 1, 4, 1});
  s.num_sms = c.of("split.num_sms", {132, 1, 2, 4});
  s.max_splits = c.of("split.max_splits", {8, 1, 3});
  s.off = c.one_in("split.off", 8);
}

/// What q, K and V are; a selector tells keys where an output may depend on how they are cut.
void choose_data(Choices& c, History* h) {
  using enum RunnerData;
  RunnerData& data = h->runner.data;
  const bool cut = !h->backend->info().batch_splits.empty();
  data = cut ? c.of("data", {kRandom, kUniform, kSelector}) : c.of("data", {kRandom, kUniform});
  if (data != kSelector) return;
  for (LayerKind& layer : h->model.layers) layer.params.sm_scale = kSelectorScale;
}

/// Everything that a step or a padded one can have.
int64_t most_tokens(const History& h) {
  const RuntimeConfig& r = h.runtime;
  int64_t a_request = std::max({r.max_chunk, r.dllm_block, r.draft.num_draft_tokens,
                                r.draft.num_steps + 1, r.draft.topk, h.model.max_context_len});
  if (h.backend->info().whole_draft) a_request = r.draft.topk;
  return a_request *
         std::max(r.max_requests, h.runner.buckets.empty() ? 0 : h.runner.buckets.back());
}

}  // namespace

History generate_history(Choices& c, std::span<const Backend* const> backends) {
  History h;
  h.backend = backends[static_cast<size_t>(
      c.between(kBackendFactor, 0, static_cast<int>(backends.size()) - 1))];
  const Backend& b = *h.backend;
  RuntimeConfig& r = h.runtime;
  ModelConfig& m = h.model;
  r.max_requests = c.between("max_requests", b.info().halves ? 2 : 1, 4);  // two batches of them
  m.page_size = r.page_size = choose_page_size(b, c);
  choose_features(b, c, &h);
  r.max_context_len = m.page_size * c.between(2, 4) + c.between(8, 24);
  r.max_chunk = c.between(2, 9) * std::max(1, m.page_size / 8);  // prompts of pages, in few steps
  m.max_context_len = r.max_context_len;
  m.max_encoder_len = r.max_encoder_len;
  m.swa_pool = r.window_left >= 0;
  m.topk = r.draft.topk, m.num_steps = r.draft.num_steps;
  m.num_draft_tokens = r.draft.num_draft_tokens;
  choose_layers(b, c, &h);
  const int32_t pages = static_cast<int32_t>(pages_for(r.width(), m.page_size));
  r.num_pages =
      pages + pages * c.between("spare_contexts", b.info().halves ? 1 : 0, r.max_requests);
  const bool no_padding_keys = b.info().engine->padding_len == 0;
  m.seq_len_fill =
      no_padding_keys ? c.of("seq_len_fill", {0, 0, 0, 5}) : c.of("seq_len_fill", {1, 1, 1, 5});
  h.runner.seed = c.below(1u << 16);
  // Prompts come first: a backend that extends none, or halves batches, waits for its steps.
  const bool waits = !has_mode(b.info(), ForwardMode::kExtend) || b.info().halves;
  h.steps = waits ? c.between(12, 28) : c.between(6, 26);
  if (b.info().dcp) choose_rank(c, &h);
  m.in_graph_tables = b.info().in_graph_tables && m.dcp_size == 1 && c.one_in("in_graph_tables", 3);
  r.prebuilt = r.max_encoder_len == 0 && r.state_slots == 0 && c.one_in("prebuilt", 5);
  if (b.info().ragged_prefill) m.ragged_prefill = c.one_in("ragged_prefill", 2);
  if (!b.info().batch_splits.empty()) choose_splits(c, &h);
  choose_data(c, &h);
  choose_device(c, &h);
  if (b.info().halves && c.one_in("two_chunks", 2))
    m.two_chunk_below = 0.48f;  // an engine's default
  if (r.window_left >= 0) r.swa_pages = std::max(r.num_pages + 2, r.least_swa_pages());
  h.runner.pool_rows = r.max_requests + 1, h.runner.pool_width = r.width();
  h.runner.slots = int64_t{r.num_pages + 1} * m.page_size;
  h.runner.swa_slots = int64_t{r.swa_pages + 1} * m.page_size;
  h.runner.buckets = {1, 2, 4};
  h.runner.draft_rows = std::max(r.max_requests, h.runner.buckets.back());
  h.runner.max_tokens = most_tokens(h);
  h.items = b.info().items && std::ranges::none_of(m.layers, has_window) && c.one_in("items", 3);
  r.flight = c.one_in("flight", 3) ? 1 : 0;
  assert(validate(r).ok());
  return h;
}

History generate_history(Choices& choices, const HistoryOptions& options) {
  History h = generate_history(choices, options.backends);
  h.steps = std::min(h.steps, options.steps);
  h.runner.outputs_alone = options.outputs_alone;
  h.runner.make_device = options.make_device;
  return h;
}

}  // namespace shadowgraph
