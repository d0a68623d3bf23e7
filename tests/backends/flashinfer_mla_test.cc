// FlashInfer's MLA: lists of slots, and whole steps over latents against the oracle.
#include "backends/lists/flashinfer_mla.h"

#include <gtest/gtest.h>

#include "backends/step_fixture.h"
#include "check/runs.h"

namespace shadowgraph::flashinfer_mla_test {
namespace {

using enum ForwardMode;
using enum SeqLensKind;
using Mla = FlashInferMla;

const FlashInferMla kMla;

TEST(FlashInferMla, ListsEverySlotWhateverThePageSize) {
  const ModelConfig m = model_of(4, {latent_layer()});
  OwnedBatch b(kDecode, kFull, {5, 2});
  b.set_rows({{4, 5, 6, 7, 12}, {8, 9}}, 5);
  BoundStep s(kMla, Limits::bucket(kDecode, 3, 1, m));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.ints(Mla::kKvIndptr), (Ints{0, 5, 7, 8}));
  Ints list = s.ints(Mla::kKvIndices);
  list.resize(8);
  EXPECT_EQ(list, (Ints{4, 5, 6, 7, 12, 8, 9, 0}));
  EXPECT_EQ(s.ints(Mla::kKvLens), (Ints{5, 2, 1}));
  EXPECT_EQ(s.ints(Mla::kQoIndptr), (Ints{0, 1, 2, 3}));
}

TEST(FlashInferMla, AVerifiedChainAndADraftExtendSeeTheirOwnTokens) {
  const ModelConfig m = model_of(1, {latent_layer()}, {1, 2, 3});
  OwnedBatch verify(kTargetVerify, kPrefix, {2}), extend(kDraftExtendV2, kFull, {5}, {3});
  verify.spec.num_draft_tokens = 3;
  for (OwnedBatch* b : {&verify, &extend}) {
    b->set_rows({{4, 5, 6, 7, 12}}, 5);
    BoundStep s(kMla, Limits::exact(*b, m));
    ASSERT_TRUE(s.fill(*b).ok());
    EXPECT_EQ(s.ints(Mla::kKvIndices).front(), 4);
    EXPECT_EQ(s.ints(Mla::kKvLens), Ints{5});
    EXPECT_EQ(s.ints(Mla::kQoIndptr), (Ints{0, 3}));
  }
}

TEST(FlashInferMla, StepsFindNothing) {
  Runs runs(model_of(2, {latent_layer()}, {1, 3, 4}), kMla);
  for (const StepShape& step : {StepShape{.prefix_lens = {5, 0, 9}},
                                {.mode = kExtend, .prefix_lens = {0, 5}, .q_lens = {6, 3}},
                                {.mode = kMixed, .prefix_lens = {6, 8}, .q_lens = {1, 4}},
                                {.mode = kTargetVerify, .prefix_lens = {5, 0}},
                                {.mode = kDraftExtend, .prefix_lens = {5, 2}, .q_lens = {1, 3}},
                                {.mode = kDraftExtendV2, .prefix_lens = {5, 2}, .q_lens = {4, 4}},
                                {.mode = kDraftDecode, .prefix_lens = {5, 2}, .draft_step = 1}})
    EXPECT_EQ(runs.step(step).to_string(), "ok") << name_of(step.mode);
  EXPECT_EQ(runs.runner.counts().replays, 5);
}

TEST(FlashInferMla, WhatItHasNoListForIsRefusedAtOnce) {
  SimDevice device;
  Arena arena(device, 1 << 20);
  Meta meta;
  ModelConfig m = model_of(1, {latent_layer(), latent_layer()});
  m.layers[0].params.window_left = 3, m.layers[1].params.num_kv_heads = 2;
  m.dcp_size = 2, m.topk = 2;
  const Status status = kMla.bind(arena, Limits::bucket(kDecode, 2, 1, m), &meta);
  EXPECT_EQ(status.findings().size(), 4u) << status.to_string();
}

}  // namespace
}  // namespace shadowgraph::flashinfer_mla_test
