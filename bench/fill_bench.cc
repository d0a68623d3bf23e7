// Building metadata alone: fills a second of one core, on an unchecked device. A fill is followed
// by its upload, which is not timed. And filling with all laws of metadata judged, of all small
// decodes in turn. The last column is the median of three runs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "backends/fill/rows.h"
#include "check/laws/metadata_case.h"
#include "runtime/small_steps.h"
#include "shadowgraph/device/sim_device.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kRows = 8, kContext = 4096;

struct FillCase {
  const Backend* backend;
  ForwardMode mode;
  int32_t page_size, topk;
};

ModelConfig model_of(const FillCase& f) {
  LayerKind layer;
  layer.params = {.num_qo_heads = 8,
                  .num_kv_heads = !f.backend->info().heads ? 1 : 2,
                  .head_dim_qk = !f.backend->info().heads ? 576 : 64,
                  .head_dim_vo = !f.backend->info().heads ? 512 : 64,
                  .sm_scale = 0.125f,
                  .causal = true};
  layer.mla = !f.backend->info().heads;
  ModelConfig model;
  model.max_context_len = kContext;
  model.page_size = f.page_size;
  model.topk = f.topk;
  model.num_steps = 4;
  model.num_draft_tokens = f.topk == 1 ? 5 : 8;
  model.layers = {layer};
  if (f.backend->info().dual_chunk) {
    model.layers[0].dual_chunk = true;
    // Three chunks and a part of a fourth; a test's pages are smaller than a chunk, too.
    model.dual_chunk = {.chunk_size = 1280, .local_size = 256, .original_max_position = 2048};
  }
  return model;
}

/// 8 requests of 4096 keys, drafts and new tokens among them, in pages far from each other.
Step step_of(const FillCase& f, const ModelConfig& model) {
  StepShape shape;
  shape.mode = f.mode;
  shape.page_size = f.page_size;
  shape.order = PageOrder::kInterleaved;
  shape.draft = {model.topk, model.num_steps, model.num_draft_tokens};
  const int32_t new_tokens = is_decode(f.mode) ? 1 : model.num_draft_tokens;
  shape.prefix_lens.assign(kRows, kContext - new_tokens);
  if (is_draft_extend_v2(f.mode)) shape.q_lens.assign(kRows, new_tokens);
  if (is_target_verify(f.mode) && f.topk > 1)
    shape.trees.assign(kRows, all_trees(new_tokens, f.topk).back());
  return make_step(shape, kContext + draft_reserve(shape.draft, f.page_size));
}

void fill(benchmark::State& state, const FillCase& f) {
  SimDevice device({.choose = {}, .checked = false});
  Stream stream(device);
  Arena arena(device, size_t{1} << 26);
  const ModelConfig model = model_of(f);
  const Step step = step_of(f, model);
  const ForwardBatch batch = step.batch();
  const int32_t q_len = Limits::exact(batch, model).max_q_len;
  Meta meta;
  Status status = f.backend->bind(arena, Limits::bucket(f.mode, kRows, q_len, model), &meta);
  for (auto _ : state) {
    const auto start = Clock::now();
    status.add(f.backend->fill(batch, meta));
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
    status.add(arena.upload(stream.handle()));
    stream.synchronize();
  }
  if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
  state.counters["fills"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void add(const FillCase& f) {
  const std::string name = "fill/" + std::string(f.backend->info().name) + "/" +
                           std::string(name_of(f.mode)) + "/page:" + std::to_string(f.page_size) +
                           "/topk:" + std::to_string(f.topk) + "/rows:8/context:4096";
  benchmark::RegisterBenchmark(name.c_str(), [f](benchmark::State& s) { fill(s, f); })
      ->UseManualTime()
      ->Repetitions(3)
      ->ReportAggregatesOnly();
}

/// All decodes of 1 to 3 requests of 1 to 8 keys, in pages of 2, in a bucket of 4.
std::vector<Step> small_decodes(int32_t context) {
  std::vector<Step> steps;
  for (int32_t rows = 1, count = 8; rows <= 3; ++rows, count *= 8) {
    for (int32_t number = 0; number < count; ++number) {
      StepShape shape;
      shape.page_size = 2;
      for (int32_t i = 0, rest = number; i < rows; ++i, rest /= 8)
        shape.prefix_lens.push_back(rest % 8);
      steps.push_back(make_step(shape, context));
    }
  }
  return steps;
}

void judge_metadata_only(benchmark::State& state, const Backend* backend) {
  ModelConfig model = model_of({backend, ForwardMode::kDecode, 2, 1});
  model.max_context_len = 16;
  MetadataCase metadata(*backend, Limits::bucket(ForwardMode::kDecode, 4, 1, model));
  Status status = metadata.ready();
  const std::vector<Step> steps = small_decodes(model.max_context_len);
  size_t next = 0;
  for (auto _ : state) status.add(metadata.run(steps[next++ % steps.size()].batch()));
  if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
  state.counters["cases"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void add_metadata_only() {
  for (const Backend* b : all_backends()) {
    const BackendInfo& info = b->info();
    const bool decodes = has_mode(info, ForwardMode::kDecode);
    if (!info.dense || !decodes || !info.page_sizes.empty() || info.halves) continue;
    const std::string name = "metadata_only/" + std::string(info.name) + "/decode/rows:1-3";
    benchmark::RegisterBenchmark(name.c_str(),
                                 [b](benchmark::State& s) { judge_metadata_only(s, b); })
        ->Repetitions(3)
        ->ReportAggregatesOnly();
  }
}

/// Each backend of dense attention in the modes that engines capture, with the page size that the
/// floor is for where it has it.
void add_all() {
  for (const Backend* b : all_backends()) {
    const BackendInfo& info = b->info();
    if (!info.dense) continue;
    const int32_t page_size = info.page_sizes.empty() ? 16 : info.page_sizes[0];
    for (const ForwardMode mode : {ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                   ForwardMode::kDraftDecode, ForwardMode::kDraftExtendV2}) {
      if (!has_mode(info, mode)) continue;
      add({b, mode, page_size, 1});
      const bool tree = mode == ForwardMode::kTargetVerify || mode == ForwardMode::kDraftDecode;
      if (info.tree && tree) add({b, mode, page_size, 4});
    }
  }
}

}  // namespace
}  // namespace shadowgraph

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  shadowgraph::add_all();
  shadowgraph::add_metadata_only();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
