// Which limits and batches a backend over tables takes, and what padding rows are.
#include "backends/fill/rows.h"

#include "attn/finding_ids.h"
#include "backends/fill/longest_query.h"
#include "backends/paged/flash_attention.h"
#include "backends/step_fixture.h"

namespace shadowgraph::rows_test {
namespace {

using Fa = FlashAttention;
using enum ForwardMode;
using enum SeqLensKind;

const Fa kFa;

ModelConfig model() {
  ModelConfig m;
  m.max_context_len = 16;
  m.page_size = 4;
  return m;
}

/// fi.I-14.
TEST(Limits, OfABatchAreExactlyWhatItNeeds) {
  OwnedBatch b(kExtend, kFull, {9, 12, 3}, {2, 5, 3});
  const Limits extend = Limits::exact(b, model());
  EXPECT_EQ(extend.mode, kExtend);
  EXPECT_EQ(extend.rows, 3);
  EXPECT_EQ(extend.tokens, 10);
  EXPECT_EQ(extend.max_q_len, 5);
  EXPECT_EQ(extend.max_kv_len, 12);
  EXPECT_EQ(extend.sum_kv_lens, 24);
  OwnedBatch d(kDraftDecode, kPrefix, {7, 9});
  d.spec.topk = 3, d.spec.num_steps = 4, d.spec.step = 2;
  const Limits draft = Limits::exact(d, model());
  EXPECT_EQ(draft.tokens, 6);
  EXPECT_EQ(draft.max_q_len, 1);
  EXPECT_EQ(draft.max_kv_len, 12);
  EXPECT_EQ(draft.step, 2);
}

TEST(LongestQuery, IsOfTheRequestWithMostNewTokens) {
  EXPECT_EQ(longest_query(OwnedBatch(kExtend, kFull, {9, 12, 3}, {2, 5, 3})), 5);
  EXPECT_EQ(longest_query(OwnedBatch(kDecode, kFull, {9, 12})), 1);
  EXPECT_EQ(longest_query(ForwardBatch{}), 0);
}

TEST(Limits, OfABucketHoldTheLongestContextAndItsDrafts) {
  ModelConfig m = model();
  m.topk = 2, m.num_steps = 3, m.num_draft_tokens = 5;
  const Limits verify = Limits::bucket(kTargetVerify, 4, 5, m);
  EXPECT_EQ(verify.tokens, 20);
  EXPECT_EQ(verify.max_kv_len, 21);
  EXPECT_EQ(Limits::bucket(kDraftDecode, 4, 1, m).tokens, 8);
}

TEST(Limits, WhatABackendDoesNotServeIsRefusedWhole) {
  Limits limits = Limits::bucket(kPrebuilt, 2, 1, model());
  limits.model.page_size = 3, limits.model.seq_len_fill = 0, limits.rows = -1;
  LayerKind local, cross;
  local.local = true, cross.cross = true;
  limits.model.layers = {LayerKind{}, local, cross};
  EXPECT_EQ(ids(serves(kFa.info(), limits)),
            (Ids{"backend.limits mode", "backend.limits page_size", "backend.limits rows",
                 "backend.limits seq_len_fill", "backend.limits attention_chunk",
                 "backend.limits max_encoder_len"}));
  limits = Limits::bucket(kDecode, 2, 1, model());
  limits.model.layers = {local}, limits.model.attention_chunk = 6;
  EXPECT_EQ(ids(serves(kFa.info(), limits)), Ids{"backend.limits attention_chunk"});
  limits = Limits::bucket(kTargetVerify, 2, 3, model());
  limits.model.topk = 2, limits.tokens = 5;
  EXPECT_EQ(ids(serves(kFa.info(), limits)), Ids{"backend.limits tokens"});
  BackendInfo chains = kFa.info();
  chains.tree = false;
  limits.tokens = 6;
  EXPECT_EQ(ids(serves(chains, limits)), Ids{"backend.limits topk"});
  limits = Limits::bucket(kDecode, 2, 2, model());
  EXPECT_EQ(ids(serves(kFa.info(), limits)),
            (Ids{"backend.limits tokens", "backend.limits max_q_len"}));
  limits.mode = ForwardMode::kIdle, limits.max_q_len = 0;
  EXPECT_EQ(ids(serves(kFa.info(), limits)),
            (Ids{"backend.limits tokens", "backend.limits max_q_len"}));
}

Status fill(const ForwardBatch& batch, const Limits& limits) {
  BoundStep s(kFa, limits);
  return s.refill(batch);
}

TEST(Fits, ABatchIsWithinItsBucket) {
  const Limits limits = Limits::bucket(kExtend, 2, 3, model());
  OwnedBatch b(kExtend, kFull, {16, 3}, {3, 3});
  b.set_pages(4, 24);
  EXPECT_TRUE(fill(b, limits).ok());
  OwnedBatch more(kExtend, kFull, {1, 1, 1}, {1, 1, 1});
  more.set_pages(4, 24);
  EXPECT_EQ(ids(fill(more, limits)), Ids{"batch.capacity seq_lens"});
  OwnedBatch longer(kExtend, kFull, {17, 4}, {1, 4});
  longer.set_pages(4, 24);
  EXPECT_EQ(ids(fill(longer, limits)),
            (Ids{"batch.capacity seq_lens", "batch.capacity extend_lens"}));
  Limits few = limits;
  few.tokens = 5;
  EXPECT_EQ(ids(fill(b, few)), Ids{"batch.capacity extend_lens"});
}

TEST(Fits, PaddingIsWithinTheBucketToo) {
  ModelConfig m = model();
  m.seq_len_fill = 17;
  OwnedBatch b(kDecode, kFull, {3});
  b.set_pages(4, 24);
  EXPECT_EQ(ids(fill(b, Limits::bucket(kDecode, 2, 1, m))), Ids{"batch.capacity seq_len_fill"});
  EXPECT_TRUE(fill(b, Limits::bucket(kDecode, 1, 1, m)).ok());
}

TEST(Fits, ABatchIsOfTheModeAndTheStepThatWereBound) {
  ModelConfig m = model();
  m.topk = 2, m.num_steps = 3, m.num_draft_tokens = 3;
  OwnedBatch b(kDraftDecode, kPrefix, {5});
  b.spec.topk = 2, b.spec.num_steps = 3, b.spec.step = 1;
  b.set_pages(4, 24);
  b.set_loc({9, 10, 11, 17, 18, 19});
  Limits limits = Limits::bucket(kDraftDecode, 2, 1, m);
  EXPECT_EQ(ids(fill(b, limits)), Ids{"batch.mode spec.step"});
  limits.step = 1;
  EXPECT_TRUE(fill(b, limits).ok());
  EXPECT_EQ(ids(fill(b, Limits::bucket(kDecode, 2, 1, m))), Ids{"batch.mode mode"});
  m.topk = 3;
  limits = Limits::bucket(kDraftDecode, 2, 1, m);
  EXPECT_EQ(ids(fill(b, limits)), (Ids{"batch.mode spec.topk", "batch.mode spec.step"}));
  m.topk = 2;
  OwnedBatch ragged(kTargetVerify, kPrefix, {2, 2}, {3, 2});
  ragged.spec.num_draft_tokens = 3;
  ragged.set_pages(4, 24);
  ragged.set_mask(std::vector<uint8_t>(3 * 5 + 2 * 4, 1));
  EXPECT_EQ(ids(fill(ragged, Limits::bucket(kTargetVerify, 2, 3, m))),
            Ids{"batch.mode extend_lens"});
  const OwnedBatch idle(kIdle, kFull, {});
  EXPECT_TRUE(fill(idle, Limits::bucket(kDecode, 2, 1, m)).ok());
}

TEST(Fits, ABatchHasTheFieldsOfItsMode) {
  ModelConfig m = model();
  m.topk = 2, m.num_steps = 3, m.num_draft_tokens = 3, m.swa_pool = true;
  OwnedBatch draft(kDraftDecode, kPrefix, {5}), verify(kTargetVerify, kPrefix, {5});
  draft.spec.topk = 2, draft.spec.num_steps = 3, verify.spec.num_draft_tokens = 3;
  EXPECT_EQ(
      ids(fill(draft, Limits::bucket(kDraftDecode, 2, 1, m))),
      (Ids{"batch.field req_to_token", "batch.field full_to_swa", "batch.field out_cache_loc"}));
  EXPECT_EQ(
      ids(fill(verify, Limits::bucket(kTargetVerify, 2, 3, m))),
      (Ids{"batch.field req_to_token", "batch.field full_to_swa", "batch.field custom_mask"}));
}

TEST(Fits, AnEncodersTokensAreWithinTheBucket) {
  ModelConfig m = model();
  m.max_encoder_len = 3;
  OwnedBatch b(kDecode, kFull, {2, 2});
  b.set_pages(1, 24);
  b.set_encoders({3, 4}, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(ids(fill(b, Limits::bucket(kDecode, 2, 1, m))),
            (Ids{"batch.capacity encoder_lens", "batch.capacity encoder_out_cache_loc"}));
}

TEST(Fits, EverySlotThatIsTranslatedHasAnEntry) {
  ModelConfig m = model();
  m.swa_pool = true;
  OwnedBatch b(kDecode, kFull, {5});
  b.set_rows({{8, 9, 10, 11, 12, 9999}}, 6);
  b.set_swa(4, 4);
  b.set_loc({12});
  const Limits limits = Limits::bucket(kDecode, 1, 1, m);
  EXPECT_TRUE(fill(b, limits).ok());
  b.tokens[6 + 4] = 16, b.set_loc({16});
  const Status status = fill(b, limits);
  EXPECT_EQ(ids(status), (Ids{"table.page_id req_to_token", "slot.range out_cache_loc"}));
  EXPECT_EQ(status.findings()[0].where.col, 4);
}

/// fa.I-58.
TEST(Filler, WhatARowDoesNotNeedIsForNobody) {
  BoundStep s(kFa, Limits::bucket(kDecode, 2, 1, model()));
  OwnedBatch longer(kDecode, kFull, {16, 16}), shorter(kDecode, kFull, {5, 9});
  longer.set_pages(4, 24), shorter.set_pages(4, 24);
  const auto read = [&](int64_t row, int64_t count) {
    const Buffer& table = s.meta[Fa::kPageTable];
    Ints values(static_cast<size_t>(count));
    s.stream().copy(values.data(), table.view().at(row, 0), values.size() * sizeof values[0]);
    s.stream().synchronize();
    return ids(s.device().take_findings());
  };
  ASSERT_EQ(s.fill(longer).to_string(), "ok");
  EXPECT_EQ(read(0, 4), Ids{});
  ASSERT_EQ(s.fill(shorter).to_string(), "ok");
  EXPECT_EQ(read(0, 2), Ids{});
  EXPECT_EQ(read(1, 3), Ids{});
  EXPECT_EQ(read(0, 3), Ids{"mem.stale_input page_table"});
  EXPECT_EQ(read(1, 4), Ids{"mem.stale_input page_table"});
}

TEST(Padding, HasTheLengthsOfAnEnginesRunner) {
  const auto padding = [](ForwardMode mode, int32_t q_len, int32_t step = 0, int32_t fill = 1) {
    ModelConfig m = model();
    m.seq_len_fill = fill, m.num_steps = 3, m.num_draft_tokens = 3;
    Limits limits = Limits::bucket(mode, 1, q_len, m);
    limits.step = step;
    const OwnedBatch none(mode, kFull, {});
    return row_of(none, limits, 0);
  };
  EXPECT_TRUE(padding(kDecode, 1).padding());
  EXPECT_EQ(padding(kDecode, 1).extent, (RequestExtent{0, 1, 1}));
  EXPECT_EQ(padding(kDecode, 1, 0, 8).extent, (RequestExtent{7, 1, 8}));
  EXPECT_EQ(padding(kDraftDecode, 1, 2).extent, (RequestExtent{3, 1, 4}));
  EXPECT_EQ(padding(kTargetVerify, 3).extent, (RequestExtent{1, 3, 4}));
  EXPECT_EQ(padding(kDraftExtendV2, 4).extent, (RequestExtent{-3, 4, 1}));
  EXPECT_EQ(padding(kDllmExtend, 8, 0, 8).extent, (RequestExtent{0, 8, 8}));
  EXPECT_EQ(padding(kExtend, 4).extent, (RequestExtent{1, 0, 1}));
}

TEST(Padding, ReadsAndStoresInPageZero) {
  for (const ForwardMode mode : {kDecode, kTargetVerify, kDraftExtend, kExtend}) {
    const int32_t width = mode == kDecode ? 1 : 3;
    BoundStep s(kFa, Limits::bucket(mode, 3, width, model()));
    OwnedBatch b(mode, kPrefix, {5});
    if (mode == kExtend || mode == kDraftExtend) b.news = {2}, b.extend_lens = b.news;
    b.spec.num_draft_tokens = 3;
    b.set_pages(4, 24);
    ASSERT_EQ(s.fill(b).to_string(), "ok");
    const int32_t q_len = b.q_len(0), padded = mode == kExtend ? 0 : width;
    EXPECT_EQ(s.ints(Fa::kCuSeqlensQ), (Ints{0, q_len, q_len + padded, q_len + 2 * padded}));
    const Ints lens = s.ints(Fa::kCacheSeqlens);
    EXPECT_EQ(lens, (Ints{5 + q_len, mode == kTargetVerify ? 4 : 1, lens[1]}));
    for (int64_t i = 1; i < 3; ++i) EXPECT_EQ(s.row(Fa::kPageTable, i, 1), Ints{0});
    const Longs loc = s.slots(Fa::kOutCacheLoc);
    for (auto t = static_cast<size_t>(q_len); t < loc.size(); ++t) EXPECT_EQ(loc[t], 0);
  }
}

TEST(Padding, AsksForNoMoreTokensThanTheBucketHas) {
  Limits limits = Limits::bucket(kDraftExtend, 3, 4, model());
  limits.tokens = 9;
  BoundStep s(kFa, limits);
  OwnedBatch b(kDraftExtend, kPrefix, {5}, {3});
  b.set_pages(4, 24);
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.ints(Fa::kCuSeqlensQ), (Ints{0, 3, 7, 9}));
}

TEST(Padding, IsNoneOfTheLongestRows) {
  ModelConfig m = model();
  m.seq_len_fill = 8;
  BoundStep s(kFa, Limits::bucket(kDraftExtend, 2, 4, m));
  OwnedBatch b(kDraftExtend, kPrefix, {1}, {2});
  b.set_pages(4, 24);
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.ints(Fa::kCacheSeqlens), (Ints{3, 8}));
  EXPECT_EQ(s.meta.scalars[Fa::kMaxSeqLenQ], 2);
  EXPECT_EQ(s.meta.scalars[Fa::kMaxSeqLenK], 3);
}

TEST(Padding, OfATreeSeesAPrefixAndItself) {
  ModelConfig m = model();
  m.topk = 2, m.num_steps = 3, m.num_draft_tokens = 3;
  m.layers = {LayerKind{}};
  m.layers[0].params.window_left = 2;
  const OwnedBatch none(kIdle, kFull, {});
  BoundStep draft(kFa, Limits::bucket(kDraftDecode, 1, 1, m));
  ASSERT_EQ(draft.fill(none).to_string(), "ok");
  EXPECT_EQ(draft.ints(Fa::kCacheSeqlens), Ints{0});
  EXPECT_EQ(draft.ints(Fa::kExpandSeqlens), (Ints{2, 2}));
  EXPECT_EQ(draft.row(Fa::kDraftTable, 1, 1), Ints{0});
  EXPECT_EQ(draft.ints(Fa::kMergedSeqlens), (Ints{2, 2}));
  EXPECT_EQ(draft.slots(Fa::kOutCacheLoc), (Longs{0, 0}));
  BoundStep verify(kFa, Limits::bucket(kTargetVerify, 2, 3, m));
  OwnedBatch b(kTargetVerify, kPrefix, {5});
  b.spec.num_draft_tokens = 3;
  b.set_pages(4, 24);
  b.set_trees({{{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}});
  ASSERT_EQ(verify.fill(b).to_string(), "ok");
  EXPECT_EQ(verify.ints(Fa::kCacheSeqlens), (Ints{5, 1}));
  EXPECT_EQ(verify.ints(Fa::kExpandSeqlens), (Ints{1, 2, 3, 1, 1, 1}));
  EXPECT_EQ(verify.ints(Fa::kMergedSeqlens), (Ints{6, 7, 8, 2, 2, 2}));
  EXPECT_EQ(verify.row(Fa::kMergedTable, 5, 2), (Ints{0, 0}));
}

TEST(Serves, ADecodeHasOneTokenARow) {
  Limits limits = Limits::bucket(kDecode, 5, 1, model());
  limits.tokens = 3;
  for (const ForwardMode mode : {kDecode, kIdle, kDraftDecode}) {
    limits.mode = mode;
    EXPECT_EQ(ids(serves(find_backend("flashinfer")->info(), limits)),
              (Ids{"backend.limits tokens"}));
  }
}

TEST(Serves, SplitsThatAPlannerCanMultiply) {
  Limits limits = Limits::bucket(kDecode, 5, 1, model());
  limits.model.split = {.fixed_size = -1,
                        .min_size = 0,
                        .max_splits = 0,
                        .num_sms = INT32_MAX,
                        .blocks_per_sm = INT32_MAX};
  for (const char* name : {"flashinfer", "triton"})
    EXPECT_EQ(serves(find_backend(name)->info(), limits).findings().size(), 5u) << name;
  EXPECT_TRUE(serves(kFa.info(), limits).ok());  // it cuts nothing
}

TEST(Fill, OfABrokenDeviceIsRefusedAndWritesNothing) {
  for (const char* name : {"flashattention", "flashinfer", "triton"}) {
    const Backend& backend = *find_backend(name);
    OwnedBatch b(kDecode, kFull, {5, 3});
    b.set_pages(4, 16);
    SimDevice device;
    Arena arena(device, 1 << 20);
    Arena scope = arena.scope("step");
    Meta meta;
    ModelConfig m = model();
    m.layers.resize(1);
    ASSERT_TRUE(backend.bind(scope, Limits::exact(b, m), &meta).ok());
    EXPECT_TRUE(backend.fill(b, meta).ok());
    scope.unbind();
    EXPECT_FALSE(backend.fill(b, meta).ok()) << name;
  }
}

}  // namespace
}  // namespace shadowgraph::rows_test
