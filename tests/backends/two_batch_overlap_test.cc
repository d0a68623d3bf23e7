// TwoBatchOverlap: where a batch is split, and that its halves give what the whole does.
#include "backends/compose/two_batch_overlap.h"

#include <gtest/gtest.h>

#include <limits>

#include "attn/finding_ids.h"
#include "backends/paged/trtllm_mha.h"
#include "backends/paged_world.h"

namespace shadowgraph::two_batch_overlap_test {
namespace {

using Mha = TrtllmMha;
const TrtllmMha kMha;
const TwoBatchOverlap kHalves(kMha);

ModelConfig model() {
  ModelConfig m = model_of(16, 2, 96);
  m.num_steps = 3, m.num_draft_tokens = 3;
  return m;
}

ModelConfig cutting() {
  ModelConfig m = model();
  m.two_chunk_below = 0.48f;
  m.layers[0].params.causal = true;
  return m;
}

void expect_bits_of_the_whole(PagedWorld& w, const PagedBatch& owned, const Meta& meta) {
  const Layer layer(w, "layer", meta.limits.model, meta.limits.tokens, owned.pages());
  w.forward(kHalves, meta, {layer.io()});
  EXPECT_EQ(w.found(), "ok");
  EXPECT_EQ(layer.results(meta.limits.tokens), layer.expected(owned));
}

int64_t split_of_lens(const Ints& lens) {
  std::vector<Request> requests;
  for (const int32_t q : lens) requests.push_back({2, q});
  return split_of(PagedBatch(ForwardMode::kExtend, requests, 16).view()).rows;
}

BatchSplit cut_of_lens(const Ints& lens, ForwardMode mode = ForwardMode::kExtend) {
  std::vector<Request> requests;
  for (const int32_t q : lens) requests.push_back({2, q});
  return split_of(PagedBatch(mode, requests, 16).view(), cutting());
}

TEST(SplitOf, QueriesAreBalanced) {
  EXPECT_EQ(split_of_lens({10, 1, 1}), 1);
  EXPECT_EQ(split_of_lens({4, 4, 4, 4}), 2);
  EXPECT_EQ(split_of_lens({3, 5, 2}), 1);
  EXPECT_EQ(split_of_lens({2, 2}), 1);
  EXPECT_EQ(split_of_lens({1, 1, 10}), 2);
  EXPECT_EQ(split_of_lens({3, 2, 3}), 2);
  EXPECT_EQ(split_of_lens({100}), 0);
  EXPECT_EQ(split_of_lens({4, 4, 4, 4, 4}), 2);
  EXPECT_EQ(split_of_lens({}), 0);
}

TEST(SplitOf, AnUnevenPromptIsCutAtHalfOfTheTokens) {
  EXPECT_EQ(cut_of_lens({100}), (BatchSplit{0, 50, true}));
  EXPECT_EQ(cut_of_lens({10, 1, 1}), (BatchSplit{0, 6, true}));
  EXPECT_EQ(cut_of_lens({1, 1, 11}), (BatchSplit{2, 6, true}));
  EXPECT_EQ(cut_of_lens({5, 4, 1}), (BatchSplit{1, 5, false}));  // even enough
  EXPECT_EQ(cut_of_lens({4, 5}), (BatchSplit{1, 4, false}));     // half ends between the two
  EXPECT_EQ(cut_of_lens({1}), (BatchSplit{0, 0, false}));
  EXPECT_EQ(cut_of_lens({}), (BatchSplit{0, 0, false}));
}

TEST(SplitOf, OnlyPromptsAreCut) {
  for (const ForwardMode mode :
       {ForwardMode::kExtend, ForwardMode::kMixed, ForwardMode::kSplitPrefill})
    EXPECT_TRUE(cut_of_lens({9, 1}, mode).request) << name_of(mode);
  for (const ForwardMode mode :
       {ForwardMode::kDraftExtend, ForwardMode::kDraftExtendV2, ForwardMode::kDllmExtend})
    EXPECT_FALSE(cut_of_lens({9, 1}, mode).request) << name_of(mode);
}

TEST(SplitOf, ALayerThatSeesWhatComesLaterForbidsTheCut) {
  ModelConfig m = cutting();
  m.layers.push_back(m.layers[0]);
  m.layers[1].params.causal = false;
  EXPECT_FALSE(split_of(PagedBatch(ForwardMode::kExtend, {{2, 9}}, 16).view(), m).request);
}

TEST(SplitOf, ItemsStayTogether) {
  const PagedBatch owned(ForwardMode::kExtend, {{2, 9}}, 16);
  ForwardBatch batch = owned.view();
  ASSERT_TRUE(split_of(batch, cutting()).request);
  const Ints places = {3}, offsets = {0, 1};
  batch.item_delimiters = places, batch.item_indptr = offsets;
  EXPECT_FALSE(split_of(batch, cutting()).request);
}

/// fi.I-66, fi.I-67.
TEST(TwoBatchOverlap, ARequestThatIsCutIsThePrefixOfItsOtherPart) {
  for (const SeqLensKind kind : {SeqLensKind::kFull, SeqLensKind::kPrefix}) {
    PagedWorld w;
    const PagedBatch owned(ForwardMode::kExtend, {{3, 2}, {20, 9}, {7, 1}}, 16);
    ForwardBatch batch = owned.view();
    const Ints prefixes = {3, 20, 7};
    batch.seq_lens_kind = kind;
    if (kind == SeqLensKind::kPrefix) batch.seq_lens = prefixes;
    const Meta meta = w.exact(kHalves, batch, cutting());
    const Meta &left = meta.children[0], &right = meta.children[1];
    EXPECT_EQ(held(left[Mha::kKvLens]), (Ints{5, 24}));
    EXPECT_EQ(held(left[Mha::kCuSeqlensQ]), (Ints{0, 2, 6}));
    EXPECT_EQ(held(right[Mha::kKvLens]), (Ints{29, 8}));
    EXPECT_EQ(held(right[Mha::kCuSeqlensQ]), (Ints{0, 5, 6}));
    EXPECT_EQ(held<int64_t>(left[Mha::kOutCacheLoc])[5], owned.slot(1, 23));
    EXPECT_EQ(held<int64_t>(right[Mha::kOutCacheLoc])[0], owned.slot(1, 24));
    EXPECT_EQ(right.limits.first_row, 1);
  }
}

/// fi.I-69.
TEST(TwoBatchOverlap, ACutGivesTheBitsOfTheWhole) {
  for (const std::vector<Request>& requests :
       {std::vector<Request>{{0, 9}}, {{3, 2}, {20, 30}, {7, 1}}, {{40, 1}, {0, 1}, {5, 17}}}) {
    PagedWorld w;
    const PagedBatch owned(ForwardMode::kExtend, requests, 16);
    const Meta meta = w.exact(kHalves, owned.view(), cutting());
    ASSERT_TRUE(meta.limits.split_request);
    expect_bits_of_the_whole(w, owned, meta);
  }
}

TEST(TwoBatchOverlap, ABatchWhoseHalfEndsInAnotherRequestIsRefused) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kExtend, {{3, 2}, {20, 9}, {7, 1}}, 16);
  Meta meta = w.exact(kHalves, owned.view(), cutting());
  const PagedBatch other(ForwardMode::kExtend, {{3, 9}, {20, 2}, {7, 1}}, 16);
  EXPECT_EQ(ids(kHalves.fill(other.view(), meta)), (Ids{"batch.mode extend_lens"}));
}

/// fa.I-76, fi.I-66; each half has buffers of its own: fi.I-70.
TEST(TwoBatchOverlap, HalvesAreWholeBatchesOfTheirRequests) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kTargetVerify, {{3, 3}, {20, 3}, {7, 3}}, 16);
  const Meta meta = w.exact(kHalves, owned.view(), model());
  const Meta &left = meta.children[0], &right = meta.children[1];
  EXPECT_EQ(held(left[Mha::kKvLens]), (Ints{6}));
  EXPECT_EQ(held(right[Mha::kKvLens]), (Ints{23, 10}));
  EXPECT_EQ(held(right[Mha::kCuSeqlensQ]), (Ints{0, 3, 6}));
  EXPECT_EQ(slots_of(right, Mha::kPageTable, 0, 23), slots_of(owned, 1, 23));
  EXPECT_EQ(held<int64_t>(right[Mha::kOutCacheLoc])[0], owned.slot(1, 20));
  EXPECT_EQ(left[Mha::kKvLens].name, "exact0/left/kv_lens");
  EXPECT_EQ(right[Mha::kKvLens].name, "exact0/right/kv_lens");
}

/// fi.I-69.
TEST(TwoBatchOverlap, HalvesGiveTheBitsOfTheWhole) {
  for (const ForwardMode mode : kMha.info().modes) {
    if (mode == ForwardMode::kIdle) continue;
    SCOPED_TRACE(name_of(mode));
    PagedWorld w;
    const bool one = is_decode_or_idle(mode);
    const int32_t q = one ? 1 : 3, other = one || is_target_verify(mode) ? q : 5;
    const PagedBatch owned(mode, {{3, q}, {20, other}, {7, q}, {40, q}}, 16, one ? 3 : 0);
    const Meta meta = w.exact(kHalves, owned.view(), model());
    expect_bits_of_the_whole(w, owned, meta);
  }
}

TEST(TwoBatchOverlap, ABatchOfTheFirstHalfLeavesTheOtherToPadding) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDecode, {{3, 1}}, 16);
  Meta meta = w.bind(kHalves, Limits::bucket(ForwardMode::kDecode, 5, 1, model()));
  w.fill(kHalves, owned.view(), meta);
  EXPECT_EQ(held(meta.children[0][Mha::kKvLens]), (Ints{4, 1}));
  EXPECT_EQ(held(meta.children[1][Mha::kKvLens]), (Ints{1, 1, 1}));
}

TEST(TwoBatchOverlap, ABucketIsSplitWhereItsRowsAre) {
  const Limits limits = Limits::bucket(ForwardMode::kTargetVerify, 5, 3, model());
  EXPECT_EQ(limits.split_rows, 2);
  EXPECT_EQ(limits.split_tokens, 6);
}

TEST(TwoBatchOverlap, ARightHalfThatWouldBeginElsewhereIsRefused) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftExtend, {{3, 2}, {4, 3}, {9, 1}}, 16);
  Meta meta = w.bind(kHalves, Limits::bucket(ForwardMode::kDraftExtend, 4, 3, model()));
  EXPECT_EQ(ids(kHalves.fill(owned.view(), meta)), (Ids{"batch.mode extend_lens"}));
  const PagedBatch left(ForwardMode::kDraftExtend, {{3, 2}, {4, 3}}, 16);
  EXPECT_TRUE(kHalves.fill(left.view(), meta).ok());
  const PagedBatch full(ForwardMode::kDraftExtend, {{3, 3}, {4, 3}, {9, 1}}, 16);
  EXPECT_TRUE(kHalves.fill(full.view(), meta).ok());
}

TEST(TwoBatchOverlap, AHalfThatDoesNotFitLeavesTheOtherUnwritten) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDecode, {{3, 1}, {4, 1}}, 16);
  Meta meta = w.exact(kHalves, owned.view(), model());
  const PagedBatch longer(ForwardMode::kDecode, {{2, 1}, {40, 1}}, 16);
  EXPECT_FALSE(kHalves.fill(longer.view(), meta).ok());
  w.upload();
  EXPECT_EQ(held(meta.children[0][Mha::kKvLens]), (Ints{4}));
}

TEST(TwoBatchOverlap, OnlyPromptsOfCausalLayersAreBoundToBeCut) {
  PagedWorld w;
  Meta meta;
  const auto bound = [&](ForwardMode mode, bool causal, float below) {
    ModelConfig m = cutting();
    m.layers[0].params.causal = causal, m.two_chunk_below = below;
    Limits limits = Limits::bucket(mode, 2, 3, m);
    limits.split_request = true, limits.split_rows = 1, limits.split_tokens = 4;
    return ids(kHalves.bind(w.arena.scope("meta"), limits, &meta));
  };
  EXPECT_EQ(bound(ForwardMode::kTargetVerify, true, 0.48f), (Ids{"backend.limits split_request"}));
  EXPECT_EQ(bound(ForwardMode::kExtend, false, 0.48f), (Ids{"backend.limits split_request"}));
  for (const float below : {0.6f, -0.1f, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_EQ(bound(ForwardMode::kExtend, true, below), (Ids{"backend.limits two_chunk_below"}));
  EXPECT_EQ(bound(ForwardMode::kExtend, true, 0.5f), Ids{});
  const TwoBatchOverlap scoring(*find_backend("flashinfer"));
  Limits limits = Limits::bucket(ForwardMode::kExtend, 2, 3, cutting());
  limits.split_request = true, limits.split_rows = 1, limits.split_tokens = 4;
  limits.max_items_len = 2;
  EXPECT_EQ(ids(scoring.bind(w.arena.scope("meta"), limits, &meta)),
            (Ids{"backend.limits split_request"}));
}

TEST(TwoBatchOverlap, WhatTheSecondHalfRefusesLeavesTheFirstUnwritten) {
  PagedWorld w;
  PagedBatch owned(ForwardMode::kDecode, {{3, 1}, {40, 1}}, 16);
  owned.add_window_pool();
  ModelConfig m = model();
  m.swa_pool = true;
  Meta meta = w.exact(kHalves, owned.view(), m);
  ForwardBatch next = owned.view();
  const Ints shorter = {3, 41};
  next.seq_lens = shorter;
  next.full_to_swa = next.full_to_swa.first(static_cast<size_t>(owned.slot(1, 39)));
  EXPECT_FALSE(kHalves.fill(next, meta).ok());
  w.upload();
  EXPECT_EQ(held(meta.children[0][Mha::kKvLens]), (Ints{4}));
}

/// fa.I-76.
TEST(TwoBatchOverlap, BothHalvesHaveRequests) {
  PagedWorld w;
  Meta meta;
  ModelConfig m = model();
  m.max_encoder_len = 4;
  EXPECT_EQ(ids(kHalves.bind(w.arena, Limits::bucket(ForwardMode::kDecode, 1, 1, m), &meta)),
            (Ids{"backend.limits max_encoder_len", "backend.limits split_rows",
                 "backend.limits split_tokens"}));
  const PagedBatch one(ForwardMode::kExtend, {{0, 9}}, 16);
  EXPECT_EQ(ids(kHalves.bind(w.arena, Limits::exact(one.view(), model()), &meta)),
            (Ids{"backend.limits split_rows", "backend.limits split_tokens"}));
}

}  // namespace
}  // namespace shadowgraph::two_batch_overlap_test
