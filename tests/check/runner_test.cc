// Runner finds nothing in steps made by hand.
#include "check/runner.h"

#include <gtest/gtest.h>

#include "check/runs.h"

namespace shadowgraph::runner_test {
namespace {

/// fa.I-62, fa.I-98: every bucket is captured, and they replay by turns.
TEST(Runner, DecodesFindNothingInAnyBucket) {
  Runs runs(model_of(2, {small_layer(), small_layer(2)}));
  for (const Ints& prefix : {Ints{4}, {5, 0}, {1, 7, 2}, {6}, {0, 0, 0}})
    EXPECT_EQ(runs.step({.prefix_lens = prefix}).to_string(), "ok");
  EXPECT_EQ(runs.runner.counts().steps, 5);
  EXPECT_EQ(runs.runner.counts().rows, 10);
  EXPECT_EQ(runs.runner.counts().replays, 5);
  EXPECT_EQ(runs.runner.counts().captures, 3);  // all buckets, once
}

/// Buckets and modes replay by turns, each in what the other has left.
TEST(Runner, GraphsThatShareTheirBuffersFindNothingByTurns) {
  for (const char* backend : {"flashattention", "triton", "flashinfer", "trtllm_mha"}) {
    const int32_t page_size = std::string_view(backend) == "trtllm_mha" ? 16 : 2;
    Runs runs(model_of(page_size, {small_layer()}, {1, 3, 4}), *find_backend(backend));
    for (const Ints& prefix : {Ints{4, 7, 1}, {5}, {6, 2}, {3, 0, 1}, {8, 2}}) {
      for (const auto mode : {ForwardMode::kDecode, ForwardMode::kTargetVerify})
        EXPECT_EQ(runs.step({.mode = mode, .prefix_lens = prefix}).to_string(), "ok") << backend;
    }
    EXPECT_EQ(runs.runner.counts().replays, 10) << backend;
    EXPECT_EQ(runs.runner.counts().captures, 6) << backend;
  }
}

/// The tap keeps metadata under keys that are changed so.
template <class Change>
Laws laws_of_keys(Change change) {
  struct Keys final : Tap {
    explicit Keys(Change c) : change(c) {}
    void metadata_key(GraphKey& key, bool capturing) override { change(key, capturing); }
    Change change;
  } tap(change);
  const ModelConfig model = model_of(2, {small_layer()}, {1, 3, 4});
  RunnerOptions options = options_of(model, {1, 2, 4});
  options.tap = &tap;
  Runs runs(*find_backend("flashattention"), model, options);
  Status found;
  for (const auto mode : {ForwardMode::kDecode, ForwardMode::kTargetVerify, ForwardMode::kDecode})
    if (found.ok()) found = runs.step({.mode = mode, .prefix_lens = {5, 3}});
  return laws(found);
}

/// fa.I-62, fi.I-87: a replay without metadata of its own is found, and does not run.
TEST(Runner, AReplayFillsTheMetadataOfItsGraph) {
  EXPECT_EQ(laws_of_keys([](GraphKey&, bool) {}), Laws{});
  EXPECT_EQ(laws_of_keys([](GraphKey& key, bool capturing) {
              if (capturing) key.rows = -1;
            }),
            Laws{"graph.metadata"});
  EXPECT_EQ(laws_of_keys([](GraphKey& key, bool capturing) {
              if (!capturing) key.rows = 4;
            }),
            Laws{"graph.metadata"});
  EXPECT_EQ(
      laws_of_keys([](GraphKey& key, bool) { key.mode = ForwardMode::kDecode, key.q_len = 1; }),
      Laws{"graph.metadata"});
}

TEST(Runner, ABatchOfMoreThanTheLargestBucketRunsEagerlyOnly) {
  const ModelConfig model = model_of(1, {small_layer()});
  Runs runs(*find_backend("flashattention"), model, options_of(model, {1, 2}));
  EXPECT_EQ(runs.step({.prefix_lens = {3, 1, 2}}).to_string(), "ok");
  EXPECT_EQ(runs.runner.counts().steps, 1);
  EXPECT_EQ(runs.runner.counts().replays, 0);
}

TEST(Runner, ExtendsFindNothing) {
  for (const int32_t page_size : {1, 4}) {
    Runs runs(model_of(page_size, {small_layer(), small_layer(1)}));
    EXPECT_EQ(runs.step({.mode = ForwardMode::kExtend, .prefix_lens = {0, 5}, .q_lens = {6, 3}})
                  .to_string(),
              "ok");
    EXPECT_EQ(runs.step({.mode = ForwardMode::kMixed, .prefix_lens = {6, 8}, .q_lens = {1, 4}})
                  .to_string(),
              "ok");
    EXPECT_EQ(runs.runner.counts().replays, 0);
  }
}

TEST(Runner, VerifiedTreesFindNothing) {
  Runs runs(model_of(2, {small_layer(), small_layer(2)}, {2, 2, 4}));
  const DraftTree wide{{-1, 0, 0, 1}, {0, 1, 1, 2}}, deep{{-1, 0, 1, 1}, {0, 1, 2, 2}};
  EXPECT_EQ(
      runs.step({.mode = ForwardMode::kTargetVerify, .prefix_lens = {5, 0}, .trees = {wide, deep}})
          .to_string(),
      "ok");
  EXPECT_EQ(runs.runner.counts().replays, 1);
}

TEST(Runner, BranchesOfADraftFindNothingAtAnyStep) {
  // With pages of 4 tokens every branch has a copy of the prefix's last page.
  for (const int32_t page_size : {1, 4}) {
    Runs runs(model_of(page_size, {small_layer(), small_layer(2)}, {2, 3, 4}));
    for (const int32_t step : {0, 1})
      EXPECT_EQ(
          runs.step({.mode = ForwardMode::kDraftDecode, .prefix_lens = {5, 3}, .draft_step = step})
              .to_string(),
          "ok");
    EXPECT_EQ(runs.runner.counts().replays, 2);
  }
}

TEST(Runner, AWholeDraftFindsNothingAndBeginsWithItsFirstStep) {
  for (const int32_t topk : {1, 2}) {
    for (const bool swa_pool : {false, true}) {
      ModelConfig model = model_of(4, {small_layer(), small_layer(2)}, {topk, 4, 5});
      model.swa_pool = swa_pool;
      Runs runs(model, *find_backend("flashattention_multi_step"));
      for (const Ints& prefix : {Ints{5, 3}, {6}, {1, 0, 9}})
        EXPECT_EQ(runs.step({.mode = ForwardMode::kDraftDecode, .prefix_lens = prefix}).to_string(),
                  "ok");
      EXPECT_EQ(runs.runner.counts().replays, 3);
      EXPECT_EQ(runs.runner.counts().captures, 3);
      EXPECT_EQ(runs.step({.mode = ForwardMode::kDraftDecode, .prefix_lens = {5}, .draft_step = 1})
                    .to_string(),
                "ok");
      EXPECT_EQ(runs.runner.counts().refused, 1);
      EXPECT_EQ(runs.runner.counts().steps, 3);
    }
  }
}

TEST(Runner, ACopyIsMadeInTheWindowPoolToo) {
  ModelConfig model = model_of(4, {small_layer(), small_layer(6)}, {2, 3, 4});
  model.swa_pool = true;
  Runs runs(model);
  EXPECT_EQ(runs.step({.mode = ForwardMode::kDraftDecode, .prefix_lens = {5, 3}}).to_string(),
            "ok");
}

TEST(Runner, DraftExtendsFindNothing) {
  for (const ForwardMode mode : {ForwardMode::kDraftExtend, ForwardMode::kDraftExtendV2}) {
    Runs runs(model_of(2, {small_layer()}, {1, 3, 4}));
    EXPECT_EQ(runs.step({.mode = mode, .prefix_lens = {5, 2}, .q_lens = {1, 3}}).to_string(), "ok");
    EXPECT_EQ(runs.runner.counts().replays, 1);
  }
}

TEST(Runner, EncodersFindNothing) {
  ModelConfig model = model_of(1, {small_layer(), small_layer()});
  model.max_encoder_len = 5;
  model.layers[1].cross = true;
  model.layers[1].params.causal = false;
  Runs runs(model);
  EXPECT_EQ(runs.step({.mode = ForwardMode::kExtend,
                       .prefix_lens = {0, 0},
                       .q_lens = {2, 4},
                       .encoder_lens = {5, 3}})
                .to_string(),
            "ok");
  EXPECT_EQ(runs.step({.prefix_lens = {2, 4}, .encoder_lens = {5, 3}}).to_string(), "ok");
}

TEST(Runner, AWindowPoolFindsNothing) {
  ModelConfig model = model_of(2, {small_layer(), small_layer(3)});
  model.swa_pool = true;
  Runs runs(model);
  EXPECT_EQ(runs.step({.mode = ForwardMode::kExtend, .prefix_lens = {0, 2}, .q_lens = {5, 2}})
                .to_string(),
            "ok");
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
}

TEST(Runner, LatentPoolsFindNothing) {
  Runs runs(model_of(2, {latent_layer()}));
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
  EXPECT_EQ(runs.step({.mode = ForwardMode::kExtend, .prefix_lens = {0, 6}, .q_lens = {5, 2}})
                .to_string(),
            "ok");
}

TEST(Runner, WhatIsPrebuiltIsReadByTheStepsAfterIt) {
  ModelConfig model = model_of(2, {small_layer(), small_layer(3)});
  for (const bool swa_pool : {false, true}) {
    model.swa_pool = swa_pool;
    Runs runs(model);
    EXPECT_EQ(runs.step({.mode = ForwardMode::kPrebuilt, .prefix_lens = {0, 2}, .q_lens = {5, 2}})
                  .to_string(),
              "ok");
    EXPECT_EQ(runs.runner.counts().replays, 0);
    EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
    EXPECT_EQ(runs.runner.counts().steps, 2);
    EXPECT_EQ(runs.runner.counts().rows, 4);
  }
}

TEST(Runner, SplitPrefillsFindNothing) {
  Runs runs(model_of(2, {small_layer(), small_layer(1)}));
  EXPECT_EQ(runs.step({.mode = ForwardMode::kSplitPrefill, .prefix_lens = {0, 5}, .q_lens = {6, 3}})
                .to_string(),
            "ok");
  EXPECT_EQ(runs.step({.prefix_lens = {6, 8}}).to_string(), "ok");
}

TEST(Runner, APrefixInChunksFindsNothing) {
  // Chunks of one token per request; of some; of all keys at once.
  for (const int32_t tokens : {1, 4, 7, 16, 200}) {
    ModelConfig model = model_of(2, {latent_layer(), small_layer(2), latent_layer()});
    model.layers.back().params.num_qo_heads = 3;
    model.layers.back().params.head_dim_qk = 8;
    model.layers.back().params.head_dim_vo = 2;
    model.prefix_chunk_tokens = tokens;
    for (const char* name : {"flashattention", "flashattention_two_batch"}) {
      Runs runs(model, *find_backend(name));
      for (const ForwardMode mode :
           {ForwardMode::kExtend, ForwardMode::kMixed, ForwardMode::kSplitPrefill})
        EXPECT_EQ(
            runs.step({.mode = mode, .prefix_lens = {9, 0, 4}, .q_lens = {2, 5, 1}}).to_string(),
            "ok")
            << name << " " << tokens;
    }
  }
}

TEST(Runner, AnotherHistoryBeginsInTheSameMemory) {
  Runs runs(model_of(2, {small_layer()}));
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
  runs.runner.begin_history(1);
  // The pages of the first request are the second's now.
  EXPECT_EQ(runs.step({.order = PageOrder::kReversed, .prefix_lens = {5, 4}}).to_string(), "ok");
}

/// The outputs that the last of these histories, of one step each, leaves.
std::vector<float> outputs_of(const Backend& backend, const ModelConfig& model,
                              const StepShape& shape, const std::vector<uint64_t>& histories) {
  std::vector<float> outputs;
  RunnerOptions options = options_of(model, {4});
  options.outputs = [&](std::span<const LayerIo> layers) {
    const auto* out = reinterpret_cast<const float*>(layers[0].out.data);
    outputs.assign(out, out + layers[0].out.numel());
  };
  Runs runs(backend, model, options);
  for (const uint64_t history : histories) {
    runs.runner.begin_history(history);
    EXPECT_EQ(runs.step(shape).to_string(), "ok") << backend.info().name;
  }
  return outputs;
}

TEST(Runner, WhatAHistoryDrawsDependsOnItsNumberAlone) {
  ModelConfig sparse = model_of(64, {small_sparse_layer(3, false)});
  sparse.max_context_len = 128;
  const StepShape extend{.mode = ForwardMode::kExtend, .prefix_lens = {6, 0}, .q_lens = {2, 5}};
  StepShape begin = extend;
  begin.prefix_lens = {0, 0}, begin.states = true;
  const auto check = [](const char* name, const ModelConfig& model, const StepShape& shape) {
    const Backend& backend = *find_backend(name);
    const std::vector<float> alone = outputs_of(backend, model, shape, {5});
    EXPECT_EQ(outputs_of(backend, model, shape, {3, 5}), alone) << name;
    EXPECT_NE(outputs_of(backend, model, shape, {3}), alone) << name;
  };
  check("flashattention", model_of(2, {small_layer()}), extend);
  check("gdn", model_of(1, {recurrent_layer(RecurrentFamily::kGdn)}), begin);
  check("dsa", sparse, extend);
  check("deepseek_v4", model_of(4, {small_v4_layer(4)}), extend);
}

TEST(Runner, ABatchThatIsNoneIsRefused) {
  Runs runs(model_of(2, {small_layer()}));
  Step step = make_step({.page_size = 2, .prefix_lens = {5, 4}}, kContext);
  step.req_pool_indices[1] = 99;
  const Status status = runs.runner.step(step);
  EXPECT_EQ(laws(status), Laws{"table.pool_row"});
  EXPECT_EQ(status.findings()[0].where.phase, "batch");
  EXPECT_EQ(runs.runner.counts().steps, 0);
}

TEST(Runner, AStepThatABackendDoesNotServeIsCountedAndNoFinding) {
  Runs runs(model_of(2, {small_layer()}), *find_backend("flashmla"));
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
  EXPECT_EQ(runs.runner.counts().refused, 1);
  EXPECT_EQ(runs.runner.counts().steps, 0);
}

}  // namespace
}  // namespace shadowgraph::runner_test
