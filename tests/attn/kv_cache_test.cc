// The named constructors: offset() is the tensor's own address of the same element, whatever the
// strides.
#include "shadowgraph/attention/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace shadowgraph::kv_cache_test {
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

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                            DType::kE4M3, DType::kE5M2, DType::kI8};

/// Where (token, dim) lies in a panel, from the shape of its tensor.
int64_t key_place(int64_t p, int64_t dims, int64_t token, int64_t dim) {
  const TensorView panel(memory, DType::kU8, {(dims + p - 1) / p, 16, p});
  return panel.offset(dim / p, token, dim % p);
}
int64_t value_place(int64_t p, int64_t dims, int64_t token, int64_t dim) {
  int64_t before = 0, padded = (dims + 15) / 16 * 16;
  for (; dim >= 64; dim -= 64, padded -= 64) before += 16 * 64;
  const TensorView block(memory, DType::kU8, {16 / p, std::min<int64_t>(padded, 64), p});
  return before + block.offset(token / p, dim, token % p);
}

TEST(KvCache, EveryElementHasItsPlaceInItsPanel) {
  for (const DType t : kTypes) {
    const int64_t p = t == DType::kBF16 ? 2 : 1;
    for (int32_t dims = 1; dims <= 200; ++dims) {
      const int64_t key_size = key_panel_elements(t, dims), value_size = value_panel_elements(dims);
      ASSERT_EQ(key_size, 16 * (dims + dims % p));
      ASSERT_EQ(value_size % 256, 0);
      ASSERT_LT(value_size - 16 * dims, 256);
      std::set<int64_t> keys, values;
      for (int64_t token = 0; token < 16; ++token) {
        for (int64_t d = 0; d < dims; ++d) {
          const int64_t k = key_panel_offset(t, token, d);
          const int64_t v = value_panel_offset(t, dims, token, d);
          ASSERT_EQ(k, key_place(p, dims, token, d)) << dims << " " << token << " " << d;
          ASSERT_EQ(v, value_place(p, dims, token, d)) << dims << " " << token << " " << d;
          ASSERT_TRUE(0 <= k && k < key_size && keys.insert(k).second);
          ASSERT_TRUE(0 <= v && v < value_size && values.insert(v).second);
        }
      }
    }
  }
}

TEST(KvCache, PanelsArePageHeadPanelElement) {
  constexpr int64_t kPanels = 3;
  for (const DType t : {DType::kE4M3, DType::kBF16}) {
    for (const bool strided : {false, true}) {
      const int64_t k_size = key_panel_elements(t, kDimK), v_size = value_panel_elements(kDimV);
      TensorView k(memory, t, {kPages, kHeads, kPanels, k_size});
      TensorView v(memory + 4096, t, {kPages, kHeads, kPanels, v_size});
      if (strided) k.stride = {1, 2000, 700, 1}, v.stride = {5, 40, 1000, 1};
      const KvCache c = KvCache::panels(k, v, kDimK, kDimV);
      ASSERT_TRUE(c.well_formed);
      EXPECT_EQ(c.page_size, 16 * kPanels);
      EXPECT_EQ(c.num_slots(), kPages * 16 * kPanels);
      const int64_t p = t == DType::kBF16 ? 2 : 1;
      for (int64_t page = 0; page < kPages; ++page) {
        for (int64_t token = 0; token < 16 * kPanels; ++token) {
          for (int64_t h = 0; h < kHeads; ++h) {
            const int64_t lane = token % 16;
            for (int64_t d = 0; d < kDimK; ++d)
              ASSERT_EQ(c.k.offset(page, token, h, d),
                        k.offset(page, h, token / 16, key_place(p, kDimK, lane, d)));
            for (int64_t d = 0; d < kDimV; ++d)
              ASSERT_EQ(c.v.offset(page, token, h, d),
                        v.offset(page, h, token / 16, value_place(p, kDimV, lane, d)));
          }
        }
      }
    }
  }
}

TEST(KvCache, PanelsOfAnotherSizeAreNotWellFormed) {
  const TensorView k(memory, DType::kBF16, {1, 1, 1, 16 * 6}),
      v(memory, DType::kF16, {1, 1, 1, 256});
  EXPECT_TRUE(KvCache::panels(k, v, 5, 1).well_formed);
  EXPECT_TRUE(KvCache::panels(k, v, 6, 16).well_formed);
  EXPECT_FALSE(KvCache::panels(k, v, 4, 16).well_formed);
  EXPECT_FALSE(KvCache::panels(k, v, 7, 16).well_formed);
  EXPECT_FALSE(KvCache::panels(k, v, 6, 17).well_formed);
  for (const int32_t absurd : {-1, -16, INT32_MAX, INT32_MIN}) {
    EXPECT_FALSE(KvCache::panels(k, v, absurd, 16).well_formed) << absurd;
    EXPECT_FALSE(KvCache::panels(k, v, 6, absurd).well_formed) << absurd;
  }
  TensorView many_k = k, many_v = v;
  many_k.shape[2] = many_v.shape[2] = INT32_MAX / 16 + 1;
  EXPECT_FALSE(KvCache::panels(many_k, many_v, 6, 16).well_formed) << "page_size beyond int32";
  EXPECT_FALSE(KvCache::panels(TensorView(), TensorView(), 6, 16).well_formed);
}

void expect_same_slots(const KvCache& paged) {
  const KvCache slots = slot_view(paged);
  ASSERT_TRUE(slots.well_formed);
  EXPECT_EQ(slots.page_size, 1);
  EXPECT_EQ(slots.num_pages, paged.num_slots());
  for (int64_t slot = 0; slot < paged.num_slots(); ++slot) {
    const int64_t page = slot / paged.page_size, token = slot % paged.page_size;
    for (int64_t h = 0; h < paged.num_kv_heads; ++h) {
      ASSERT_EQ(slots.k.offset(slot, 0, h, 3), paged.k.offset(page, token, h, 3));
      ASSERT_EQ(slots.v.offset(slot, 0, h, 3), paged.v.offset(page, token, h, 3));
      ASSERT_EQ(slots.k.scale_offset(slot, 0, h), paged.k.scale_offset(page, token, h));
      ASSERT_EQ(slots.v.scale_offset(slot, 0, h), paged.v.scale_offset(page, token, h));
    }
  }
}

TEST(KvCache, ASlotViewHasEveryTokenWhereItWas) {
  const TensorView k(memory, DType::kI8, {kPages, kTokens, kHeads, kDimK});
  const TensorView v(memory + 4096, DType::kI8, {kPages, kTokens, kHeads, kDimV});
  const TensorView scales(memory + 8192, DType::kF32, {kPages, kTokens, kHeads});
  expect_same_slots(KvCache::nhd(k, v).with_scales(scales, scales));
  expect_same_slots(KvCache::mla_latent({memory, DType::kF32, {kPages, kTokens, kDimK}}, 4));
  TensorView spaced = k;
  spaced.stride = {kTokens * 100, 100, 7, 1};
  expect_same_slots(KvCache::nhd(spaced, spaced));
  const TensorView one_head(memory, DType::kF32, {kPages, 1, kTokens, kDimK});
  expect_same_slots(KvCache::hnd(one_head, one_head));
  TensorView one_page(memory, DType::kF32, {1, kTokens, kHeads, kDimK});
  one_page.stride[0] = 12345;
  expect_same_slots(KvCache::nhd(one_page, one_page));
}

TEST(KvCache, OnlyPagesThatFollowEachOtherHaveASlotView) {
  const TensorView nhd(memory, DType::kF32, {kPages, kTokens, kHeads, kDimK});
  const TensorView hnd(memory, DType::kF32, {kPages, kHeads, kTokens, kDimK});
  const TensorView stacked(memory, DType::kF32, {kPages, 2, kTokens, kHeads, kDimK});
  ASSERT_TRUE(slot_view(KvCache::nhd(nhd, nhd)).well_formed);
  EXPECT_FALSE(slot_view(KvCache::hnd(hnd, hnd)).well_formed);
  EXPECT_FALSE(slot_view(KvCache::stacked_nhd(stacked)).well_formed);
  TensorView gap = nhd;
  gap.stride[0] += 1;
  EXPECT_FALSE(slot_view(KvCache::nhd(gap, nhd)).well_formed);
  EXPECT_FALSE(slot_view(KvCache::nhd(nhd, gap)).well_formed);
  TensorView i8 = nhd;
  i8.dtype = DType::kI8;
  const TensorView scales(memory, DType::kF32, {kPages, kTokens, kHeads}),
      turned(memory, DType::kF32, {kPages, kTokens, kHeads}, {1, kPages * kHeads, kPages});
  EXPECT_TRUE(slot_view(KvCache::nhd(i8, i8).with_scales(scales, scales)).well_formed);
  EXPECT_FALSE(slot_view(KvCache::nhd(i8, i8).with_scales(scales, turned)).well_formed);
  const TensorView k(memory, DType::kF32, {kPages, kHeads, 1, key_panel_elements(DType::kF32, 5)}),
      v(memory, DType::kF32, {kPages, kHeads, 1, value_panel_elements(5)});
  EXPECT_FALSE(slot_view(KvCache::panels(k, v, 5, 5)).well_formed);
  EXPECT_FALSE(slot_view(KvCache()).well_formed);
  KvCache huge = KvCache::nhd(nhd, nhd);
  huge.num_pages = INT64_MAX / 2;
  EXPECT_FALSE(slot_view(huge).well_formed);
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

TEST(KvCache, ScalesArePageTokenHead) {
  const TensorView k(memory, DType::kI8, {kPages, kHeads, kTokens, kDimK});
  const TensorView dense(memory, DType::kF32, {kPages, kTokens, kHeads});
  const TensorView strided(memory + 4096, DType::kF32, {kPages, kTokens, kHeads}, {3, -9, 40});
  const KvCache c = KvCache::hnd(k, k).with_scales(dense, strided);
  ASSERT_TRUE(c.well_formed);
  for (int64_t p = 0; p < kPages; ++p) {
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t h = 0; h < kHeads; ++h) {
        EXPECT_EQ(c.k.scale_offset(p, t, h), dense.offset(p, t, h));
        EXPECT_EQ(c.v.scale_offset(p, t, h), strided.offset(p, t, h));
      }
    }
  }
  EXPECT_EQ(reinterpret_cast<std::byte*>(c.k.scales), dense.data);
  EXPECT_EQ(reinterpret_cast<std::byte*>(c.v.scales), strided.data);
  EXPECT_EQ(c.k.offset(1, 2, 1, 3), KvCache::hnd(k, k).k.offset(1, 2, 1, 3));
}

TEST(KvCache, ScalesOfAnotherShapeOrTypeAreNotWellFormed) {
  const TensorView k(memory, DType::kI8, {kPages, kTokens, kHeads, kDimK});
  const KvCache cache = KvCache::nhd(k, k);
  const TensorView scales(memory, DType::kF32, {kPages, kTokens, kHeads});
  EXPECT_TRUE(cache.with_scales(scales, scales).well_formed);
  EXPECT_TRUE(cache.with_scales(scales, TensorView()).well_formed) << "V may be of another type";
  EXPECT_EQ(cache.with_scales(scales, TensorView()).v.scales, nullptr);
  for (size_t axis = 0; axis < 3; ++axis) {
    for (const int64_t by : {-1, 1}) {
      TensorView other = scales;
      other.shape[axis] += by;
      EXPECT_FALSE(cache.with_scales(scales, other).well_formed) << axis;
      EXPECT_FALSE(cache.with_scales(other, scales).well_formed) << axis;
    }
  }
  const TensorView half(memory, DType::kF16, {kPages, kTokens, kHeads});
  EXPECT_FALSE(cache.with_scales(half, scales).well_formed);
  EXPECT_FALSE(cache.with_scales(k, scales).well_formed);
  EXPECT_FALSE(KvCache().with_scales(scales, scales).well_formed);
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
}  // namespace shadowgraph::kv_cache_test
