#include "fuzz/history/history.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "backends/fill/rows.h"
#include "core/laws.h"
#include "fuzz/history/effects.h"
#include "fuzz/history/history_pairs.h"
#include "fuzz/history/history_words.h"
#include "runtime/contents.h"
#include "runtime/scheduler.h"

namespace shadowgraph {

std::string History::to_string() const {
  std::string s(backend->info().name);
  if (sizes != HistorySizes::kSmall) s += " " + std::string(name_of(sizes));
  const auto add = [&](const char* name, int64_t value) {
    s += " " + std::string(name) + " " + std::to_string(value);
  };
  add("page_size", model.page_size);
  add("max_requests", runtime.max_requests);
  if (runtime.draft.num_steps > 0) {
    add("topk", runtime.draft.topk);
    add("num_steps", runtime.draft.num_steps);
    add("num_draft_tokens", runtime.draft.num_draft_tokens);
  }
  if (runtime.window_left >= 0) add("swa_pool window_left", runtime.window_left);
  if (runtime.max_encoder_len > 0) add("max_encoder_len", runtime.max_encoder_len);
  if (runtime.dllm_block > 0) add("dllm_block", runtime.dllm_block);
  if (runtime.radix) s += " radix";
  if (runtime.prebuilt) s += " prebuilt";
  if (runtime.flight > 0) add("flight", runtime.flight);
  if (runner.own_streams) s += " own_streams";
  if (runner.wide_pools) s += " wide_pools";
  if (model.in_graph_tables) s += " in_graph_tables";
  if (model.dcp_size > 1) {
    add("dcp_size", model.dcp_size);
    add("dcp_rank", model.dcp_rank);
  }
  if (model.two_chunk_below > 0) s += " cut_prompts";
  if (model.dual_chunk.chunk_size > 0) {
    add("chunk_len", model.dual_chunk.chunk_len());
    add("original_max_position", model.dual_chunk.original_max_position);
  }
  if (model.prefix_chunk_tokens > 0) add("prefix_chunk_tokens", model.prefix_chunk_tokens);
  if (items) s += " items";
  if (model.ragged_prefill) s += " ragged_prefill";
  if (const SparseLayer* sparse = sparse_of(model.layers[0])) {
    add("sparse_topk", sparse->topk);
    add("head_dim", sparse->head_dim);
    if (sparse->ragged_prefill) s += " ragged";
  }
  if (runtime.state_slots > 0) add("state_slots", runtime.state_slots);
  if (model.track_states) add("state_chunk", runtime.state_chunk);
  if (model.split.fixed_size > 0) add("split_size", model.split.fixed_size);
  if (const V4Layer* l = model.layers.empty() ? nullptr : v4_of(model.layers[0]); l != nullptr) {
    add("window", l->window);
    for (const LayerKind& kind : model.layers) add("ratio", v4_of(kind)->ratio);
  }
  add("layers", static_cast<int64_t>(model.layers.size()));
  if (sisters > 0) add("sisters", sisters);
  if (std::ranges::any_of(runner.values, &LayerValues::sinks)) s += " sinks";
  return s;
}

namespace {

/// Delimiters at any of an extend's new tokens.
void choose_items(Choices& c, Step* step) {
  step->item_indptr = {0};
  for (const int32_t q_len : step->extend_lens) {
    const bool any = !c.one_in(4);
    for (int32_t t = 0; any && t < q_len; ++t)
      if (c.one_in(3)) step->item_delimiters.push_back(t);
    step->item_indptr.push_back(static_cast<int32_t>(step->item_delimiters.size()));
  }
}

void play(const History& h, Choices& choices, const MakeTap& make_tap, std::vector<Step>* steps,
          const std::function<bool()>& stop, HistoryResult* to) {
  HistoryResult& result = *to;
  const std::unique_ptr<Tap> tap = make_tap ? make_tap() : nullptr;
  RuntimeConfig runtime = h.runtime;
  if (tap != nullptr) tap->runtime(runtime);
  result.findings = validate(runtime);
  if (!result.findings.ok()) return;
  RunnerOptions options = h.runner;
  options.tap = tap.get();
  Runner runner(*h.backend, h.model, options);
  result.findings = runner.ready();
  SchedulerParts parts(runtime);
  if (tap != nullptr) tap->parts(runtime, parts);
  Scheduler scheduler(runtime, std::move(parts));
  Contents contents(h.runtime);
  for (int32_t i = 0; i < h.steps && result.findings.ok(); ++i) {
    if (stop && stop()) break;
    Step step = scheduler.next(choices);
    if (h.items && step.mode == ForwardMode::kExtend) choose_items(choices, &step);
    const PoolState pools = scheduler.state();
    if (tap != nullptr) tap->step(step, pools);
    contents.follow(scheduler.told(), pools, &step);
    if (steps != nullptr) steps->push_back(step);
    result.findings.add(check_pool(pools));
    result.findings.add(check_step(step, pools));
    // Outputs say of contents what they can.
    if (result.findings.ok() && !options.outputs_alone)
      result.findings = contents.judge(pools, step);
    // What is asked is wrong itself: no output says so.
    if (options.outputs_alone && !result.findings.ok()) {
      result.findings = {};
      break;
    }
    // A backend does not run a prebuilt step; it reads its keys later.
    const bool received = step.mode == ForwardMode::kPrebuilt;
    const bool played = received || has_mode(h.backend->info(), step.mode);
    if (result.findings.ok() && !played) result.findings = runner.pass(step);
    if (!result.findings.ok() || !played) continue;
    const RunnerCounts before = runner.counts();
    result.findings = runner.step(step);
    ++result.steps;
    const std::string name =
        std::string(h.backend->info().name) + " " + std::string(name_of(step.mode));
    const bool ran = runner.counts().steps > before.steps;
    if (ran) ++result.coverage[name + (received ? " received" : " eager")];
    result.judged += ran && !received;
    if (ran && !received) result.ran.push_back(run_level(step.mode, false));
    if (runner.counts().replays > before.replays) {
      ++result.coverage[name + " replay"];
      result.ran.push_back(run_level(step.mode, true));
    }
    result.failing_requests = static_cast<int64_t>(step.requests.size());
  }
  result.counts = runner.counts();
  result.parts = scheduler.parts();
  if (tap != nullptr) result.acted = tap->acted();
}

}  // namespace

HistoryResult run_history(const History& h, Choices& choices, const MakeTap& make_tap,
                          std::vector<Step>* steps, const std::function<bool()>& stop) {
  HistoryResult result;
  try {
    play(h, choices, make_tap, steps, stop, &result);
  } catch (const std::exception& e) {
    result.findings.add(make_finding("test.exception", at(std::string(h.backend->info().name)),
                                     "a step", e.what()));
  }
  return result;
}

std::string changed_by_plant(std::span<const uint32_t> made, const HistoryOptions& options) {
  Effects planted, clean;
  const auto run = [&](const MakeTap& tap, Effects* effects) {
    Choices choices(made);
    History h = generate_history(choices, options);
    effects->watch(&h.runner);
    run_history(h, choices, tap);
  };
  run(options.tap, &planted);
  run({}, &clean);
  return planted.first_difference(clean);
}

std::vector<Explanation> diagnose_history(std::span<const uint32_t> made,
                                          const HistoryOptions& options,
                                          const std::function<bool()>& stop) {
  for (const bool full_pools : {true, false}) {
    Choices choices(made);
    History h = generate_history(choices, options);
    h.runner.diagnose = true, h.runner.full_pools = full_pools;
    HistoryResult result = run_history(h, choices, options.tap, nullptr, stop);
    for (Finding& f : result.findings.findings())
      if (!f.diagnosis.empty()) return std::move(f.diagnosis);
  }
  return {};
}

namespace {

/// Asks whether it is so many seconds later.
std::function<bool()> after(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  return [end] { return Clock::now() >= end; };
}

/// Says of wrong outputs which mistakes would give them. The whole history tells mistakes apart
/// that give the same in a small one; one that takes too long leaves it to the small one.
void name_mistakes(std::span<const uint32_t> whole, std::span<const uint32_t> small,
                   const HistoryOptions& options, Status* status) {
  constexpr double kShare = 0.25;  // of the time for shrinking
  const auto is_output = [](const Finding& f) { return f.id.starts_with("num."); };
  if (std::ranges::none_of(status->findings(), is_output)) return;
  std::vector<Explanation> named =
      diagnose_history(whole, options, after(kShare * options.shrink.seconds));
  if (named.empty()) named = diagnose_history(small, options);
  for (Finding& f : status->findings())
    if (is_output(f)) f.diagnosis = named;
}

}  // namespace

HistoryFailure shrink_failure(std::span<const uint32_t> made, const HistoryOptions& options,
                              std::string_view law) {
  const auto late = after(options.shrink.seconds);
  const auto has_law = [&](const HistoryResult& r) {
    return std::ranges::any_of(std::as_const(r.findings).findings(),
                               [&](const Finding& f) { return f.id == law; });
  };
  std::optional<HistoryResult> smallest;
  const ShrinkResult small = shrink(
      {made.begin(), made.end()},
      [&](std::span<const uint32_t> choices) -> std::optional<MadeCase> {
        Choices again(choices);
        const History h = generate_history(again, options);
        HistoryResult result = run_history(h, again, options.tap, nullptr, late);
        if (!has_law(result)) return std::nullopt;
        MadeCase failed{again.made(), result.parts};
        smallest = std::move(result);
        return failed;
      },
      options.shrink);
  HistoryFailure failure;
  failure.choices = small.choices;
  Choices again(small.choices);
  const History h = generate_history(again, options);
  HistoryResult result = smallest ? *std::move(smallest) : run_history(h, again, options.tap);
  failure.requests = result.failing_requests;
  failure.findings = std::move(result.findings);
  if (!options.outputs_alone) name_mistakes(made, small.choices, options, &failure.findings);
  for (Finding& f : failure.findings.findings()) {
    f.case_id = h.to_string() + ": step " + std::to_string(result.steps) + ", " +
                std::to_string(result.failing_requests) + " requests" + small.ended;
    add_refs(options.refs, &f);
    f.reproduce = options.repeat + to_text(small.choices) + options.flags;
  }
  return failure;
}

}  // namespace shadowgraph
