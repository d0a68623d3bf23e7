#include "runtime/allocator.h"

#include <gtest/gtest.h>

#include "runtime/req_to_token.h"

namespace shadowgraph::allocator_test {
namespace {

using Longs = std::vector<int64_t>;
Longs list(std::span<const int64_t> s) { return {s.begin(), s.end()}; }

TEST(Alloc, HandsOutTheLongestFreeFirst) {
  PageAllocator a(4, 1);
  EXPECT_EQ(a.alloc(3), (Slots{1, 2, 3}));
  a.free(Slots{2});
  EXPECT_EQ(a.alloc(2), (Slots{4, 2}));
  EXPECT_EQ(a.free_pages(), 0);
}

TEST(Alloc, ExpandsPagesToSlots) {
  PageAllocator a(3, 4);
  EXPECT_EQ(a.alloc(8), (Slots{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(a.taken(), (std::vector<bool>{false, true, true, false}));
}

TEST(Alloc, ExtendFillsThePartialPageFirst) {
  PageAllocator a(11, 4);
  ASSERT_TRUE(a.alloc(6 * 4));  // free: 7 8 9 10 11
  const std::vector<Growth> g{{3, 9, 6}, {0, 5, -1}};
  EXPECT_EQ(a.alloc_extend(g), (Slots{7, 28, 29, 30, 31, 32, 36, 37, 38, 39, 40}));
  EXPECT_EQ(a.free_pages(), 1);
}

TEST(Alloc, ExtendInsideAPageTakesNone) {
  PageAllocator a(2, 4);
  ASSERT_TRUE(a.alloc(8));
  const std::vector<Growth> g{{1, 4, 4}, {4, 4, 11}};
  EXPECT_EQ(a.pages_to_grow(g), 0);
  EXPECT_EQ(a.alloc_extend(g), (Slots{5, 6, 7}));
}

TEST(Alloc, ADecodeIsAnExtendByOneToken) {
  for (const int32_t page_size : {1, 2, 4}) {
    for (int32_t len = 1; len <= 9; ++len) {
      PageAllocator a(8, page_size), b(8, page_size);
      const std::vector<Growth> prefix{{0, len - 1, -1}};
      Slots row = *a.alloc_extend(prefix);
      ASSERT_EQ(b.alloc_extend(prefix), row);
      const int32_t last = row.empty() ? -1 : row.back();
      const std::vector<Growth> one{{len - 1, len, last}};
      EXPECT_EQ(a.alloc_decode(std::vector{len}, std::vector{last}), b.alloc_extend(one));
      EXPECT_EQ(a.free_pages(), b.free_pages());
    }
  }
}

TEST(Alloc, OnShortageNothingIsTaken) {
  PageAllocator a(2, 4);
  const std::vector<Growth> g{{0, 4, -1}, {0, 5, -1}};
  EXPECT_EQ(a.alloc_extend(g), std::nullopt);
  EXPECT_EQ(a.free_pages(), 2);
  EXPECT_FALSE(a.taken()[1]);
  EXPECT_EQ(a.alloc(12), std::nullopt);
  EXPECT_EQ(a.alloc(8)->size(), 8U);
  EXPECT_EQ(a.alloc_decode(std::vector{5}, std::vector{7}), std::nullopt);
}

TEST(Alloc, FreeTakesTheWholePageOnce) {
  PageAllocator a(2, 4);
  ASSERT_TRUE(a.alloc(8));
  a.free(Slots{6, 4, 9});
  EXPECT_EQ(a.free_pages(), 2);
  EXPECT_EQ(a.alloc(4)->front(), 4);
  EXPECT_EQ(a.takes(), (std::vector<uint32_t>{0, 2, 1}));
}

TEST(SwaAlloc, ASlotHasOneInTheWindowPoolAtTheSameOffset) {
  SlotAllocator a(4, 3, 2);
  EXPECT_EQ(list(a.full_to_swa()), (Longs{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1}));
  ASSERT_EQ(a.alloc(2), (Slots{2, 3}));
  a.free_swa(Slots{2, 3});
  const std::vector<Growth> g{{0, 3, -1}};
  ASSERT_EQ(a.alloc_extend(g), (Slots{4, 5, 6}));
  EXPECT_EQ(list(a.full_to_swa()), (Longs{0, 0, 0, 0, 4, 5, 6, 0, 0, 0, -1}));
  ASSERT_EQ(a.alloc_decode(std::vector{4}, std::vector{6}), Slots{7});
  EXPECT_EQ(a.full_to_swa()[7], 7);
}

TEST(SwaAlloc, AnEvictedTokenHasNoneAndFreesOnce) {
  SlotAllocator a(4, 2, 2);
  const Slots s = *a.alloc(4);
  a.free_swa(Slots{s[0], s[1]});
  EXPECT_EQ(list(a.full_to_swa()), (Longs{0, 0, 0, 0, 4, 5, 0, 0, 0, 0, -1}));
  EXPECT_EQ(a.swa()->free_pages(), 1);
  EXPECT_EQ(a.full().free_pages(), 2);
  a.free_swa(Slots{s[0], s[1]});
  EXPECT_EQ(a.swa()->free_pages(), 1);
  a.free(s);
  EXPECT_EQ(a.swa()->free_pages(), 2);
  EXPECT_EQ(a.full().free_pages(), 4);
  EXPECT_EQ(list(a.full_to_swa()), (Longs{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1}));
}

TEST(SwaAlloc, OnShortageOfEitherPoolNothingIsTaken) {
  SlotAllocator narrow(4, 1, 2), one(2, 0, 2);
  EXPECT_EQ(narrow.alloc(4), std::nullopt);
  EXPECT_EQ(narrow.full().free_pages(), 4);
  EXPECT_EQ(narrow.swa()->free_pages(), 1);
  EXPECT_EQ(one.alloc(6), std::nullopt);
  EXPECT_EQ(one.alloc(4)->size(), 4U);
  EXPECT_TRUE(one.full_to_swa().empty());
}

TEST(ReqToToken, RowZeroIsNeverHandedOutAndRowsKeepWhatTheyHeld) {
  ReqToTokenPool pool(2, 3);
  ASSERT_EQ(pool.alloc(), 1);
  pool.row(1)[2] = 9;
  pool.free(1);
  ASSERT_EQ(pool.alloc(), 2);
  ASSERT_EQ(pool.alloc(), 1);
  EXPECT_EQ(pool.row(1)[2], 9);
  EXPECT_EQ(pool.alloc(), std::nullopt);
  EXPECT_EQ(pool.table().rows(), 3);
  EXPECT_EQ(pool.table().row(1)[2], 9);
  EXPECT_EQ(pool.table().row(0)[2], 0);
}

}  // namespace
}  // namespace shadowgraph::allocator_test
