// A refactor let SGLang's captures run through the filler of replays. At a capture nothing is
// accepted yet, so a draft extend's longest query was 1, and the graph keeps that: later queries
// are never launched (sglang#26665). Two requests, 3 tokens each, in pages of 16.
#include <cstdio>
#include <vector>

#include "shadowgraph/shadowgraph.h"

using namespace shadowgraph;

constexpr int32_t kRows = 2, kQueries = 3, kPageSize = 16, kDim = 4;

int main() {
  ModelConfig model;
  model.max_context_len = 2 * kPageSize, model.page_size = kPageSize;
  model.num_steps = 2, model.num_draft_tokens = kQueries;
  AttentionParams& params = model.layers.emplace_back().params;
  params.num_qo_heads = params.num_kv_heads = 1, params.sm_scale = 0.5f;
  params.head_dim_qk = params.head_dim_vo = kDim;
  SimDevice device;
  Arena arena(device, 1 << 20);
  Stream stream(device);
  const std::vector<int64_t> rows = {kRows * kQueries, 1, kDim}, pages = {8, kPageSize, 1, kDim};
  std::vector<BufferSpec> specs;
  for (const char* name : {"q", "k", "v", "out"}) specs.push_back({name, DType::kF32, rows});
  for (const char* name : {"k_cache", "v_cache"}) specs.push_back({name, DType::kF32, pages});
  std::vector<Buffer> b;
  Status ready = arena.bind(specs, &b);
  LayerIo io;
  io.q = b[0].view(), io.k = b[1].view(), io.v = b[2].view(), io.out = b[3].view();
  io.cache = KvCache::nhd(b[4].view(), b[5].view());
  StepIo step;
  step.layers = {&io, 1};
  const Backend* backend = find_backend("flashattention");
  const Limits limits = Limits::bucket(ForwardMode::kDraftExtendV2, kRows, kQueries, model);
  Meta meta;
  ready.add(backend->bind(arena.scope("graph"), limits, &meta));
  if (!ready.ok()) return 2;

  // What a replay would launch is recorded again, and held against what the capture kept.
  const auto captured_with = [&](int32_t longest_query) {
    Meta captured = meta;
    captured.limits.max_q_len = longest_query;
    const auto record = [&](const Meta& m, Graph* graph) {
      return Graph::record(
          stream, [&](Stream& s) { backend->forward(s, m, step); }, graph);
    };
    Graph kept, again;
    Status status = record(captured, &kept);
    status.add(record(meta, &again));
    status.add(same_launches(kept, again));
    return status;
  };
  const Status before = captured_with(1), after = captured_with(kQueries);
  std::printf("before:\n%s\nafter: %s\n", before.to_string().c_str(), after.to_string().c_str());
  return !before.ok() && before.findings()[0].id == "graph.baked_scalar" && after.ok() ? 0 : 1;
}
