// TRTLLM-MHA: worked examples, key offsets and the window pool.
#include "backends/paged/trtllm_mha.h"

#include <gtest/gtest.h>

#include "attn/finding_ids.h"
#include "backends/paged_world.h"

namespace shadowgraph::trtllm_mha_test {
namespace {

using Mha = TrtllmMha;
const TrtllmMha kMha;

ModelConfig model() {
  ModelConfig m = model_of(16, 2, 96);
  m.num_steps = 3, m.num_draft_tokens = 4;
  return m;
}

TEST(TrtllmMha, DecodeCountsItsOwnToken) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDecode, {{26, 1}, {3, 1}}, 16);
  const Meta meta = w.exact(kMha, owned.view(), model());
  EXPECT_EQ(held(meta[Mha::kKvLens]), (Ints{27, 4}));
  EXPECT_EQ(held(meta[Mha::kCuSeqlensQ]), (Ints{0, 1, 2}));
  EXPECT_EQ(held(meta[Mha::kCuSeqlensK]), (Ints{0, 27, 31}));
  EXPECT_EQ(held_row(meta[Mha::kPageTable], 0, 2), (Ints{2, 4}));
  EXPECT_EQ(held_row(meta[Mha::kPageTable], 1, 1), (Ints{1}));
}

TEST(TrtllmMha, VerifyCountsTheDrafts) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kTargetVerify, {{3, 3}, {31, 3}}, 16);
  const Meta meta = w.exact(kMha, owned.view(), model());
  EXPECT_EQ(held(meta[Mha::kKvLens]), (Ints{6, 34}));
  EXPECT_EQ(held(meta[Mha::kCuSeqlensQ]), (Ints{0, 3, 6}));
  EXPECT_EQ(held(meta[Mha::kCuSeqlensK]), (Ints{0, 6, 40}));
}

TEST(TrtllmMha, ADraftStepCountsTheStepsBeforeIt) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftDecode, {{68, 1}, {32, 1}}, 16, 3);
  ForwardBatch batch = owned.view();
  for (const int32_t step : {0, 1}) {
    batch.spec.step = step;
    const Meta meta = w.exact(kMha, batch, model());
    EXPECT_EQ(held(meta[Mha::kKvLens]), (Ints{69 + step, 33 + step}));
    EXPECT_EQ(held(meta[Mha::kCuSeqlensK]), (Ints{0, 69 + step, 102 + 2 * step}));
    EXPECT_EQ(held<int64_t>(meta[Mha::kOutCacheLoc]),
              (std::vector<int64_t>{owned.slot(0, 68 + step), owned.slot(1, 32 + step)}));
  }
}

TEST(TrtllmMha, DraftExtendIsRaggedAndItsPaddingHasMoreQueriesThanKeys) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftExtend, {{1, 1}, {30, 4}, {20, 1}}, 16);
  Meta meta = w.bind(kMha, Limits::bucket(ForwardMode::kDraftExtend, 4, 4, model()));
  w.fill(kMha, owned.view(), meta);
  EXPECT_EQ(held(meta[Mha::kKvLens]), (Ints{2, 34, 21, 1}));
  EXPECT_EQ(held(meta[Mha::kCuSeqlensQ]), (Ints{0, 1, 5, 6, 10}));
  EXPECT_EQ(held(meta[Mha::kCuSeqlensK]), (Ints{0, 2, 36, 57, 58}));
}

/// fa.I-26.
TEST(TrtllmMha, WithoutAPrefixQueriesAndKeysAreCountedAlikeAndApart) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kExtend, {{0, 5}, {0, 2}}, 16);
  const Meta meta = w.exact(kMha, owned.view(), model());
  EXPECT_EQ(held(meta[Mha::kCuSeqlensQ]), (Ints{0, 5, 7}));
  EXPECT_EQ(held(meta[Mha::kCuSeqlensK]), (Ints{0, 5, 7}));
  EXPECT_NE(meta[Mha::kCuSeqlensK].data, meta[Mha::kCuSeqlensQ].data);
}

TEST(TrtllmMha, TheWindowPoolHasATableAndSlotsOfItsOwn) {
  PagedWorld w;
  PagedBatch owned(ForwardMode::kExtend, {{20, 3}, {0, 2}}, 16);
  owned.add_window_pool();
  ModelConfig m = model();
  m.swa_pool = true;
  m.layers[0].params.window_left = 8;
  const Meta meta = w.exact(kMha, owned.view(), m);
  const Ints full = slots_of(meta, Mha::kPageTable, 0, 23);
  const Ints swa = slots_of(meta, Mha::kSwaPageTable, 0, 23);
  EXPECT_EQ(full, slots_of(owned, 0, 23));
  for (size_t j = 0; j < full.size(); ++j) EXPECT_EQ(swa[j], owned.swa_slot(full[j]));
  const auto loc = held<int64_t>(meta[Mha::kOutCacheLoc]);
  const auto swa_loc = held<int64_t>(meta[Mha::kSwaOutCacheLoc]);
  ASSERT_EQ(swa_loc.size(), 5U);
  for (size_t t = 0; t < loc.size(); ++t)
    EXPECT_EQ(swa_loc[t], owned.swa_slot(static_cast<int32_t>(loc[t])));
}

TEST(TrtllmMha, AWindowLayerReadsAndStoresInTheWindowPool) {
  PagedWorld w;
  PagedBatch owned(ForwardMode::kDecode, {{20, 1}}, 16);
  owned.add_window_pool();
  ModelConfig m = model();
  m.swa_pool = true;
  m.layers.push_back(m.layers[0]);
  m.layers[0].params.window_left = 8;
  const Meta meta = w.exact(kMha, owned.view(), m);
  const Layer windowed(w, "windowed", m, 1, owned.pages());
  LayerIo io = windowed.io();
  w.forward(kMha, meta, {io});
  EXPECT_EQ(w.found(), "ok");
  Ints table = {static_cast<int32_t>(owned.swa_slot(owned.slot(0, 0)) / 16),
                static_cast<int32_t>(owned.swa_slot(owned.slot(0, 16)) / 16)};
  EXPECT_EQ(windowed.results(1), windowed.expected(table, 2, {21}, {0, 1}));
  const auto at = static_cast<size_t>(owned.swa_slot(owned.slot(0, 20))) * 2 * 16;
  EXPECT_EQ(held<float>(windowed.k_cache)[at], held<float>(windowed.k)[0]);
}

TEST(TrtllmMha, PaddingIsNotStoredInTheWindowPoolEither) {
  PagedWorld w;
  PagedBatch owned(ForwardMode::kDecode, {{20, 1}}, 16);
  owned.add_window_pool();
  ModelConfig m = model();
  m.swa_pool = true;
  Meta meta = w.bind(kMha, Limits::bucket(ForwardMode::kDecode, 3, 1, m));
  w.fill(kMha, owned.view(), meta);
  const auto loc = held<int64_t>(meta[Mha::kSwaOutCacheLoc]);
  EXPECT_EQ(loc, (std::vector<int64_t>{owned.swa_slot(owned.slot(0, 20)), 0, 0}));
}

TEST(TrtllmMha, AWindowPoolNeedsItsMap) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDecode, {{20, 1}}, 16);
  ModelConfig m = model();
  m.swa_pool = true;
  Meta meta = w.bind(kMha, Limits::exact(owned.view(), m));
  EXPECT_EQ(ids(kMha.fill(owned.view(), meta)), (Ids{"batch.field full_to_swa"}));
}

}  // namespace
}  // namespace shadowgraph::trtllm_mha_test
