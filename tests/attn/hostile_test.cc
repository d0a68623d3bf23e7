// Views and spans that nobody in his right mind would pass: each is refused, and nothing of it is
// looked at. The sanitizer lane watches that validation itself does no arithmetic that overflows.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attn/validate/validate.h"

namespace shadowgraph::hostile_test {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

struct Call {
  std::vector<float> q = std::vector<float>(8), kv = std::vector<float>(64), out = q;
  std::vector<int32_t> table = {0}, lens = {2};
  PagedAttention paged;
  Call() {
    paged.q = ConstTensorView(q.data(), DType::kF32, {1, 1, 4});
    paged.cache = KvCache::nhd(TensorView(kv.data(), DType::kF32, {2, 4, 1, 4}),
                               TensorView(kv.data() + 32, DType::kF32, {2, 4, 1, 4}));
    paged.pages = PageTable::dense(table, 1, lens);
    paged.params.num_qo_heads = paged.params.num_kv_heads = 1;
    paged.params.head_dim_qk = paged.params.head_dim_vo = 4;
    paged.params.sm_scale = 1;
    paged.out = TensorView(out.data(), DType::kF32, {1, 1, 4});
  }
  bool refused(std::string_view law) const {
    const Status status = validate(paged);
    for (const Finding& f : status.findings()) {
      if (f.id == law) return true;
    }
    return false;
  }
};

TEST(Hostile, TheCallItselfIsFine) { EXPECT_EQ(validate(Call().paged).to_string(), "ok"); }

TEST(Hostile, AnAbsurdRank) {
  Call c;
  c.paged.q.rank = 1000;
  EXPECT_TRUE(c.refused("input.shape"));
  c.paged.q.rank = -3;
  EXPECT_TRUE(c.refused("input.shape"));
}

TEST(Hostile, StridesAtTheEndsOfInt64) {
  for (int64_t stride : {kHuge, -kHuge, std::numeric_limits<int64_t>::min(), kHuge / 2}) {
    for (DType type : {DType::kF32, DType::kE4M3}) {
      Call c;
      c.paged.cache = KvCache::nhd(TensorView(c.kv.data(), type, {2, 4, 1, 4}, {stride, 4, 4, 1}),
                                   TensorView(c.kv.data(), type, {2, 4, 1, 4}));
      EXPECT_TRUE(c.refused("input.overflow")) << stride;
    }
  }
}

TEST(Hostile, AStackedTensorWhoseHalvesAreFarApart) {
  Call c;
  const int64_t side = int64_t{1} << 31;
  c.paged.cache = KvCache::stacked_nhd(TensorView(c.kv.data(), DType::kF16, {1, 2, side, side, 4}));
  EXPECT_FALSE(validate(c.paged).ok());
  c.paged.cache = KvCache::stacked_nhd(
      TensorView(c.kv.data(), DType::kF32, {1, 2, 4, 1, 4}, {32, kHuge, 4, 4, 1}));
  EXPECT_FALSE(validate(c.paged).ok());
}

TEST(Hostile, MoreSlotsThanInt64) {
  Call c;
  const TensorView pool(c.kv.data(), DType::kF32, {int64_t{1} << 62, 4, 1, 4}, {0, 4, 4, 1});
  c.paged.cache = KvCache::nhd(pool, pool);
  EXPECT_TRUE(c.refused("input.overflow"));
}

TEST(Hostile, HeadDimsThatAreNoSizes) {
  Call c;
  StoreKv store;
  std::vector<int64_t> slots = {1};
  store.k = store.v = ConstTensorView(c.q.data(), DType::kF32, {1, 1, 4});
  store.out_cache_loc = slots;
  store.cache = c.paged.cache;
  EXPECT_EQ(validate(store).to_string(), "ok");
  store.cache.k.head_dim = -1;
  EXPECT_FALSE(validate(store).ok());
}

TEST(Hostile, SpansWithoutMemory) {
  const int32_t* nothing = nullptr;
  Call c;
  c.paged.cu_seqlens_q = std::span(nothing, 2);
  EXPECT_TRUE(c.refused("input.null"));
  Call t;
  t.paged.pages.page_table = std::span(nothing, 1);
  EXPECT_TRUE(t.refused("input.null"));
  Call s;
  s.paged.params.sinks = std::span(static_cast<const float*>(nullptr), 1);
  EXPECT_TRUE(s.refused("input.null"));
}

TEST(Hostile, NumbersThatOverflowOnTheWayToBaseTwo) {
  Call scale;
  scale.paged.params.sm_scale = 3e38f;
  EXPECT_TRUE(scale.refused("param.scale"));
  Call product;
  product.paged.params.sm_scale = 1e30f;
  product.paged.cache.k_scale = 1e30f;
  EXPECT_TRUE(product.refused("param.scale"));
  Call cap;
  cap.paged.params.logits_soft_cap = 3e38f;
  EXPECT_TRUE(cap.refused("param.soft_cap"));
  Call sink;
  const std::vector<float> sinks = {3e38f};
  sink.paged.params.sinks = sinks;
  EXPECT_TRUE(sink.refused("param.sinks"));
}

TEST(Hostile, FaultsOfTheBatchShowBesideFaultsOfTheParameters) {
  Call c;
  c.paged.params.num_kv_heads = 0;
  c.lens[0] = -5;
  EXPECT_TRUE(c.refused("param.heads"));
  EXPECT_TRUE(c.refused("len.negative"));
}

TEST(Hostile, ASickRequestHidesNoFaultOfAnother) {
  Call c;
  std::vector<int32_t> table = {0, 99}, lens = {-5, 2};
  std::vector<float> q(8), out(8);
  c.paged.q = ConstTensorView(q.data(), DType::kF32, {2, 1, 4});
  c.paged.out = TensorView(out.data(), DType::kF32, {2, 1, 4});
  c.paged.pages = PageTable::dense(table, 1, lens);
  EXPECT_TRUE(c.refused("len.negative"));
  EXPECT_TRUE(c.refused("table.page_id"));
}

}  // namespace
}  // namespace shadowgraph::hostile_test
