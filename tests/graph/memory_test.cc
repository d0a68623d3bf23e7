// Addresses: who gets which, and what becomes of a pointer when its block ends.
#include "graph/memory/memory.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "core/mapping_flags.h"
#include "memory_fixture.h"
#include "shadowgraph/huge_memory.h"

namespace shadowgraph::memory_test {
namespace {

TEST(Memory, FreedAddressIsHandedOutAgainAsAnotherGeneration) {
  Memory m;
  int32_t* a = m.ints(4);
  m.memory.name(a, "A");
  const BakedPointer baked = m.memory.bake(a);
  EXPECT_TRUE(m.memory.release(a));
  EXPECT_EQ(m.ints(4), a);
  m.memory.name(a, "B");
  const BakedPointer again = m.memory.bake(a);
  EXPECT_EQ(again.generation, baked.generation + 1);
  EXPECT_NE(baked, again);
  m.write(a, 0, 4);
  EXPECT_EQ(m.judge({write_of(a, 0, 4)}, {again}), "");
  EXPECT_EQ(m.judge({write_of(a, 0, 4)}, {baked}), "mem.stale_generation");
  EXPECT_EQ(m.last.where.field, "A");
  EXPECT_NE(m.last.got.find("is B now"), std::string::npos) << m.last.got;
}

TEST(Memory, AnAddressInsideAnotherBlockIsStaleToo) {
  Memory m;
  int32_t* a = m.ints(1024);
  const BakedPointer baked = m.memory.bake(a + 512);
  m.memory.release(a);
  int32_t* big = m.ints(512);
  ASSERT_EQ(big, a);  // first fit splits the freed range
  EXPECT_EQ(m.judge({write_of(a + 512, 0, 1)}, {baked}), "mem.use_after_free");
  EXPECT_EQ(m.judge({write_of(a, 0, 1)}, {m.memory.bake(a)}), "");
  m.ints(400);  // the rest
  EXPECT_EQ(m.judge({write_of(a + 512, 0, 1)}, {baked}), "mem.use_after_free") << "a red zone";
  EXPECT_EQ(m.judge({write_of(a, 600, 1)}, {}), "mem.out_of_bounds");
  int32_t* b = m.ints(1024);
  const BakedPointer inside = m.memory.bake(b + 512);
  m.memory.release(b);
  ASSERT_EQ(m.ints(1000), b);
  EXPECT_EQ(m.judge({write_of(b + 512, 0, 1)}, {inside}), "mem.stale_generation");
}

TEST(Memory, TheMostRecentExactFitComesFirst) {
  Memory m;
  int32_t* a = m.ints(4);
  int32_t* b = m.ints(4);
  int32_t* c = m.ints(400);
  m.memory.release(a);
  m.memory.release(b);
  m.memory.release(c);
  EXPECT_EQ(m.ints(4), b);
  EXPECT_EQ(m.ints(4), a);
  EXPECT_EQ(m.ints(400), c);
}

TEST(Memory, QuarantineHoldsAddressesBack) {
  Memory m({.capacity = 1 << 20, .quarantine = 1024});
  int32_t* a = m.ints(4);
  m.memory.release(a);
  EXPECT_NE(m.ints(4), a);
  EXPECT_EQ(m.judge({write_of(a, 0, 1)}, {}), "mem.use_after_free");
  int32_t* big = m.ints(256);
  m.memory.release(big);  // pushes a out
  EXPECT_EQ(m.ints(4), a);
}

TEST(Memory, NeighboursOfFreedMemoryAreJoinedWhenSpaceRunsOut) {
  Memory m({.capacity = 16384});
  std::array<int32_t*, 8> p{};
  for (int32_t*& q : p) q = m.ints(64);
  EXPECT_EQ(m.memory.allocate(14000, AllocKind::kMalloc), nullptr);
  for (int32_t* q : p) EXPECT_TRUE(m.memory.release(q));
  EXPECT_EQ(m.memory.allocate(14000, AllocKind::kMalloc), p[0]);
  EXPECT_EQ(m.memory.allocate(size_t{1} << 40, AllocKind::kMalloc), nullptr);
}

TEST(Memory, AllocationsAreAlignedAndApart) {
  Memory m;
  const auto* a = reinterpret_cast<const std::byte*>(m.ints(1));
  const auto* b = reinterpret_cast<const std::byte*>(m.ints(1));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0);
  EXPECT_EQ(b - a, 512);
  Memory unchecked({.checked = false});
  const auto* c = reinterpret_cast<const std::byte*>(unchecked.ints(1));
  const auto* d = reinterpret_cast<const std::byte*>(unchecked.ints(1));
  EXPECT_EQ(d - c, 512) << "the same layout without a shadow";
}

TEST(Memory, OnlyTheStartOfALiveAllocationIsReleased) {
  Memory m;
  int32_t* a = m.ints(4);
  EXPECT_FALSE(m.memory.release(a + 1));
  EXPECT_FALSE(m.memory.release(nullptr));
  EXPECT_EQ(m.memory.find_allocation(a + 1), nullptr);
  ASSERT_NE(m.memory.find_allocation_of(a + 3), nullptr);
  EXPECT_EQ(m.memory.find_allocation_of(a + 3)->bytes, 16);
  EXPECT_EQ(m.memory.find_allocation_of(a + 4), nullptr);
  ASSERT_NE(m.memory.find_allocation(a), nullptr);
  EXPECT_EQ(m.memory.find_allocation(a)->kind, AllocKind::kMalloc);
  EXPECT_TRUE(m.memory.release(a));
  EXPECT_FALSE(m.memory.release(a));
}

TEST(Memory, FreshMemoryIsPoisonOnlyWhereItIsChecked) {
  Memory m;
  EXPECT_EQ(m.ints(4)[3], -1);
  Memory unchecked({.checked = false});
  EXPECT_EQ(unchecked.ints(4)[3], 0);
}

TEST(Memory, AHugeAllocationCostsNothingUntilItIsTouched) {
  Memory m({.capacity = size_t{1} << 36});
  const size_t bytes = size_t{40} << 30;
  auto* p = static_cast<int32_t*>(m.memory.allocate(bytes, AllocKind::kMalloc));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(p[0], -1);
  EXPECT_EQ(p[bytes / 8], 0);
  m.write(p, bytes / 8, 4);
  EXPECT_EQ(m.judge({read_of(p, bytes / 8, 4)}), "");
  EXPECT_EQ(m.judge({read_of(p, bytes / 8, 5)}), "mem.uninit_read");
  EXPECT_EQ(m.memory.cost_of(p).arena_bytes, bytes);
  EXPECT_EQ(m.memory.cost_of(p).shadow_bytes, bytes / 4 * 9);
}

TEST(Memory, GraphAllocationsAreNewAtEveryRun) {
  Memory m;
  auto* p = static_cast<int32_t*>(m.memory.allocate(16, AllocKind::kGraph));
  const BakedPointer baked = m.memory.bake(p);
  EXPECT_EQ(m.memory.graph_bytes_backed(), 0);
  EXPECT_EQ(m.judge({write_of(p, 0, 4)}, {baked}), "mem.use_after_free") << "not begun";
  for (int run = 0; run < 2; ++run) {
    m.memory.begin_graph_allocation(p, m.replay(run + 1, 0));
    EXPECT_EQ(p[0], -1);
    EXPECT_EQ(m.memory.graph_bytes_backed(), 16);
    EXPECT_EQ(m.judge({read_of(p, 0, 4)}, {baked}), "mem.uninit_read") << run;
    m.write(p, 0, 4);
    p[0] = 7;
    EXPECT_EQ(m.judge({read_of(p, 0, 4)}, {baked}), "");
    m.memory.end_graph_allocation(p, m.replay(run + 1, 3));
  }
  EXPECT_EQ(m.memory.graph_bytes_backed(), 16) << "kept until it is trimmed";
  m.memory.trim_graph_memory();
  EXPECT_EQ(m.memory.graph_bytes_backed(), 0);
  EXPECT_EQ(m.judge({read_of(p, 0, 4)}, {baked}), "mem.use_after_free");
  EXPECT_NE(m.last.got.find("node 3 of launch 2"), std::string::npos) << m.last.got;
}

TEST(Memory, PoolAndGraphAllocationsThatLiveAreLeaks) {
  Memory m;
  void* pool = m.memory.allocate(16, AllocKind::kPool);
  void* graph = m.memory.allocate(16, AllocKind::kGraph);
  m.ints(4);
  m.memory.begin_graph_allocation(graph, {});
  Status leaks;
  m.memory.judge_leaks(&leaks);
  ASSERT_EQ(leaks.findings().size(), 2);
  EXPECT_EQ(leaks.findings()[0].to_string(),
            "mem.leak: allocation 1 is live, 16 B; never written, expected freed");
  m.memory.release(pool);
  m.memory.end_graph_allocation(graph, {});
  Status none;
  m.memory.judge_leaks(&none);
  EXPECT_TRUE(none.ok()) << none.to_string();
}

TEST(Memory, MappedIsTheAddressSpaceAndNothingElse) {
  Memory m({.capacity = 4096});
  int32_t* a = m.ints(4);
  EXPECT_TRUE(m.memory.mapped(a, 16));
  EXPECT_TRUE(m.memory.mapped(a + 4, 4)) << "red zone";
  EXPECT_FALSE(m.memory.mapped(a, 4096));
  EXPECT_FALSE(m.memory.mapped(a, SIZE_MAX));
  int32_t local = 0;
  EXPECT_FALSE(m.memory.mapped(&local, 4));
  EXPECT_FALSE(m.memory.mapped(nullptr, 4));
}

TEST(Memory, PlacesAreToldByNameOrOrdinalNeverByAddress) {
  Memory m;
  int32_t* a = m.ints(4);
  int32_t* b = m.ints(4);
  m.memory.name(a, "A");
  EXPECT_EQ(m.memory.describe(a + 3), "A[3]");
  EXPECT_EQ(m.memory.describe(a + 4), "A[4]");
  EXPECT_EQ(m.memory.describe(b + 3), "allocation 2 + 12 B");
  EXPECT_EQ(m.memory.describe(nullptr), "no device memory");
}

TEST(Memory, PoisonFillsWhatIsWrittenAndNothingElse) {
  Memory m;
  int32_t* a = m.ints(4);
  int32_t* b = m.ints(4);
  std::memset(a, 0, 16);
  std::memset(b, 0, 16);
  m.memory.poison({read_of(a, 0, 4), write_of(a, 1, 2)});
  EXPECT_EQ(a[0], 0);
  EXPECT_EQ(a[1], -1);
  EXPECT_EQ(a[2], -1);
  EXPECT_EQ(a[3], 0);
  a[1] = 0;
  m.memory.poison({write_of(a, -2, 3)});
  EXPECT_EQ(a[0], -1);
  EXPECT_EQ(a[1], 0);
  m.memory.poison({write_of(a, -100, int64_t{1} << 60)});
  EXPECT_EQ(a[0], -1);
  EXPECT_EQ(a[3], -1);
  EXPECT_EQ(b[0], 0) << "a wild access has one output buffer";
  m.memory.poison({write_of(b, int64_t{1} << 50, 1), write_of(nullptr, 0, 1)});
  EXPECT_EQ(b[0], 0);
}

TEST(Memory, LargeBlocksAskForHugePages) {
  DeviceMemory memory({.capacity = 16 * kHugePage, .checked = false});
  const auto* small = static_cast<std::byte*>(memory.allocate(kHugePage / 2, AllocKind::kMalloc));
  const auto* large = static_cast<std::byte*>(memory.allocate(4 * kHugePage, AllocKind::kMalloc));
  ASSERT_NE(large, nullptr);
  if (mapping_flags(small).empty())
    GTEST_SKIP() << "whether huge pages were asked for is told in /proc/self/smaps, not here";
  EXPECT_FALSE(asks_for_huge_pages(mapping_flags(small)));
  EXPECT_TRUE(asks_for_huge_pages(mapping_flags(large + kHugePage)));
  EXPECT_TRUE(asks_for_huge_pages(mapping_flags(large + 2 * kHugePage)));
}

}  // namespace
}  // namespace shadowgraph::memory_test
