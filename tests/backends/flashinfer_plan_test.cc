// FlashInfer's planners: every key of every tile once, within the grid, for all small batches.
#include "backends/lists/flashinfer_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace shadowgraph::flashinfer_plan_test {
namespace {

using Ints = std::vector<int32_t>;

Ints indptr_of(const Ints& lens) {
  Ints indptr(lens.size() + 1);
  std::partial_sum(lens.begin(), lens.end(), indptr.begin() + 1);
  return indptr;
}

/// A plan with memory of its own; no queries: of a decode.
struct OwnedPlan {
  PlanShape shape;
  Ints qo, kv, requests, tiles, chunks, o_indptr, merge_indptr, chunk_size = {-1};
  std::vector<uint8_t> valid;
  PlanResult result;

  OwnedPlan(const PlanShape& s, const Ints& q_lens, const Ints& kv_lens, int64_t max_kv_len)
      : shape(s), kv(indptr_of(kv_lens)) {
    if (shape.kind == PlanKind::kPrefill) qo = indptr_of(q_lens);
    set_capacity(plan_capacity(shape, max_kv_len).items);
  }
  void set_capacity(int64_t items) {
    const auto n = static_cast<size_t>(items);
    requests.assign(n, -1), chunks.assign(n, -1), valid.assign(n, 7);
    o_indptr.assign(kv.size(), -1);
    if (qo.empty()) return;
    tiles.assign(n, -1);
    merge_indptr.assign(static_cast<size_t>(shape.tokens) + 1, -1);
  }
  Status make() {
    result = measure_plan(shape, qo, kv);
    return write_plan(shape, qo, kv, result,
                      {requests, chunks, tiles, o_indptr, merge_indptr, chunk_size, valid});
  }
};

/// The shape for a GPU that runs so many blocks at once, cutting from two keys on.
PlanShape small_shape(PlanKind kind, const Ints& q_lens, int32_t rows, int32_t blocks) {
  PlanShape s{.kind = kind, .rows = rows};
  s.tokens = kind == PlanKind::kDecode ? rows : std::accumulate(q_lens.begin(), q_lens.end(), 0);
  s.num_qo_heads = 6, s.num_kv_heads = 2;
  s.split.num_sms = blocks, s.split.blocks_per_sm = 1, s.split.min_size = 2;
  return s;
}

/// I-61, I-62, and every key of a tile once.
void expect_laws(const OwnedPlan& p) {
  const PlanResult& r = p.result;
  const auto rows = static_cast<size_t>(p.shape.rows);
  size_t item = 0, token = 0;
  for (size_t i = 0; i < rows; ++i) {
    const int32_t q_len = p.qo.empty() ? 1 : p.qo[i + 1] - p.qo[i], keys = p.kv[i + 1] - p.kv[i];
    int32_t packed = q_len * p.shape.group(), count = 0;
    for (int32_t tile = 0; packed > 0; ++tile, packed -= p.shape.cta_tile_q()) {
      int64_t next_key = 0;
      for (count = 0; count == 0 || next_key < keys; ++count, ++item) {
        ASSERT_LT(item, static_cast<size_t>(r.items));
        EXPECT_EQ(p.requests[item], static_cast<int32_t>(i));
        EXPECT_EQ(p.chunks[item], count);
        if (!p.tiles.empty()) {
          EXPECT_EQ(p.tiles[item], tile);
        }
        next_key += r.kv_chunk_size;
      }
    }
    count = r.chunks(keys);
    EXPECT_EQ(p.o_indptr[i + 1] - p.o_indptr[i], q_len * count);
    for (int32_t q = 0; q < q_len && !p.merge_indptr.empty(); ++q, ++token)
      EXPECT_EQ(p.merge_indptr[token + 1] - p.merge_indptr[token], count);
    EXPECT_TRUE(r.split_kv || count == 1);
  }
  EXPECT_EQ(item, static_cast<size_t>(r.items));
  for (size_t t = 0; t < p.valid.size(); ++t) EXPECT_EQ(p.valid[t], t < item);
  EXPECT_EQ(p.chunk_size[0], r.kv_chunk_size);
}

TEST(FlashInferPlan, ADecodeTakesTheSmallestChunkThatTheGridHolds) {
  // Four blocks: chunks of 2 keys would be 3 + 2.
  PlanShape s{.kind = PlanKind::kDecode, .rows = 2};
  s.split.num_sms = 2, s.split.blocks_per_sm = 2, s.split.min_size = 2;
  OwnedPlan p(s, {}, {5, 3}, 5);
  ASSERT_TRUE(p.make().ok());
  EXPECT_EQ(p.result.kv_chunk_size, 3);
  EXPECT_TRUE(p.result.split_kv);
  EXPECT_EQ(p.requests, (Ints{0, 0, 1, -1}));
  EXPECT_EQ(p.chunks, (Ints{0, 1, 0, -1}));
  EXPECT_EQ(p.o_indptr, (Ints{0, 2, 3}));
  EXPECT_EQ(p.valid, (std::vector<uint8_t>{1, 1, 1, 0}));
}

TEST(FlashInferPlan, RequestsThatFillTheGridAreNotCut) {
  PlanShape s{.kind = PlanKind::kDecode, .rows = 4, .padded = true};
  s.split.num_sms = 4, s.split.blocks_per_sm = 1, s.split.min_size = 1;
  OwnedPlan p(s, {}, {5, 3, 0, 1}, 5);
  ASSERT_TRUE(p.make().ok());
  EXPECT_FALSE(p.result.split_kv);
  EXPECT_EQ(p.result.kv_chunk_size, 5);
  EXPECT_EQ(p.requests, (Ints{0, 1, 2, 3}));
}

TEST(FlashInferPlan, APrefillsTilesEachHaveAllChunks) {
  // Six heads on two: 9 queries are 27 packed rows, two tiles of 16.
  PlanShape s = small_shape(PlanKind::kPrefill, {9, 1}, 2, 12);
  EXPECT_EQ(s.cta_tile_q(), 16);
  OwnedPlan p(s, {9, 1}, {9, 4}, 9);
  ASSERT_TRUE(p.make().ok());
  EXPECT_EQ(p.result.kv_chunk_size, 5);  // 2 * 2 + 1 of 6 items; 4: 2 * 3 + 1
  EXPECT_EQ(p.requests, (Ints{0, 0, 0, 0, 1, -1}));
  EXPECT_EQ(p.tiles, (Ints{0, 0, 1, 1, 0, -1}));
  EXPECT_EQ(p.chunks, (Ints{0, 1, 0, 1, 0, -1}));
  EXPECT_EQ(p.o_indptr, (Ints{0, 18, 19}));
  EXPECT_EQ(p.merge_indptr, (Ints{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19}));
}

TEST(FlashInferPlan, ATileIsForTheAverageRequestOrTheLongestThatAGraphMayHave) {
  PlanShape s{.kind = PlanKind::kPrefill, .rows = 4, .tokens = 64, .num_qo_heads = 4};
  EXPECT_EQ(s.cta_tile_q(), 64);  // 16 queries of 4 heads
  s.tokens = 68;
  EXPECT_EQ(s.cta_tile_q(), 128);
  s.tokens = 19;
  EXPECT_EQ(s.cta_tile_q(), 64);  // 19
  s.tokens = 16;
  EXPECT_EQ(s.cta_tile_q(), 16);
  s.padded = true;
  EXPECT_EQ(s.cta_tile_q(), 64);  // 13 queries
  s.tokens = 20;
  EXPECT_EQ(s.cta_tile_q(), 128);  // 17
  s.head_dim_qk = s.head_dim_vo = 256;
  EXPECT_EQ(s.cta_tile_q(), 64);
  s.head_dim_qk = 576;
  EXPECT_EQ(s.cta_tile_q(), 16);
  s.head_dim_vo = 512;
  EXPECT_EQ(s.cta_tile_q(), 32);
  s.tokens = 11;
  EXPECT_EQ(s.cta_tile_q(), 16);  // 8 queries are 32 rows
}

/// fi.I-65.
TEST(FlashInferPlan, AFixedSizeCutsEachListAloneAndOffCutsNone) {
  PlanShape s = small_shape(PlanKind::kDecode, {}, 3, 2);
  s.split.fixed_size = 4;
  OwnedPlan fixed(s, {}, {9, 4, 0}, 9);
  ASSERT_TRUE(fixed.make().ok());
  EXPECT_TRUE(fixed.result.split_kv);
  EXPECT_EQ(fixed.o_indptr, (Ints{0, 3, 4, 5}));
  s.split.off = true;
  OwnedPlan off(s, {}, {9, 4, 0}, 9);
  ASSERT_TRUE(off.make().ok());
  EXPECT_FALSE(off.result.split_kv);
  EXPECT_EQ(off.o_indptr, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(plan_capacity(s, 9).partial_rows, 0);
}

TEST(FlashInferPlan, WhatTheGridDoesNotHoldIsRefusedAndNothingWritten) {
  PlanShape s = small_shape(PlanKind::kPrefill, {4, 4}, 2, 2);
  s.split.fixed_size = 2;
  OwnedPlan p(s, {4, 4}, {5, 3}, 5);
  p.set_capacity(4);
  EXPECT_NE(p.make().to_string().find("plan.capacity"), std::string::npos);
  for (const Ints* a : {&p.requests, &p.tiles, &p.chunks, &p.o_indptr, &p.merge_indptr})
    EXPECT_EQ(*a, Ints(a->size(), -1));
  EXPECT_EQ(p.chunk_size, Ints{-1});
  EXPECT_EQ(p.valid, std::vector<uint8_t>(4, 7));
  p.set_capacity(5);
  EXPECT_TRUE(p.make().ok());
}

/// Every batch of up to three requests of up to four queries and seven keys.
template <class Fn>
void for_each_small(PlanKind kind, Fn fn) {
  const int32_t widest = kind == PlanKind::kDecode ? 0 : 4;
  for (int32_t rows = 0; rows <= 3; ++rows) {
    Ints q(static_cast<size_t>(rows)), kv(q);
    const auto next = [&] {
      for (size_t i = 0; i < q.size(); ++i) {
        if (++kv[i] <= 7) return true;
        kv[i] = 0;
        if (++q[i] <= widest) return true;
        q[i] = 0;
      }
      return false;
    };
    do fn(q, kv);
    while (next());
  }
}

class EverySmallBatch : public ::testing::TestWithParam<PlanKind> {};

TEST_P(EverySmallBatch, KeepsTheLawsWithinTheCapacityOfAllBatches) {
  int64_t made = 0;
  for_each_small(GetParam(), [&](const Ints& q, const Ints& kv) {
    if (::testing::Test::HasFailure()) return;
    for (const int32_t fixed : {0, 3}) {
      for (const int32_t blocks : {3, 8, 14}) {
        PlanShape s = small_shape(GetParam(), q, static_cast<int32_t>(kv.size()), blocks);
        s.split.fixed_size = fixed;
        s.padded = (made++ % 2) != 0;
        OwnedPlan p(s, q, kv, 7);
        ASSERT_EQ(p.make().to_string(), "ok");
        expect_laws(p);
        EXPECT_LE(p.result.split_kv ? p.o_indptr.back() : 0, plan_capacity(s, 7).partial_rows);
      }
    }
  });
  EXPECT_GT(made, 1000);
}

TEST_P(EverySmallBatch, IsCutFinerByALargerGrid) {
  for_each_small(GetParam(), [&](const Ints& q, const Ints& kv) {
    int32_t chunk = INT32_MAX;
    for (int32_t blocks = 1; blocks < 24 && !kv.empty(); ++blocks) {
      PlanShape s = small_shape(GetParam(), q, static_cast<int32_t>(kv.size()), blocks);
      const Ints qo = GetParam() == PlanKind::kDecode ? Ints{} : indptr_of(q);
      const int32_t next = measure_plan(s, qo, indptr_of(kv)).kv_chunk_size;
      ASSERT_LE(next, std::max(chunk, s.split.min_size)) << blocks;
      chunk = next;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(FlashInferPlan, EverySmallBatch,
                         ::testing::Values(PlanKind::kDecode, PlanKind::kPrefill));

}  // namespace
}  // namespace shadowgraph::flashinfer_plan_test
