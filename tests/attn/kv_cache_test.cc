// The named constructors: offset() is the tensor's own address of the same element, whatever the
// strides.
#include "shadowgraph/kv_cache.h"

#include <gtest/gtest.h>

namespace shadowgraph {
namespace {

constexpr int64_t kPages = 3, kTokens = 4, kHeads = 2, kDimK = 5, kDimV = 6;

/// Never read: only addresses are compared.
std::byte memory[1 << 14];

/// tensor_k and tensor_v (page, token, head, dim) give the tensor's address of that element of K
/// and V.
template <class K, class V>
void expect_addresses(const KvCache& c, int64_t dim_k, int64_t dim_v, int64_t heads,
                      const K& tensor_k, const V& tensor_v) {
  ASSERT_TRUE(c.well_formed);
  EXPECT_EQ(c.num_pages, kPages);
  EXPECT_EQ(c.page_size, kTokens);
  EXPECT_EQ(c.num_kv_heads, heads);
  EXPECT_EQ(c.num_slots(), kPages * kTokens);
  EXPECT_EQ(c.k.head_dim, dim_k);
  EXPECT_EQ(c.v.head_dim, dim_v);
  const auto size = static_cast<int64_t>(size_of(c.k.dtype));
  for (int64_t p = 0; p < kPages; ++p) {
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t d = 0; d < dim_k; ++d) {
          ASSERT_EQ(c.k.data + c.k.offset(p, t, h, d) * size, tensor_k(p, t, h, d));
        }
        for (int64_t d = 0; d < dim_v; ++d) {
          ASSERT_EQ(c.v.data + c.v.offset(p, t, h, d) * size, tensor_v(p, t, h, d));
        }
      }
    }
  }
}

TEST(KvCache, NhdIsPageTokenHeadDim) {
  for (const bool strided : {false, true}) {
    TensorView k(memory, DType::kF16, {kPages, kTokens, kHeads, kDimK});
    TensorView v(memory + 4096, DType::kF16, {kPages, kTokens, kHeads, kDimV});
    if (strided) k.stride = {100, 20, 7, 1}, v.stride = {1, 500, 50, 1};
    v.stride[0] = strided ? 300 : v.stride[0];
    const auto at = [](const TensorView& t) {
      return [&t](int64_t p, int64_t s, int64_t h, int64_t d) { return t.at(p, s, h, d); };
    };
    expect_addresses(KvCache::nhd(k, v), kDimK, kDimV, kHeads, at(k), at(v));
  }
}

TEST(KvCache, HndIsPageHeadTokenDim) {
  const TensorView k(memory, DType::kF32, {kPages, kHeads, kTokens, kDimK});
  const TensorView v(memory + 4096, DType::kF32, {kPages, kHeads, kTokens, kDimV},
                     {200, 100, 7, 1});
  const auto at = [](const TensorView& t) {
    return [&t](int64_t p, int64_t s, int64_t h, int64_t d) { return t.at(p, h, s, d); };
  };
  expect_addresses(KvCache::hnd(k, v), kDimK, kDimV, kHeads, at(k), at(v));
}

TEST(KvCache, StackedHoldsKeysThenValuesInEveryPage) {
  const TensorView nhd(memory, DType::kBF16, {kPages, 2, kTokens, kHeads, kDimK});
  const TensorView hnd(memory, DType::kBF16, {kPages, 2, kHeads, kTokens, kDimK});
  const auto in_nhd = [&](int64_t which) {
    return [&nhd, which](int64_t p, int64_t s, int64_t h, int64_t d) {
      return nhd.at(p, which, s, h, d);
    };
  };
  const auto in_hnd = [&](int64_t which) {
    return [&hnd, which](int64_t p, int64_t s, int64_t h, int64_t d) {
      return hnd.at(p, which, h, s, d);
    };
  };
  expect_addresses(KvCache::stacked_nhd(nhd), kDimK, kDimK, kHeads, in_nhd(0), in_nhd(1));
  expect_addresses(KvCache::stacked_hnd(hnd), kDimK, kDimK, kHeads, in_hnd(0), in_hnd(1));
}

TEST(KvCache, AnMlaValueIsTheBeginningOfItsKey) {
  const TensorView latent(memory, DType::kF32, {kPages, kTokens, kDimV});
  const auto at = [&](int64_t p, int64_t s, int64_t, int64_t d) { return latent.at(p, s, d); };
  expect_addresses(KvCache::mla_latent(latent, 4), kDimV, 4, 1, at, at);
}

TEST(KvCache, TensorsThatDisagreeAreNotWellFormed) {
  const TensorView k(memory, DType::kF32, {kPages, kTokens, kHeads, kDimK}), v = k;
  ASSERT_TRUE(KvCache::nhd(k, v).well_formed);
  for (int axis = 0; axis < 3; ++axis) {
    TensorView other = v;
    other.shape[static_cast<size_t>(axis)] += 1;
    EXPECT_FALSE(KvCache::nhd(k, other).well_formed) << axis;
    EXPECT_FALSE(KvCache::hnd(other, v).well_formed) << axis;
  }
  TensorView gap = v;
  gap.stride[3] = 2;
  EXPECT_FALSE(KvCache::nhd(k, gap).well_formed);
  EXPECT_FALSE(KvCache::nhd(gap, v).well_formed);
  for (int axis = 0; axis < 4; ++axis) {
    TensorView bad = k;
    bad.shape[static_cast<size_t>(axis)] = -1;
    EXPECT_FALSE(KvCache::nhd(bad, bad).well_formed) << axis;
    if (axis == 0) continue;
    bad.shape[static_cast<size_t>(axis)] = int64_t{1} << 32;
    EXPECT_FALSE(KvCache::nhd(bad, bad).well_formed) << axis;
  }
}

TEST(KvCache, TheRankIsPartOfTheForm) {
  const TensorView three(memory, DType::kF32, {kPages, kTokens, kDimK});
  const TensorView four(memory, DType::kF32, {kPages, kTokens, kHeads, kDimK});
  const TensorView five(memory, DType::kF32, {kPages, 3, kTokens, kHeads, kDimK});
  EXPECT_FALSE(KvCache::nhd(three, three).well_formed);
  EXPECT_FALSE(KvCache::stacked_nhd(four).well_formed);
  EXPECT_FALSE(KvCache::stacked_nhd(five).well_formed) << "an axis of 3 is not K and V";
  EXPECT_FALSE(KvCache::stacked_hnd(five).well_formed);
  EXPECT_FALSE(KvCache::mla_latent(four, 2).well_formed);
  EXPECT_FALSE(KvCache::mla_latent(three, 6).well_formed) << "a value is not wider than its key";
  EXPECT_FALSE(KvCache::mla_latent(three, -1).well_formed);
  EXPECT_FALSE(KvCache::nhd(TensorView(), TensorView()).well_formed);
}

}  // namespace
}  // namespace shadowgraph
