#include "kernels/sparse/index_keys.h"

#include <gtest/gtest.h>

#include "kernels/footprint_elements.h"
#include "kernels/small_indexer.h"

namespace shadowgraph::index_keys_test {
namespace {

constexpr auto kPage = static_cast<size_t>(kIndexPageBytes);

/// 150 tokens at slots of 5 pages, and requests of 65, 0 and 85 tokens that own these.
struct SmallKeys {
  Bytes k, k_scale, pages = Bytes(5 * kPage, std::byte{0x7e}), table, k_out, scale_out;
  std::vector<int64_t> slots;
  std::vector<int32_t> cu = {0, 65, 65, 150};
  CallOptions options;

  SmallKeys() {
    Rng rng(7);
    k = random_e4m3(rng, 150 * kIndexDim), k_scale = random_f32(rng, 150);
    const int64_t order[] = {3, 1, 4, 0};  // of pages: two of the first request, two of the last
    for (int64_t i = 0; i < 65; ++i) slots.push_back(order[i / 64] * 64 + i % 64);
    for (int64_t i = 0; i < 85; ++i) slots.push_back(order[2 + i / 64] * 64 + i % 64);
    table = bytes_of(std::vector<int32_t>{3, 1, -5, -5, 4, 0});
    k_out.assign(k.size(), std::byte{0x7e}), scale_out.assign(k_scale.size(), std::byte{0x7e});
  }
  StoreIndexKeys store() {
    StoreIndexKeys c;
    c.k = ConstTensorView(k.data(), DType::kE4M3, {150, kIndexDim});
    c.k_scale = ConstTensorView(k_scale.data(), DType::kF32, {150});
    c.out_cache_loc = slots;
    c.pages = TensorView(pages.data(), DType::kU8, {5, kIndexPageBytes});
    c.options = options;
    return c;
  }
  GatherIndexKeys gather() {
    GatherIndexKeys c;
    c.pages = ConstTensorView(pages.data(), DType::kU8, {5, kIndexPageBytes});
    c.page_table = ConstTensorView(table.data(), DType::kI32, {3, 2});
    c.cu_seqlens_k = cu;
    c.k = TensorView(k_out.data(), DType::kE4M3, {150, kIndexDim});
    c.k_scale = TensorView(scale_out.data(), DType::kF32, {150});
    c.options = options;
    return c;
  }
};

TEST(IndexKeys, WhatIsStoredIsGathered) {
  for (const int threads : {1, 3}) {
    SmallKeys s;
    s.options.num_threads = threads;
    ASSERT_EQ(store_index_keys(s.store()).to_string(), "ok");
    ASSERT_EQ(gather_index_keys(s.gather()).to_string(), "ok");
    EXPECT_EQ(s.k_out, s.k);
    EXPECT_EQ(s.scale_out, s.k_scale);
    // Another page's, and another token's, would not be it.
    SmallKeys other = s;
    other.table = bytes_of(std::vector<int32_t>{1, 3, -5, -5, 4, 0});
    ASSERT_EQ(gather_index_keys(other.gather()).to_string(), "ok");
    EXPECT_NE(other.k_out, s.k);
    EXPECT_NE(other.scale_out, s.k_scale);
  }
}

TEST(IndexKeys, APageHasItsKeysThenItsScales) {
  SmallKeys s;
  ASSERT_EQ(store_index_keys(s.store()).to_string(), "ok");
  const auto token = [&](size_t t, size_t page, size_t in_page) {
    const std::byte* at = s.pages.data() + page * kPage;
    return std::equal(at + in_page * 128, at + (in_page + 1) * 128, s.k.data() + t * 128) &&
           std::equal(at + 8192 + in_page * 4, at + 8192 + (in_page + 1) * 4,
                      s.k_scale.data() + t * 4);
  };
  EXPECT_TRUE(token(0, 3, 0) && token(63, 3, 63) && token(64, 1, 0) && token(149, 0, 20));
  EXPECT_FALSE(token(1, 3, 0));
}

TEST(IndexKeys, ASlotOfThePaddingPageDropsItsToken) {
  SmallKeys s, kept;
  std::fill(s.slots.begin() + 129, s.slots.end(), 0);  // what lies in page 0
  StoreIndexKeys call = s.store();
  call.first_slot = kIndexPageTokens;
  ASSERT_EQ(store_index_keys(call).to_string(), "ok");
  ASSERT_EQ(store_index_keys(kept.store()).to_string(), "ok");
  std::fill_n(kept.pages.begin(), kPage, std::byte{0x7e});
  EXPECT_EQ(s.pages, kept.pages);
  EXPECT_EQ(written_bytes(store_index_keys_footprint(call), s.pages)[0], 0);
}

TEST(IndexKeys, FootprintsSayWhatTheyDo) {
  SmallKeys s;
  const Footprint store = store_index_keys_footprint(s.store());
  const Bytes before = s.pages;
  EXPECT_EQ(elements(store, s.k, Access::kRead).size(), s.k.size());
  EXPECT_EQ(elements(store, s.k_scale, Access::kRead).size(), 150U);
  for (std::byte& b : s.k) b = b == std::byte{0x7e} ? std::byte{0x7d} : b;
  std::fill(s.k_scale.begin(), s.k_scale.end(), std::byte{1});
  ASSERT_EQ(store_index_keys(s.store()).to_string(), "ok");
  EXPECT_EQ(written_bytes(store, s.pages), changed_bytes(before, s.pages));

  const Footprint gather = gather_index_keys_footprint(s.gather());
  Bytes pages = s.pages;
  poison_others(gather, &s.pages, Access::kRead);
  EXPECT_NE(pages, s.pages);
  poison_others(gather, &s.table, Access::kRead);
  ASSERT_EQ(gather_index_keys(s.gather()).to_string(), "ok");
  EXPECT_EQ(s.k_out, s.k);
  EXPECT_EQ(s.scale_out, s.k_scale);
  EXPECT_EQ(elements(gather, s.k_out, Access::kWrite).size(), s.k.size());
  EXPECT_EQ(elements(gather, s.scale_out, Access::kWrite).size(), 150U);
  for (const AccessSpan& span : gather) {
    if (span.buffer == s.k_out.data()) {
      EXPECT_EQ(span.row, span.first < 65 * 128 ? 0 : 2);
    }
  }
}

}  // namespace
}  // namespace shadowgraph::index_keys_test
