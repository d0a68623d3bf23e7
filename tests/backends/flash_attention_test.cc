// FlashAttention's metadata, example by example.
#include "backends/paged/flash_attention.h"

#include "backends/step_fixture.h"
#include "fuzz/history/small_layer.h"

namespace shadowgraph::flash_attention_test {
namespace {

using Fa = FlashAttention;
using enum ForwardMode;
using enum SeqLensKind;

const Fa kFa;

ModelConfig model(int32_t page_size) {
  ModelConfig m;
  m.max_context_len = 64;
  m.page_size = page_size;
  return m;
}
TEST(FlashAttention, ADraftExtendSeesItsNewKeysWhateverSeqLensMean) {
  const OwnedBatch full(kDraftExtendV2, kFull, {10, 8}, {4, 4}),
      prefix(kDraftExtendV2, kPrefix, {6, 4}, {4, 4});
  for (const OwnedBatch* given : {&full, &prefix}) {
    OwnedBatch b(given->mode, given->seq_lens_kind, given->lens, given->news);
    b.set_pages(4, 16);
    BoundStep s(kFa, Limits::exact(b, model(4)));
    ASSERT_EQ(s.fill(b).to_string(), "ok");
    EXPECT_EQ(s.ints(Fa::kCacheSeqlens), (Ints{10, 8}));
    EXPECT_EQ(s.ints(Fa::kCuSeqlensQ), (Ints{0, 4, 8}));
    EXPECT_EQ(s.columns(Fa::kPageTable), 3);
    EXPECT_EQ(s.meta.scalars[Fa::kMaxSeqLenQ], 4);
    EXPECT_EQ(s.meta.scalars[Fa::kMaxSeqLenK], 10);
  }
}

/// fa.I-22.
TEST(FlashAttention, TheLongestRowIsTheMaximumOfSums) {
  OwnedBatch b(kDraftExtendV2, kFull, {101, 9}, {1, 7});
  b.set_pages(1, 128);
  BoundStep s(kFa, Limits::exact(b, model(1)));
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.meta.scalars[Fa::kMaxSeqLenK], 101);
  EXPECT_EQ(s.columns(Fa::kPageTable), 101);
}

TEST(FlashAttention, ABranchIsItsPagesFromThePrefixsPartialOneOn) {
  struct Want {
    Ints lens;
    std::vector<Ints> rows;
  };
  const Want wants[] = {{{2, 2}, {{13}, {16}}},
                        {{3, 3}, {{13, 14}, {16, 17}}},
                        {{4, 4}, {{13, 14}, {16, 17}}},
                        {{5, 5}, {{13, 14, 15}, {16, 17, 18}}}};
  for (int32_t step = 0; step < 4; ++step) {
    OwnedBatch b(kDraftDecode, kPrefix, {7});
    b.set_rows({{14, 15, 18, 19, 22, 23, 26}}, 24);
    b.set_loc({27, 28, 29, 30, 31, 33, 34, 35, 36, 37});
    b.spec = {.topk = 2, .num_steps = 5, .step = step, .custom_mask = {}};
    ModelConfig m = model(2);
    m.topk = 2, m.num_steps = 5;
    BoundStep s(kFa, Limits::exact(b, m));
    ASSERT_EQ(s.fill(b).to_string(), "ok");
    EXPECT_EQ(s.ints(Fa::kCacheSeqlens), Ints{6});
    EXPECT_EQ(s.ints(Fa::kCuSeqlensQ), (Ints{0, 2}));
    EXPECT_EQ(s.row(Fa::kPageTable, 0, 3), (Ints{7, 9, 11}));
    const Want& want = wants[step];
    EXPECT_EQ(s.ints(Fa::kExpandSeqlens), want.lens);
    EXPECT_EQ(s.ints(Fa::kExpandCuSeqlensQ), (Ints{0, 1, 2}));
    for (size_t k = 0; k < 2; ++k) {
      const auto count = static_cast<int64_t>(want.rows[k].size());
      EXPECT_LE(count, s.columns(Fa::kDraftTable));
      EXPECT_EQ(s.row(Fa::kDraftTable, static_cast<int64_t>(k), count), want.rows[k]) << step;
    }
    EXPECT_EQ(s.slots(Fa::kOutCacheLoc), (Longs{27 + step, 33 + step}));
  }
}

TEST(FlashAttention, ATokenOfATreeSeesItsAncestorsAndItself) {
  OwnedBatch b(kTargetVerify, kPrefix, {4, 2});
  b.set_rows({{4, 5, 6, 7, 8, 9, 10}, {28, 29, 30, 31, 32}}, 8);
  b.spec.num_draft_tokens = 3;
  b.set_trees({{{1, 0, 0}, {1, 1, 0}, {1, 0, 1}}, {{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}});
  ASSERT_EQ(b.mask.size(), 36u);
  ModelConfig m = model(2);
  m.topk = 2, m.num_draft_tokens = 3;
  m.layers = {small_layer(), small_layer(2)};
  BoundStep s(kFa, Limits::exact(b, m));
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.ints(Fa::kCacheSeqlens), (Ints{4, 2}));
  EXPECT_EQ(s.ints(Fa::kCuSeqlensQ), (Ints{0, 3, 6}));
  EXPECT_EQ(s.row(Fa::kPageTable, 0, 2), (Ints{2, 3}));
  EXPECT_EQ(s.row(Fa::kPageTable, 1, 1), (Ints{14}));
  EXPECT_EQ(s.ints(Fa::kExpandSeqlens), (Ints{1, 2, 2, 1, 2, 3}));
  EXPECT_EQ(s.row(Fa::kTreeTable, 1, 2), (Ints{8, 9}));
  EXPECT_EQ(s.row(Fa::kTreeTable, 2, 2), (Ints{8, 10}));
  EXPECT_EQ(s.row(Fa::kTreeTable, 5, 3), (Ints{30, 31, 32}));
  EXPECT_EQ(s.ints(Fa::kMergedSeqlens), (Ints{5, 6, 6, 3, 4, 5}));
  EXPECT_EQ(s.row(Fa::kMergedTable, 2, 6), (Ints{4, 5, 6, 7, 8, 10}));
  EXPECT_EQ(s.row(Fa::kMergedTable, 3, 3), (Ints{28, 29, 30}));
  EXPECT_EQ(s.slots(Fa::kOutCacheLoc), (Longs{8, 9, 10, 30, 31, 32}));
}

TEST(FlashAttention, EveryRequestHasItsOwnEncoderTokens) {
  OwnedBatch b(kDecode, kFull, {2, 2});
  b.set_rows({{10, 11, 12, 13, 14}, {20, 21, 22, 23, 24, 25, 26}}, 8);
  b.set_encoders({3, 5}, {10, 11, 12, 20, 21, 22, 23, 24});
  ModelConfig m = model(4);  // no encoder fills whole pages: slots
  m.max_encoder_len = 6;
  LayerKind cross = small_layer();
  cross.cross = true;
  m.layers = {small_layer(), cross};
  BoundStep s(kFa, Limits::bucket(kDecode, 3, 1, m));
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.ints(Fa::kEncoderSeqlens), (Ints{3, 5, 0}));
  EXPECT_EQ(s.meta.scalars[Fa::kEncoderMaxSeqLenK], 5);
  EXPECT_EQ(s.row(Fa::kEncoderTable, 0, 3), (Ints{10, 11, 12}));
  EXPECT_EQ(s.row(Fa::kEncoderTable, 1, 5), (Ints{20, 21, 22, 23, 24}));
  EXPECT_EQ(s.row(Fa::kPageTable, 0, 2), (Ints{13, 14}));
  EXPECT_EQ(s.row(Fa::kPageTable, 1, 2), (Ints{25, 26}));
  const Longs loc = s.slots(Fa::kEncoderOutCacheLoc);
  EXPECT_EQ(Longs(loc.begin(), loc.begin() + 10), (Longs{10, 11, 12, 20, 21, 22, 23, 24, 0, 0}));
}

TEST(FlashAttention, AChunkIsReadInPages) {
  OwnedBatch b(kExtend, kFull, {6, 17, 9}, {4, 10, 5});
  b.set_pages(2, 18);
  ModelConfig m = model(2);
  m.attention_chunk = 4;
  m.layers = {small_layer()};
  m.layers[0].local = true;
  BoundStep s(kFa, Limits::exact(b, m));
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  const Ints lens = s.ints(Fa::kLocalSeqlens), cu_q = s.ints(Fa::kLocalCuSeqlensQ);
  ASSERT_GE(lens.size(), 8u);
  EXPECT_EQ(Ints(lens.begin(), lens.begin() + 8), (Ints{4, 2, 4, 4, 4, 1, 4, 1}));
  EXPECT_EQ(Ints(cu_q.begin(), cu_q.begin() + 9), (Ints{0, 2, 4, 5, 9, 13, 14, 18, 19}));
  EXPECT_EQ(cu_q.back(), 19);
  EXPECT_EQ(s.meta.scalars[Fa::kLocalMaxQueryLen], 4);
  EXPECT_EQ(s.meta.scalars[Fa::kLocalMaxSeqLen], 4);
  const int32_t first_keys[] = {0, 4, 4, 8, 12, 16, 4, 8}, requests[] = {0, 0, 1, 1, 1, 1, 2, 2};
  for (size_t v = 0; v < 8; ++v) {
    const Ints row = s.row(Fa::kLocalTable, static_cast<int64_t>(v), (lens[v] + 1) / 2);
    for (size_t c = 0; c < row.size(); ++c) {
      const size_t token = static_cast<size_t>(first_keys[v]) + 2 * c;
      EXPECT_EQ(row[c], b.req_to_token.row(requests[v] + 1)[token] / 2) << v << " " << c;
    }
  }
}

/// fa.I-51; that pages divide a chunk: Limits.WhatABackendDoesNotServeIsRefusedWhole.
TEST(FlashAttention, AChunkIsNeverShrunkToTheLongestRow) {
  OwnedBatch b(kDecode, kFull, {5});
  b.set_pages(2, 8);
  ModelConfig m = model(2);
  m.attention_chunk = 8;
  m.layers = {small_layer()};
  m.layers[0].local = true;
  BoundStep s(kFa, Limits::exact(b, m));
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.ints(Fa::kLocalSeqlens), Ints{5});
  EXPECT_EQ(s.row(Fa::kLocalTable, 0, 3), s.row(Fa::kPageTable, 0, 3));
}

TEST(FlashAttention, SlotsAreTranslatedBeforeTheyBecomePages) {
  OwnedBatch b(kDecode, kFull, {5, 8});
  b.set_pages(4, 8);
  b.set_swa(6, 4);
  b.set_loc({12, 7});
  ModelConfig m = model(4);
  m.swa_pool = true;
  m.layers = {small_layer(3)};
  BoundStep s(kFa, Limits::bucket(kDecode, 3, 1, m));
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.row(Fa::kPageTable, 0, 2), (Ints{3, 1}));
  EXPECT_EQ(s.row(Fa::kSwaPageTable, 0, 2), (Ints{3, 5}));
  EXPECT_EQ(s.row(Fa::kSwaPageTable, 1, 2), (Ints{2, 4}));
  EXPECT_EQ(s.slots(Fa::kOutCacheLoc), (Longs{12, 7, 0}));
  EXPECT_EQ(s.slots(Fa::kSwaOutCacheLoc), (Longs{12, 23, 0}));
  b.swa.resize(12), b.full_to_swa = b.swa;
  EXPECT_NE(s.fill(b).to_string().find("table.page_id: req_to_token[0, 0]"), std::string::npos);
}

/// A decode of 250, 16 and 17 keys, and a row of padding: 16, 1, 2 and 1 blocks.
Ints schedule_of(const ModelConfig& m) {
  OwnedBatch b(kDecode, kFull, {250, 16, 17});
  b.set_pages(1, 250);
  BoundStep s(kFa, Limits::bucket(kDecode, 4, 1, m));
  EXPECT_EQ(s.fill(b).to_string(), "ok");
  return s.ints(Fa::kSchedulerMetadata);
}
ModelConfig scheduled_model(int32_t num_sms, int32_t qo_heads, int32_t kv_heads) {
  ModelConfig m = model(1);
  m.max_context_len = 250;
  m.layers = {small_layer()};
  m.layers[0].params.num_qo_heads = qo_heads, m.layers[0].params.num_kv_heads = kv_heads;
  m.split.num_sms = num_sms;
  return m;
}

/// fa.I-75: a function of the lengths, padding counted, and of what a graph keeps.
TEST(FlashAttention, ADecodesRowHasASplitForEachShareOfItsBlocks) {
  // Shares of ceil(1.1 * 20 heads / multiprocessors) blocks.
  EXPECT_EQ(schedule_of(scheduled_model(4, 2, 1)), (Ints{0, 3, 1, 1, 1}));     // 6
  EXPECT_EQ(schedule_of(scheduled_model(4, 2, 2)), (Ints{0, 2, 1, 1, 1}));     // 11
  EXPECT_EQ(schedule_of(scheduled_model(22, 2, 1)), (Ints{0, 8, 1, 2, 1}));    // 1
  EXPECT_EQ(schedule_of(scheduled_model(11, 2, 1)), (Ints{0, 8, 1, 1, 1}));    // 2
  EXPECT_EQ(schedule_of(scheduled_model(10, 2, 1)), (Ints{0, 6, 1, 1, 1}));    // 3
  EXPECT_EQ(schedule_of(scheduled_model(11, 128, 1)), (Ints{0, 8, 1, 1, 1}));  // one tile
  EXPECT_EQ(schedule_of(scheduled_model(11, 129, 1)), (Ints{0, 4, 1, 1, 1}));  // two: 4
}

TEST(FlashAttention, SplitsAreNoMoreThanTheModelsMost) {
  ModelConfig m = scheduled_model(132, 2, 1);
  EXPECT_EQ(schedule_of(m), (Ints{0, 8, 1, 2, 1}));
  m.split.max_splits = 3;
  EXPECT_EQ(schedule_of(m), (Ints{0, 3, 1, 2, 1}));
  m.split.off = true;
  EXPECT_EQ(schedule_of(m), (Ints{0, 1, 1, 1, 1}));
}

TEST(FlashAttention, ADecodeOfLayersOverAllKeysHasASchedule) {
  const auto has = [](ForwardMode mode, const ModelConfig& m) {
    return BoundStep(kFa, Limits::bucket(mode, 2, 1, m)).meta.has(Fa::kSchedulerMetadata);
  };
  ModelConfig m = scheduled_model(132, 2, 1);
  m.num_draft_tokens = 1, m.num_steps = 2;
  EXPECT_TRUE(has(kDecode, m) && has(kIdle, m));
  for (const ForwardMode mode : {kExtend, kTargetVerify, kDraftExtend, kDraftDecode})
    EXPECT_FALSE(has(mode, m)) << name_of(mode);
  m.max_encoder_len = 4, m.attention_chunk = 4;
  const auto of_layer = [&](auto change) {
    ModelConfig one = m;
    change(one.layers[0]);
    return has(kDecode, one);
  };
  EXPECT_FALSE(of_layer([](LayerKind& k) { k.params.window_left = 3; }));
  EXPECT_FALSE(of_layer([](LayerKind& k) { k.local = true; }));
  EXPECT_FALSE(of_layer([](LayerKind& k) { k.cross = true, k.params.causal = false; }));
  m.max_encoder_len = 0;
  EXPECT_FALSE(of_layer([](LayerKind& k) { k.mla = true; }));
}

TEST(FlashAttention, AScheduleIsOfTheFirstLayerThatFollowsIt) {
  ModelConfig m = scheduled_model(4, 2, 2);
  m.layers.insert(m.layers.begin(), scheduled_model(4, 2, 1).layers[0]);
  m.layers[0].params.window_left = 3;
  EXPECT_EQ(schedule_of(m), (Ints{0, 2, 1, 1, 1}));
}

}  // namespace
}  // namespace shadowgraph::flash_attention_test
