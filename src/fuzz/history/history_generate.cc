// generate_history: choices decide what a history has (history.h).
#include <algorithm>
#include <cassert>

#include "attn/page_table.h"
#include "backends/fill/rows.h"
#include "fuzz/history/history.h"
#include "fuzz/history/history_layers.h"
#include "fuzz/history/history_sizes.h"
#include "fuzz/history/history_words.h"
#include "graph/memory/asan_guard.h"

namespace shadowgraph {
namespace {

/// A feature of the runtime beside plain paging: one of these at a time.
enum class Extra : uint8_t { kNone, kRadix, kSwaPool, kEncoder };
std::string_view name_of(Extra e) {
  constexpr std::string_view kNames[] = {"none", "radix", "swa_pool", "encoder"};
  return kNames[static_cast<size_t>(e)];
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
    case Extra::kSwaPool: r.window_left = choose_window("swa_window_left", c, *h); break;
    case Extra::kEncoder:
      r.max_encoder_len = is_long(*h) ? near_edge(c, Axis::kKeys, 130)
                                      : r.page_size * c.of("encoder_pages", {1, 2, 5});
      break;
  }
  if (has_mode(b.info(), ForwardMode::kDllmExtend) && r.draft.num_steps == 0 &&
      r.max_encoder_len == 0)
    r.dllm_block = c.of("dllm_block", {0, 0, 0, 0, 0, 0, 0, 0, 2, 4});
}

/// One of several ranks, whose pages are those of req_to_token together.
void choose_rank(Choices& c, History* h) {
  ModelConfig& m = h->model;
  m.dcp_size = c.of("dcp_size", {1, 2, 4});
  m.dcp_rank = static_cast<int32_t>(c.below(static_cast<uint32_t>(m.dcp_size)));
  h->runtime.page_size = m.page_size * m.dcp_size;
  h->runtime.num_pages = static_cast<int32_t>(pages_for(h->runtime.num_pages, m.dcp_size));
}

/// Chooses the types of the pools, and the order in which the device works.
void choose_device(Choices& c, History* h) {
  RunnerOptions& r = h->runner;
  using enum DType;
  if (r.data != RunnerData::kSelector)
    r.kv_dtype = c.of("kv_dtype", {kF32, kF32, kF32, kF32, kF16, kBF16, kE4M3, kE5M2});
  if (c.one_in("device_order", 3)) r.device.seed = 1 + c.below(1u << 16);
  r.plans_ahead = c.one_in("plans_ahead", 3);
  r.own_streams = c.one_in("own_streams", 3);
  if (h->backend->info().dense) r.wide_pools = c.one_in("wide_pools", 24);
  r.device.proves_footprints = c.below(16) == 15 && !kHasAsan;  // which proves them in each history
}

/// Short contexts are cut, too: by the engine's rule for the batch, on a small GPU that few
/// requests fill, or at a fixed size, or not at all. Each query has a partial result of each part,
/// so that large histories have longer parts.
void choose_splits(Choices& c, History* h) {
  constexpr int32_t kNever = 0;
  SplitConfig& s = h->model.split;
  const bool small = h->sizes == HistorySizes::kSmall;
  s.num_sms = c.of("split.num_sms", {132, 1, 2, 3});
  if (c.one_in("split.fixed", 2)) {
    s.fixed_size = c.of("split.fixed_size", {1, 3, 8, kNever});
    s.off = s.fixed_size == kNever;
    if (!small) s.fixed_size *= 16;
    return;
  }
  // A least size that no context reaches is no cut at all.
  s.min_size = small && h->model.page_size < 32 ? c.of("split.min_size", {1, 2})
                                                : c.of("split.min_size", {128, 1, 4, 1});
  s.max_splits = c.of("split.max_splits", {8, 1, 3});
}

/// Chooses what q, K and V are; a selector tells keys where an output may depend on how they are
/// cut.
void choose_data(Choices& c, History* h) {
  using enum RunnerData;
  RunnerData& data = h->runner.data;
  const bool cut = !h->backend->info().batch_splits.empty();
  data = cut ? c.of("data", {kRandom, kUniform, kSelector, kRandom, kSelector, kShifted})
             : c.of("data", {kRandom, kUniform, kRandom, kShifted});
}

/// Everything that a step or a padded one can have.
int64_t most_tokens(const History& h) {
  const RuntimeConfig& r = h.runtime;
  int64_t a_request = std::max(
      {r.max_chunk, r.dllm_block, r.draft.num_draft_tokens, r.draft.num_steps + 1, r.draft.topk});
  if (r.prebuilt) a_request = std::max<int64_t>(a_request, r.max_context_len);
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
  choose_sizes(b, c, &h);
  choose_features(b, c, &h);
  m.max_context_len = r.max_context_len;
  m.max_encoder_len = r.max_encoder_len;
  m.swa_pool = r.window_left >= 0;
  m.topk = r.draft.topk, m.num_steps = r.draft.num_steps;
  m.num_draft_tokens = r.draft.num_draft_tokens;
  const int32_t most_spare = r.max_requests;  // whatever layers leave of them
  choose_layers(b, c, &h);
  const int32_t pages = static_cast<int32_t>(pages_for(r.width(), m.page_size));
  const int least_spare = b.info().halves ? 1 : 0;
  // A crowd's is no level: there are many of them.
  r.num_pages = pages + pages * (r.crowded ? c.between(least_spare, most_spare)
                                           : c.between("spare_contexts", least_spare, most_spare));
  const bool no_padding_keys = b.info().engine->padding_len == 0;
  m.seq_len_fill =
      no_padding_keys ? c.of("seq_len_fill", {0, 0, 0, 5}) : c.of("seq_len_fill", {1, 1, 1, 5});
  h.runner.seed = c.below(1u << 16);
  if (b.info().dcp) choose_rank(c, &h);
  m.in_graph_tables = b.info().in_graph_tables && m.dcp_size == 1 && c.one_in("in_graph_tables", 3);
  if (b.info().ragged_prefill) m.ragged_prefill = c.one_in("ragged_prefill", 2);
  // A prebuilt batch is not extended, except by a draft.
  const bool may_arrive =
      r.max_encoder_len == 0 && r.state_slots == 0 && (!m.ragged_prefill || r.draft.num_steps > 0);
  r.prebuilt = may_arrive && c.one_in("prebuilt", is_long(h) ? 2 : 5);
  if (!b.info().batch_splits.empty()) choose_splits(c, &h);
  choose_data(c, &h);
  choose_device(c, &h);
  choose_scalars(b, c, &h);
  if (b.info().halves && c.one_in("two_chunks", 2))
    m.two_chunk_below = 0.48f;  // an engine's default
  if (r.window_left >= 0) r.swa_pages = std::max(r.num_pages + 2, r.least_swa_pages());
  h.runner.pool_rows = r.max_requests + 1, h.runner.pool_width = r.width();
  h.runner.slots = int64_t{r.num_pages + 1} * m.page_size;
  h.runner.swa_slots = int64_t{r.swa_pages + 1} * m.page_size;
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
