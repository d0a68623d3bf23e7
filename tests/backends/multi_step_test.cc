// MultiStep: every step of a draft bound, filled and launched as the step it is.
#include "backends/compose/multi_step.h"

#include <gtest/gtest.h>

#include "attn/finding_ids.h"
#include "backends/paged/trtllm_mha.h"
#include "backends/paged_world.h"

namespace shadowgraph::multi_step_test {
namespace {

using Mha = TrtllmMha;
const TrtllmMha kMha;
const MultiStep kSteps(kMha);

ModelConfig model(int32_t num_steps) {
  ModelConfig m = model_of(16, 2, 96);
  m.num_steps = num_steps, m.num_draft_tokens = num_steps + 1;
  return m;
}

TEST(MultiStep, StepsAreOneFewerThanDraftTokens) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftDecode, {{14, 1}, {3, 1}}, 16, 4);
  const Meta meta = w.exact(kSteps, owned.view(), model(4));
  ASSERT_EQ(meta.children.size(), 3U);
  for (int32_t s = 0; s < 3; ++s) {
    const Meta& step = meta.children[static_cast<size_t>(s)];
    EXPECT_EQ(held(step[Mha::kKvLens]), (Ints{15 + s, 4 + s}));
    EXPECT_EQ(slots_of(step, Mha::kPageTable, 0, 15 + s), slots_of(owned, 0, 15 + s));
    EXPECT_EQ(held<int64_t>(step[Mha::kOutCacheLoc]),
              (std::vector<int64_t>{owned.slot(0, 14 + s), owned.slot(1, 3 + s)}));
    EXPECT_EQ(step[Mha::kKvLens].name, "exact0/step" + std::to_string(s) + "/kv_lens");
  }
}

TEST(MultiStep, PaddingRowsCountTheStepsToo) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftDecode, {{14, 1}}, 16, 3);
  Meta meta = w.bind(kSteps, Limits::bucket(ForwardMode::kDraftDecode, 2, 1, model(3)));
  w.fill(kSteps, owned.view(), meta);
  EXPECT_EQ(held(meta.children[0][Mha::kKvLens]), (Ints{15, 2}));
  EXPECT_EQ(held(meta.children[1][Mha::kKvLens]), (Ints{16, 3}));
}

TEST(MultiStep, StepsFollowEachOtherAndEachSeesTheKeysOfThoseBefore) {
  PagedWorld w;
  const ModelConfig m = model(3);
  const PagedBatch owned(ForwardMode::kDraftDecode, {{14, 1}, {3, 1}}, 16, 3);
  const Meta meta = w.exact(kSteps, owned.view(), m);
  const Layer first(w, "first", m, 2, owned.pages()), second(w, "second", m, 2, owned.pages());
  // One layer whose cache both steps use.
  LayerIo io[2] = {first.io(), second.io()};
  io[1].cache = io[0].cache;
  w.forward(kSteps, meta, {io[0], io[1]});
  EXPECT_EQ(w.found(), "ok");
  Layer of_second = second;
  of_second.k_cache = first.k_cache, of_second.v_cache = first.v_cache;
  const Ints table = {owned.slot(0, 0) / 16, owned.slot(1, 0) / 16};
  EXPECT_EQ(first.results(2), first.expected(table, 1, {15, 4}, {0, 1, 2}));
  EXPECT_EQ(of_second.results(2), of_second.expected(table, 1, {16, 5}, {0, 1, 2}));
}

TEST(MultiStep, WhatHasNoStepsIsRefused) {
  PagedWorld w;
  Meta meta;
  EXPECT_EQ(ids(kSteps.bind(w.arena, Limits::bucket(ForwardMode::kDecode, 2, 1, model(1)), &meta)),
            (Ids{"backend.limits mode", "backend.limits num_steps"}));
  ModelConfig m = model(4);
  m.page_size = 8;
  Limits limits = Limits::bucket(ForwardMode::kDraftDecode, 2, 1, m);
  EXPECT_EQ(ids(kSteps.bind(w.arena, limits, &meta)), (Ids(3, "backend.limits page_size")));
  EXPECT_EQ(w.arena.used(), 0U);
}

TEST(MultiStep, WhereOneStepFindsNoMemoryNoneIsBound) {
  SimDevice device;
  Arena arena(device, 8192);  // enough for one step
  const Limits limits = Limits::bucket(ForwardMode::kDraftDecode, 64, 1, model(4));
  Meta meta;
  EXPECT_FALSE(kSteps.bind(arena, limits, &meta).ok());
  EXPECT_TRUE(meta.children.empty());
  EXPECT_EQ(arena.used(), 0U);
}

TEST(MultiStep, ABatchTooLongForTheLastStepWritesNothing) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftDecode, {{14, 1}}, 16, 3);
  Meta meta = w.bind(kSteps, Limits::bucket(ForwardMode::kDraftDecode, 1, 1, model(3)));
  w.fill(kSteps, owned.view(), meta);
  ForwardBatch longer = owned.view();
  const Ints lens = {static_cast<int32_t>(longer.req_to_token.width) - 1};  // room for one step
  longer.seq_lens = lens;
  EXPECT_EQ(ids(kSteps.fill(longer, meta)), (Ids{"table.row_width req_to_token"}));
  w.upload();
  EXPECT_EQ(held(meta.children[0][Mha::kKvLens]), (Ints{15}));
}

TEST(MultiStep, ABatchOfAnotherNumberOfStepsIsRefused) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftDecode, {{14, 1}}, 16, 4);
  Meta meta = w.bind(kSteps, Limits::bucket(ForwardMode::kDraftDecode, 2, 1, model(3)));
  EXPECT_EQ(ids(kSteps.fill(owned.view(), meta)), (Ids{"batch.mode spec.num_steps"}));
}

TEST(MultiStep, ServesDraftDecodeAloneAndWhatItsChildDoes) {
  EXPECT_EQ(kSteps.info().name, "trtllm_mha_multi_step");
  ASSERT_EQ(kSteps.info().modes.size(), 1U);
  EXPECT_EQ(kSteps.info().modes[0], ForwardMode::kDraftDecode);
  EXPECT_EQ(kSteps.info().page_sizes.data(), kMha.info().page_sizes.data());
}

}  // namespace
}  // namespace shadowgraph::multi_step_test
