// What a runner has no room for, and what it is not asked to run.
#include <gtest/gtest.h>

#include <functional>

#include "check/runs.h"
#include "check/tap.h"
#include "core/laws.h"

namespace shadowgraph::runner_memory_test {
namespace {

TEST(RunnerMemory, APoolWithoutRoomIsSaidBeforeAnyStep) {
  const ModelConfig model = model_of(2, {small_layer()});
  ModelConfig gathered = model;
  gathered.in_graph_tables = true, gathered.swa_pool = true;
  gathered.layers.push_back(small_layer(3));
  const std::pair<const ModelConfig*, std::function<void(RunnerOptions&)>> kLarge[] = {
      {&model, [](RunnerOptions& o) { o.slots = 1 << 22; }},
      {&model, [](RunnerOptions& o) { o.max_tokens = 1 << 22; }},
      {&gathered, [](RunnerOptions& o) { o.pool_rows = o.pool_width = 1 << 12; }},
  };
  for (const auto& [of, make] : kLarge) {
    RunnerOptions options = options_of(*of, {1, 2});
    make(options);
    Runner runner(*find_backend("flashattention"), *of, options);
    ASSERT_FALSE(runner.ready().ok());
    EXPECT_EQ(runner.ready().findings()[0].id, "input.memory") << runner.ready().to_string();
    const Step step = make_step({.page_size = 2, .prefix_lens = {5}}, width_of(*of));
    EXPECT_EQ(runner.step(step).to_string(), runner.ready().to_string());
    EXPECT_EQ(runner.counts().steps, 0);
  }
}

TEST(RunnerMemory, TablesOfTheDeviceHaveBothPools) {
  ModelConfig model = model_of(2, {small_layer(), small_layer(3)});
  model.in_graph_tables = model.swa_pool = true;
  RunnerOptions options = options_of(model, {1, 2});
  options.pool_rows = 4, options.pool_width = width_of(model);
  Runs runs(*find_backend("flashattention"), model, options);
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
  EXPECT_EQ(runs.runner.counts().replays, 1);
}

TEST(RunnerMemory, ABucketOfMoreTokensThanThereAreIsNotCaptured) {
  const ModelConfig model = model_of(2, {small_layer()});
  RunnerOptions options = options_of(model, {1, 2, 64});
  options.max_tokens = 8;
  Runs runs(*find_backend("flashattention"), model, options);
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
  EXPECT_EQ(runs.runner.counts().captures, 2);
  EXPECT_EQ(runs.runner.counts().replays, 1);
  EXPECT_EQ(runs.step({.prefix_lens = {3, 1, 2}}).to_string(), "ok") << "no graph is left for it";
  EXPECT_EQ(runs.runner.counts().replays, 1);
}

TEST(RunnerMemory, FullPoolsAreReadAsEmptyOnes) {
  ModelConfig model = model_of(2, {small_layer(), small_layer(3)});
  model.swa_pool = true;
  RunnerOptions options = options_of(model, {1, 2});
  options.full_pools = true;
  Runs runs(*find_backend("flashattention"), model, options);
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
}

TEST(RunnerMemory, AKeyThatIsSeenIsInTheWindowsPool) {
  ModelConfig model = model_of(2, {small_layer(3)});
  model.swa_pool = true;
  for (const bool outputs_alone : {false, true}) {
    RunnerOptions options = options_of(model, {1, 2});
    options.outputs_alone = outputs_alone;
    Runs runs(*find_backend("flashattention"), model, options);
    Step step = make_step({.page_size = 2, .prefix_lens = {7, 4}, .swa = true}, width_of(model));
    const int32_t* row = step.batch().req_to_token.row(step.req_pool_indices[0]).data();
    // A page before the window is given back.
    for (const int32_t c : {2, 3}) step.full_to_swa[static_cast<size_t>(row[c])] = 0;
    EXPECT_EQ(runs.runner.step(step).to_string(), "ok");
    step.full_to_swa[static_cast<size_t>(row[5])] = 1;
    const Status status = runs.runner.step(step);
    if (outputs_alone) {
      EXPECT_EQ(status.to_string(), "ok") << "what is asked is wrong itself";
    } else {
      EXPECT_EQ(laws(status), Laws{"pool.window"});
      EXPECT_EQ(status.findings()[0].where.row, 0);
      EXPECT_EQ(status.findings()[0].where.col, 5);
    }
  }
}

/// Says that the n-th fill is broken, or loses launches: of captures, or of all.
struct BrokenTap : Tap {
  int fills = 0, broken_fill = 0;
  bool loses_all = false, loses_captured = false;
  Status filled(const ForwardBatch&, Meta&) override {
    Status status;
    if (++fills == broken_fill) status.add(make_finding("plan.work", at("x"), "a", "b"));
    return status;
  }
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool capturing) override {
    if (loses_all || (loses_captured && capturing)) all.clear(), act();
  }
};

Status run_broken(BrokenTap& tap, const std::function<void(RunnerOptions&)>& change = nullptr) {
  const ModelConfig model = model_of(2, {small_layer()});
  RunnerOptions options = options_of(model, {2});
  options.tap = &tap;
  if (change) change(options);
  Runs runs(*find_backend("flashattention"), model, options);
  return runs.step({.prefix_lens = {5, 4}});
}

TEST(RunnerMemory, AFillThatFailsEndsItsPhase) {
  const char* const kPhases[] = {"eager", "capture", "replay"};
  for (int n = 1; n <= 3; ++n) {
    for (const bool outputs_alone : {false, true}) {
      BrokenTap tap;
      tap.broken_fill = n;
      const Status status =
          run_broken(tap, [&](RunnerOptions& o) { o.outputs_alone = outputs_alone; });
      if (outputs_alone) {
        EXPECT_EQ(status.to_string(), "ok") << "it is no output";
        continue;
      }
      EXPECT_EQ(laws(status), Laws{"plan.work"}) << n;
      EXPECT_EQ(status.findings()[0].where.phase, kPhases[n - 1]);
    }
  }
}

TEST(RunnerMemory, OfLostLaunchesTheOutputsTell) {
  BrokenTap tap;
  tap.loses_all = true;
  Status status = run_broken(tap, [](RunnerOptions& o) { o.outputs_alone = true; });
  ASSERT_FALSE(status.ok());
  for (const Finding& f : status.findings()) {
    EXPECT_TRUE(f.id.starts_with("num.")) << f.to_string();
    EXPECT_EQ(f.where.phase, "eager");
  }
  BrokenTap captured;
  captured.loses_captured = true;
  for (const bool diagnose : {false, true}) {
    status = run_broken(captured, [&](RunnerOptions& o) {
      o.outputs_alone = true;
      o.diagnose = diagnose;
    });
    ASSERT_FALSE(status.ok());
    for (const Finding& f : status.findings()) {
      EXPECT_EQ(f.where.phase, "replay") << f.to_string();
      ASSERT_EQ(f.diagnosis.empty(), !diagnose);
      if (!diagnose) continue;
      EXPECT_EQ(f.diagnosis[0].mistake, "row.unwritten");
    }
  }
}

}  // namespace
}  // namespace shadowgraph::runner_memory_test
