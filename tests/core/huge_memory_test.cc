// HugeMemory: aligned, zero, as long as asked for, and empty where there is none.
#include "shadowgraph/huge_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/huge_pages.h"
#include "core/mapping_flags.h"

namespace shadowgraph::huge_memory_test {
namespace {

TEST(HugeMemory, IsAlignedAndZeroToItsLastByte) {
  for (const size_t bytes : {size_t{1}, kHugePage - 1, kHugePage, kHugePage + 1, 5 * kHugePage}) {
    const HugeMemory memory(bytes);
    ASSERT_FALSE(memory.empty());
    EXPECT_EQ(memory.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kHugePage, 0u);
    EXPECT_TRUE(std::all_of(memory.data(), memory.data() + bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(memory.data(), bytes, std::byte{0xa5});
  }
}

TEST(HugeMemory, IsEmptyWhereThereIsNone) {
  EXPECT_TRUE(HugeMemory().empty());
  for (const size_t bytes : {size_t{0}, SIZE_MAX, SIZE_MAX - kHugePage, SIZE_MAX / 2}) {
    const HugeMemory memory(bytes);
    EXPECT_TRUE(memory.empty()) << bytes;
    EXPECT_EQ(memory.data(), nullptr);
    EXPECT_EQ(memory.size(), 0u);
  }
}

TEST(HugeMemory, MovesWithItsContents) {
  HugeMemory a(kHugePage);
  std::byte* const place = a.data();
  place[7] = std::byte{9};
  HugeMemory b = std::move(a);
  EXPECT_EQ(b.data(), place);
  EXPECT_EQ(b.data()[7], std::byte{9});
  HugeMemory c(3);
  c = std::move(b);
  EXPECT_EQ(c.data(), place);
  EXPECT_EQ(c.size(), kHugePage);
}

TEST(HugeMemory, HugePagesAreAskedFor) {
  const HugeMemory memory(kHugePage);
  const int elsewhere = 0;
  if (mapping_flags(&elsewhere).empty())
    GTEST_SKIP() << "whether huge pages were asked for is told in /proc/self/smaps, not here";
  EXPECT_TRUE(asks_for_huge_pages(mapping_flags(memory.data())));
  EXPECT_FALSE(asks_for_huge_pages(mapping_flags(&elsewhere)));
}

TEST(HugeMemory, AskingForPartsOfAPageIsNothing) {
  const HugeMemory memory(2 * kHugePage);
  ask_for_huge_pages(memory.data() + 1, kHugePage - 1);
  ask_for_huge_pages(memory.data(), 0);
  EXPECT_EQ(memory.data()[1], std::byte{0});
}

}  // namespace
}  // namespace shadowgraph::huge_memory_test
