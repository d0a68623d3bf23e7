// FlashInfer's whole steps, eager and replayed, against the oracle: however keys are cut, with
// windows, trees, encoders, and a prefill in two calls.
#include "backends/forward_world.h"
#include "backends/lists/flashinfer.h"
#include "check/runs.h"

namespace shadowgraph::flashinfer_forward_test {
namespace {

using enum ForwardMode;

struct Way {
  const char* name;
  bool ragged = false;
  SplitConfig split = {};
  int32_t num_qo_heads = 2;  // over one KV head
};

SplitConfig cut(int32_t blocks, int32_t fixed_size = 0, bool off = false) {
  SplitConfig s;
  s.num_sms = blocks, s.blocks_per_sm = 1, s.min_size = 1, s.fixed_size = fixed_size, s.off = off;
  return s;
}

class FlashInferSteps : public ::testing::TestWithParam<Way> {
 protected:
  static ModelConfig model(int32_t page_size, std::vector<LayerKind> layers,
                           DraftShape draft = {}) {
    ModelConfig m = model_of(page_size, std::move(layers), draft);
    for (LayerKind& kind : m.layers) kind.params.num_qo_heads = GetParam().num_qo_heads;
    m.ragged_prefill = GetParam().ragged;
    m.split = GetParam().split;
    return m;
  }
  static void expect_ok(const ModelConfig& m, const std::vector<StepShape>& steps,
                        const char* backend = "flashinfer") {
    Runs runs(m, *find_backend(backend));
    int64_t replays = 0;
    for (const StepShape& step : steps) {
      EXPECT_EQ(runs.step(step).to_string(), "ok") << name_of(step.mode);
      replays += is_captured(step.mode);
    }
    EXPECT_EQ(runs.runner.counts().steps, static_cast<int64_t>(steps.size()));
    EXPECT_EQ(runs.runner.counts().replays, replays);
  }
};

TEST_P(FlashInferSteps, OfDecodesFindNothing) {
  expect_ok(model(2, {small_layer(), small_layer(2)}),
            {{.prefix_lens = {4}}, {.prefix_lens = {5, 0}}, {.prefix_lens = {11, 7, 2}}});
}

/// fi.I-29.
TEST_P(FlashInferSteps, OfNobodyFindNothing) {
  expect_ok(model(2, {small_layer(), small_layer(2)}),
            {{.mode = kIdle}, {.prefix_lens = {4}}, {.mode = kIdle}});
}

TEST_P(FlashInferSteps, OfPrefillsFindNothing) {
  for (const int32_t window : {0, 1, 4})
    expect_ok(model(4, {small_layer(), small_layer(window)}),
              {{.mode = kExtend, .prefix_lens = {0, 5}, .q_lens = {6, 3}},
               {.mode = kExtend, .prefix_lens = {0, 0}, .q_lens = {8, 1}},
               {.mode = kMixed, .prefix_lens = {6, 8, 2}, .q_lens = {1, 4, 6}},
               {.mode = kSplitPrefill, .prefix_lens = {7}, .q_lens = {5}},
               {.mode = kDllmExtend, .prefix_lens = {4, 8}, .q_lens = {4, 4}}});
}

TEST_P(FlashInferSteps, OfAWindowsPoolFindNothing) {
  ModelConfig m = model(2, {small_layer(), small_layer(3)});
  m.swa_pool = true;
  expect_ok(m, {{.mode = kExtend, .prefix_lens = {0, 2}, .q_lens = {5, 2}},
                {.prefix_lens = {5, 4}},
                {.mode = kExtend, .prefix_lens = {6, 8}, .q_lens = {6, 3}}});
}

TEST_P(FlashInferSteps, OfVerifiedTreesFindNothing) {
  const DraftTree wide{{-1, 0, 0, 1}, {0, 1, 1, 2}}, deep{{-1, 0, 1, 1}, {0, 1, 2, 2}};
  for (const int32_t window : {0, 1, 3})
    expect_ok(model(2, {small_layer(), small_layer(window)}, {2, 2, 4}),
              {{.mode = kTargetVerify, .prefix_lens = {5, 0}, .trees = {wide, deep}},
               {.mode = kTargetVerify, .prefix_lens = {9, 3, 1}, .trees = {deep, wide, wide}}});
}

TEST_P(FlashInferSteps, OfVerifiedChainsAndDraftExtendsFindNothing) {
  expect_ok(model(2, {small_layer(), small_layer(1)}, {1, 3, 4}),
            {{.mode = kTargetVerify, .prefix_lens = {5, 0, 2}},
             {.mode = kDraftExtend, .prefix_lens = {5, 2, 7}, .q_lens = {1, 3, 4}},
             {.mode = kDraftExtendV2, .prefix_lens = {5, 2}, .q_lens = {4, 4}}});
}

TEST_P(FlashInferSteps, OfBranchesFindNothingAtAnyStep) {
  for (const int32_t page_size : {1, 4})
    for (const int32_t window : {1, 6})
      expect_ok(model(page_size, {small_layer(), small_layer(window)}, {2, 4, 5}),
                {{.mode = kDraftDecode, .prefix_lens = {5, 3}, .draft_step = 0},
                 {.mode = kDraftDecode, .prefix_lens = {1, 6}, .draft_step = 2}});
}

TEST_P(FlashInferSteps, OfAWholeDraftFindNothing) {
  for (const int32_t topk : {1, 2})
    expect_ok(model(4, {small_layer(), small_layer(2)}, {topk, 4, 5}),
              {{.mode = kDraftDecode, .prefix_lens = {5, 3}},
               {.mode = kDraftDecode, .prefix_lens = {1, 0, 9}}},
              "flashinfer_multi_step");
}

TEST_P(FlashInferSteps, InHalvesFindNothing) {
  expect_ok(model(1, {small_layer(), small_layer(2)}),
            {{.prefix_lens = {11, 7, 2}},
             {.mode = kExtend, .prefix_lens = {0, 5}, .q_lens = {6, 3}},
             {.mode = kMixed, .prefix_lens = {6, 8, 2}, .q_lens = {1, 4, 6}}},
            "flashinfer_two_batch");
}

TEST_P(FlashInferSteps, OfEncodersFindNothing) {
  ModelConfig m = model(1, {small_layer(), small_layer()});
  m.max_encoder_len = 5;
  m.layers[1].cross = true;
  m.layers[1].params.causal = false;
  expect_ok(m,
            {{.mode = kExtend, .prefix_lens = {0, 0}, .q_lens = {2, 4}, .encoder_lens = {5, 0}},
             {.prefix_lens = {2, 4}, .encoder_lens = {5, 3}},
             {.mode = kExtend, .prefix_lens = {3, 1}, .q_lens = {2, 4}, .encoder_lens = {2, 3}}});
}

TEST_P(FlashInferSteps, OfItemsFindNothing) {
  const ModelConfig m = model(2, {small_layer(), small_layer()});
  for (const char* backend : {"flashinfer", "flashinfer_two_batch"}) {
    Runs runs(m, *find_backend(backend));
    for (const bool all : {false, true}) {
      Step step = make_step(
          {.mode = kExtend, .page_size = 2, .prefix_lens = {0, 4, 1}, .q_lens = {13, 12, 2}},
          width_of(m));
      step.item_delimiters = {7, 10, 12, 3, 6}, step.item_indptr = {0, 3, 5, 5};
      // One that sees no key at all, and neighbours.
      if (all) step.item_delimiters = {0, 1, 12, 0, 11, 1}, step.item_indptr = {0, 3, 5, 6};
      EXPECT_EQ(runs.runner.step(step).to_string(), "ok") << backend;
    }
    EXPECT_EQ(runs.runner.counts().steps, 2) << backend;
  }
}

INSTANTIATE_TEST_SUITE_P(
    FlashInfer, FlashInferSteps,
    ::testing::Values(Way{"Paged"}, Way{"Ragged", true}, Way{"PagedCut", false, cut(16)},
                      Way{"RaggedCut", true, cut(16)}, Way{"PagedFixed", false, cut(16, 3)},
                      Way{"RaggedFixed", true, cut(16, 3)}, Way{"Off", true, cut(16, 0, true)},
                      Way{"TensorCores", true, cut(16), 4}),
    [](const auto& way) { return std::string(way.param.name); });

/// One key outweighs all others, and the sink is as heavy: half of its value is left.
TEST(FlashInferForward, ASinkIsCountedOnceHoweverKeysAreCut) {
  constexpr float kHeavy = 512;
  const FlashInfer backend;
  ModelConfig m = model(1);
  m.swa_pool = false, m.layers = {kind()};
  OwnedBatch b(kExtend, SeqLensKind::kPrefix, {5}, {3});
  b.set_pages(1, 16);
  for (const Way& way : {Way{"", false}, {"", true}, {"", false, cut(1, 2)}, {"", true, cut(1, 2)}})
    for (int32_t pick = 0; pick <= 5; ++pick) {
      m.ragged_prefill = way.ragged, m.split = way.split;
      World w(Limits::exact(b, m), false, backend);
      const Buffer sinks = w.bind_values("sinks", std::vector<float>(kHeads, kHeavy));
      w.meta.limits.model.layers[0].params.sinks = {World::row(sinks, 0), kHeads};
      const World::Tensors& t = w.layer(0);
      std::vector<float> q(static_cast<size_t>(t.q.numel())), k(static_cast<size_t>(t.k.numel())),
          v(k.size(), -1), new_k(static_cast<size_t>(t.new_k.numel())), new_v(new_k.size(), -1);
      for (size_t i = 0; i < q.size(); i += kDim) q[i] = kHeavy;
      const bool own = pick == 5;
      const auto first = own ? 0 : static_cast<size_t>(b.tokens[16 + pick]) * kDim;
      (own ? new_k : k)[first] = 1;
      std::fill_n((own ? new_v : v).begin() + static_cast<std::ptrdiff_t>(first), kDim, 6.0f);
      w.write(t.q, 0, q), w.write(t.k, 0, k), w.write(t.v, 0, v);
      w.write(t.new_k, 0, new_k), w.write(t.new_v, 0, new_v);
      ASSERT_EQ(w.fill(b).to_string(), "ok");
      backend.forward(w.stream(), w.meta, {w.ios(), {}, {}});
      w.stream().synchronize();
      ASSERT_EQ(w.device().take_findings().to_string(), "ok");
      for (int64_t query = 0; query < 3; ++query)
        ASSERT_EQ(w.got(0, query), std::vector<float>(kHeads * kDim, 3)) << pick;
    }
}

}  // namespace
}  // namespace shadowgraph::flashinfer_forward_test
