// The metadata of DeepSeek sparse attention, number by number.
#include "backends/sparse/dsa.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/step_fixture.h"

namespace shadowgraph::dsa_test {
namespace {

using enum ForwardMode;
using Dsa = DeepSeekSparse;

ModelConfig model_of(int32_t topk = 4, bool ragged = false) {
  ModelConfig m;
  m.max_context_len = 160;
  m.page_size = 64;
  m.num_steps = 2, m.num_draft_tokens = 3;
  SparseLayer layer;
  layer.topk = topk;
  layer.latents = LatentLayout::kRows;
  layer.head_dim = 6, layer.head_dim_v = 4;
  layer.sm_scale = 0.5f;
  layer.ragged_prefill = ragged;
  m.layers.emplace_back().math = layer;
  return m;
}

/// Pages of request i out of order, from page 1 on.
struct Requests : OwnedBatch {
  Requests(ForwardMode m, Ints seq, Ints extend = {})
      : OwnedBatch(m, usual_seq_lens_kind(m), std::move(seq), std::move(extend)) {
    set_pages(64, 168);
    spec.topk = 1, spec.num_steps = 2, spec.num_draft_tokens = 3;
  }
  Ints slots(int64_t request, int32_t count) const {
    const auto row = req_to_token.row(static_cast<int32_t>(request) + 1);
    return {row.begin(), row.begin() + count};
  }
  Ints pages(int64_t request, int32_t keys) const {
    Ints ids;
    const Ints all = slots(request, keys);
    for (size_t t = 0; t < all.size(); t += 64) ids.push_back(all[t] / 64);
    return ids;
  }
};

const Backend& dsa() { return *find_backend("dsa"); }

Ints first(const Ints& values, size_t count) {
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Spec 17.9.
TEST(Dsa, AnExtendSaysOfEachTokenWhatItSees) {
  const Requests batch(kExtend, {10, 4}, {3, 2});
  BoundStep s(dsa(), Limits::exact(batch, model_of()));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Dsa::kCacheSeqlens), (Ints{10, 4}));
  EXPECT_EQ(s.ints(Dsa::kCuSeqlensK), (Ints{0, 10, 14}));
  EXPECT_EQ(s.ints(Dsa::kCuSeqlensQ), (Ints{0, 3, 5}));
  EXPECT_EQ(s.ints(Dsa::kExpanded), (Ints{8, 9, 10, 3, 4}));
  EXPECT_EQ(s.ints(Dsa::kDsaCacheSeqlens), (Ints{4, 4, 4, 3, 4}));
  EXPECT_EQ(s.ints(Dsa::kDsaCuSeqlensQ), (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(s.ints(Dsa::kDsaCuSeqlensK), (Ints{0, 4, 8, 12, 15, 19}));
  EXPECT_EQ(s.ints(Dsa::kKs), (Ints{0, 0, 0, 10, 10}));
  EXPECT_EQ(s.ints(Dsa::kKe), (Ints{8, 9, 10, 13, 14}));
  EXPECT_EQ(s.ints(Dsa::kTokenToBatch), (Ints{0, 0, 0, 1, 1}));
  EXPECT_EQ(s.row(Dsa::kPageTable1, 1, 4), batch.slots(1, 4));
  EXPECT_FALSE(s.meta.has(Dsa::kTopkOffset));
  EXPECT_FALSE(s.meta.has(Dsa::kContextLens));
  EXPECT_EQ(s.meta.scalars[Dsa::kMaxSeqLenQ], 3);
  EXPECT_EQ(s.meta.scalars[Dsa::kMaxSeqLenK], 10);
}

TEST(Dsa, ARaggedExtendGathersTheSlotsOfAllRequests) {
  const Requests batch(kExtend, {70, 4}, {3, 2});
  BoundStep s(dsa(), Limits::exact(batch, model_of(4, true)));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Dsa::kTopkOffset), (Ints{0, 0, 0, 70, 70}));
  Ints all = batch.slots(0, 70);
  const Ints second = batch.slots(1, 4);
  all.insert(all.end(), second.begin(), second.end());
  EXPECT_EQ(s.ints(Dsa::kFlatSlots), all);
  EXPECT_EQ(s.meta[Dsa::kPackedLatents].shape, (std::vector<int64_t>{74, 6}));
}

TEST(Dsa, ADecodeHasARowForEachRequestAndPaddingReadsPageZero) {
  const Requests batch(kDecode, {70, 3});
  BoundStep s(dsa(), Limits::bucket(kDecode, 3, 1, model_of()));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Dsa::kCacheSeqlens), (Ints{70, 3, 1}));
  EXPECT_EQ(s.ints(Dsa::kExpanded), (Ints{70, 3, 1}));
  EXPECT_EQ(s.ints(Dsa::kContextLens), (Ints{70, 3, 1}));
  EXPECT_EQ(s.ints(Dsa::kDsaCacheSeqlens), (Ints{4, 3, 1}));
  EXPECT_EQ(s.ints(Dsa::kDsaCuSeqlensQ), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(s.row(Dsa::kPageTable1, 0, 70), batch.slots(0, 70));
  EXPECT_EQ(s.row(Dsa::kRealPageTable, 0, 2), batch.pages(0, 70));
  EXPECT_EQ(s.row(Dsa::kPageTable1, 2, 1), Ints{0});
  EXPECT_EQ(s.row(Dsa::kRealPageTable, 2, 1), Ints{0});
  EXPECT_EQ(s.slots(Dsa::kOutCacheLoc)[2], 0);
  EXPECT_FALSE(s.meta.has(Dsa::kKs));
  EXPECT_FALSE(s.meta.has(Dsa::kCuSeqlensQ));
}

TEST(Dsa, AVerifyRepeatsItsRowForEachDraft) {
  const Requests batch(kTargetVerify, {63, 5});
  BoundStep s(dsa(), Limits::bucket(kTargetVerify, 3, 3, model_of()));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Dsa::kCacheSeqlens), (Ints{66, 8, 4}));
  EXPECT_EQ(s.ints(Dsa::kExpanded), (Ints{64, 65, 66, 6, 7, 8, 2, 3, 4}));
  EXPECT_EQ(s.ints(Dsa::kDsaCacheSeqlens), (Ints{4, 4, 4, 4, 4, 4, 2, 3, 4}));
  for (int64_t t = 0; t < 6; ++t) {
    const int32_t keys = t < 3 ? 66 : 8;
    EXPECT_EQ(s.row(Dsa::kPageTable1, t, keys), batch.slots(t / 3, keys)) << t;
    const Ints pages = batch.pages(t / 3, keys);
    EXPECT_EQ(s.row(Dsa::kRealPageTable, t, std::ssize(pages)), pages) << t;
  }
  // Keys of padding are slots of page 0, each once.
  EXPECT_EQ(s.row(Dsa::kPageTable1, 8, 4), (Ints{0, 1, 2, 3}));
}

TEST(Dsa, ADraftExtendCountsItsOwnTokens) {
  const Requests batch(kDraftExtendV2, {9, 66}, {3, 3});
  BoundStep s(dsa(), Limits::bucket(kDraftExtendV2, 3, 3, model_of()));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(first(s.ints(Dsa::kExpanded), 6), (Ints{7, 8, 9, 64, 65, 66}));
  EXPECT_EQ(first(s.ints(Dsa::kCacheSeqlens), 2), (Ints{9, 66}));
  // Padding has more queries than keys.
  EXPECT_EQ(s.ints(Dsa::kExpanded)[6], 0);
  EXPECT_EQ(s.ints(Dsa::kExpanded)[8], 1);
}

TEST(Dsa, WhatItsKernelsDoNotKnowIsRefused) {
  const auto refused = [](const auto& change, ForwardMode mode = kDecode) {
    ModelConfig m = model_of();
    change(m);
    SimDevice device;
    const Arena arena(device, 1 << 20);
    Meta meta;
    const Status status = dsa().bind(arena, Limits::bucket(mode, 2, 1, m), &meta);
    return status.ok() ? std::string("ok") : status.findings()[0].where.field;
  };
  const auto layer = [](ModelConfig& m) -> SparseLayer& {
    return std::get<SparseLayer>(m.layers[0].math);
  };
  EXPECT_EQ(refused([](ModelConfig&) {}), "ok");
  EXPECT_EQ(refused([](ModelConfig& m) { m.page_size = 16; }), "page_size");
  EXPECT_EQ(refused([&](ModelConfig& m) { layer(m).topk = 0; }), "topk");
  EXPECT_EQ(refused([&](ModelConfig& m) { layer(m).latents = LatentLayout::kDsa; }), "head_dim");
  EXPECT_EQ(refused([&](ModelConfig& m) { layer(m).latents = LatentLayout::kV4; }), "latents");
  EXPECT_EQ(refused([&](ModelConfig& m) {
              m.layers.push_back(m.layers[0]);
              layer(m).topk = 5;
            }),
            "topk");
  EXPECT_EQ(refused([](ModelConfig& m) { m.seq_len_fill = 64; }), "seq_len_fill");
  EXPECT_EQ(refused([](ModelConfig& m) { m.layers[0].math = DenseAttention{}; }), "layers");
  EXPECT_EQ(refused([](ModelConfig& m) { m.dcp_size = 2; }), "dcp_size");
}

}  // namespace
}  // namespace shadowgraph::dsa_test
