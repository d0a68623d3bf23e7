// Places of memory at their edges: what is no allocation, no buffer, not live any more, or no place
// at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "graph/memory/memory.h"
#include "graph/memory/shadow.h"
#include "graph/memory_fixture.h"

namespace shadowgraph::memory_places_test {
namespace {

TEST(MemoryPlaces, BakedPointersAreEqualInAllOrNotEqual) {
  const std::array<std::byte, 2> bytes{};
  const BakedPointer p{bytes.data(), 1, 2, 3};
  const BakedPointer others[] = {{bytes.data() + 1, 1, 2, 3},
                                 {bytes.data(), 2, 2, 3},
                                 {bytes.data(), 1, 3, 3},
                                 {bytes.data(), 1, 2, 4}};
  EXPECT_EQ(p, BakedPointer(p));
  for (const BakedPointer& other : others) EXPECT_NE(p, other);
}

TEST(MemoryPlaces, AnAllocationsPlaceIsItselfAndItsRedZones) {
  Memory m;
  int32_t* a = m.ints(4);
  const auto* begin = reinterpret_cast<const std::byte*>(a) - kRedZone;
  for (const int32_t* inside : {a, a + 3, a + 4}) {
    EXPECT_EQ(m.memory.place_of(inside).data(), begin);
    EXPECT_EQ(m.memory.place_of(inside).size(), kRedZone + kAlignment + kRedZone);
  }
  EXPECT_TRUE(m.memory.release(a));
  EXPECT_EQ(m.memory.place_of(a).data(), begin) << "live or not";
  int32_t local = 0;
  for (const int32_t* outside : {&local, static_cast<int32_t*>(nullptr), a - 1024, a + 1024})
    EXPECT_TRUE(m.memory.place_of(outside).empty());
}

TEST(MemoryPlaces, WhereNoAllocationIsNothingIsKnown) {
  Memory m;
  int32_t* a = m.ints(4);
  int32_t local = 0;
  for (int32_t* p : {a - 64, a + 1024}) {  // before the first allocation, behind the last one
    EXPECT_EQ(m.memory.describe(p), "no allocation");
    EXPECT_EQ(m.memory.bake(p), BakedPointer{.address = p});
    EXPECT_EQ(m.judge({write_of(p, 0, 1)}), "mem.out_of_bounds");
    EXPECT_EQ(m.last.where.field, "no allocation");
    EXPECT_TRUE(m.may_run) << "the address is mapped";
    m.memory.poison({write_of(p, 0, 1)});
    EXPECT_EQ(*p, 0);
  }
  for (int32_t* p : {a - 64, a + 1024, a + 1, &local}) {
    EXPECT_EQ(m.memory.find_allocation(p), nullptr);
    EXPECT_EQ(m.memory.find_allocation_of(p) != nullptr, p == a + 1);
    EXPECT_EQ(m.memory.reserve(p), nullptr);
    EXPECT_FALSE(m.memory.release(p));
    m.memory.begin_graph_allocation(p, m.eager());
    m.memory.end_graph_allocation(p, m.eager());
    EXPECT_EQ(m.memory.graph_bytes_backed(), 0u);
  }
  EXPECT_EQ(m.memory.allocate(0, AllocKind::kMalloc), nullptr);
  EXPECT_EQ(m.memory.reserve(a), nullptr) << "no graph's allocation";
}

TEST(MemoryPlaces, OnlyALiveBlockCostsAShadow) {
  Memory m;
  int32_t* a = m.ints(4);
  int32_t local = 0;
  EXPECT_EQ(m.memory.cost_of(a + 3).shadow_bytes, 4u * 9u);
  for (const int32_t* p : {&local, static_cast<int32_t*>(nullptr), a + 1024})
    EXPECT_EQ(m.memory.cost_of(p).arena_bytes, 0u);
  m.memory.release(a);
  EXPECT_EQ(m.memory.cost_of(a).arena_bytes, 0u);
  EXPECT_EQ(m.memory.cost_of(a).shadow_bytes, 0u);
}

TEST(MemoryPlaces, ABufferIsSomethingInsideALiveAllocation) {
  Memory m;
  int32_t *a = m.ints(4), *ended = m.ints(4);
  int32_t local = 0;
  m.memory.release(ended);
  const BufferDecl refused[] = {
      {a, 0, 4, Lifetime::kConstant, "of nothing"},
      {a, 16, 0, Lifetime::kConstant, "without granules"},
      {a, 17, 1, Lifetime::kConstant, "too long"},
      {a, SIZE_MAX - 64, 4, Lifetime::kConstant, "around the end of all addresses"},
      {ended, 16, 4, Lifetime::kConstant, "in freed memory"},
      {a + 1024, 16, 4, Lifetime::kConstant, "in no allocation"},
      {&local, 4, 4, Lifetime::kConstant, "on the host"},
      {nullptr, 4, 4, Lifetime::kConstant, "nowhere"}};
  for (const BufferDecl& decl : refused) m.memory.declare(decl);
  EXPECT_EQ(m.memory.describe(a), "allocation 1 + 0 B");
  EXPECT_EQ(m.memory.describe(ended), "allocation 2 + 0 B");
  EXPECT_EQ(m.judge({write_of(a, 0, 4)}), "");
}

TEST(MemoryPlaces, ABufferEndsWhereItBeginsAndNowhereElse) {
  Memory m;
  int32_t* a = m.ints(64);
  int32_t local = 0;
  m.memory.declare({a + 8, 16, 4, Lifetime::kConstant, "A"});
  const auto is_live = [&] { return m.judge({write_of(a + 8, 0, 4)}) == ""; };
  for (const int32_t* p : {a, a + 9, a + 1024, &local, static_cast<int32_t*>(nullptr)}) {
    m.memory.undeclare(p);
    EXPECT_TRUE(is_live());
  }
  EXPECT_EQ(m.memory.bake(a + 7).offset, 28u) << "before the first buffer: the allocation's";
  m.memory.undeclare(a + 8);
  EXPECT_FALSE(is_live());
}

TEST(MemoryPlaces, NamesAreForWhatLives) {
  Memory m;
  int32_t *a = m.ints(4), *b = m.ints(4);
  int32_t local = 0;
  m.memory.release(a);
  for (const int32_t* p : {a, b + 1024, &local, static_cast<int32_t*>(nullptr)})
    m.memory.name(p, "nobody");
  EXPECT_EQ(m.memory.describe(a), "allocation 1 + 0 B");
  m.memory.name(b + 2, "B");
  EXPECT_EQ(m.memory.describe(b), "B[0]");
}

TEST(MemoryPlaces, WhatIsNoDeviceMemoryHasNoOwnerAndIsNotRetired) {
  Memory m;
  int32_t* a = m.ints(4);
  int32_t local = 5;
  m.write(a, 0, 4);
  a[0] = 7;
  m.memory.retire(&local, 4);
  m.memory.set_owner(&local, 4, 1);
  m.memory.add_owner(nullptr, 4, 1);
  Status status;
  m.memory.judge_output(&local, 4, 0, &status);
  EXPECT_TRUE(status.ok());
  m.memory.retire(a, 3);  // less than a granule
  EXPECT_EQ(local, 5);
  EXPECT_EQ(a[0], 7);
  EXPECT_EQ(m.judge({read_of(a, 0, 4)}), "");
  m.memory.retire(a + 1, SIZE_MAX);  // all that there is
  EXPECT_EQ(a[0], 7);
  EXPECT_EQ(a[3], -1);
  EXPECT_EQ(m.judge({read_of(a, 0, 2)}), "mem.stale_input");
}

TEST(MemoryPlaces, PoisonIsForLiveMemory) {
  Memory m;
  int32_t* a = m.ints(4);
  std::memset(a, 0, 16);
  m.memory.poison({write_of(a, 0, 0), write_of(a, 2, -1)});
  EXPECT_EQ(a[0], 0);
  EXPECT_EQ(a[2], 0);
  m.memory.release(a);
  m.memory.poison({write_of(a, 0, 4)});
  EXPECT_EQ(a[0], 0);
}

TEST(MemoryPlaces, NoFirstAndCountAreTooLargeToJudge) {
  Memory m;
  int32_t* a = m.ints(4);
  const auto bytes = [&](int64_t first, int64_t count, uint32_t size) {
    return AccessSpan{a, first, count, size, Access::kRead};
  };
  for (const AccessSpan& span :
       {bytes(INT64_MAX, 1, 4), bytes(INT64_MAX, 1, 1), bytes(0, INT64_MAX, 4),
        bytes(INT64_MAX - 1000, 1000, 1), bytes(INT64_MIN, 1, 1), bytes(0, -1, 4),
        bytes(0, int64_t{1} << 40, 4), bytes(-(int64_t{1} << 40), 1, 4)}) {
    EXPECT_EQ(m.judge({span}), "mem.out_of_bounds") << span.first << " " << span.count;
    EXPECT_FALSE(m.may_run);
    EXPECT_EQ(m.last.where.field, "allocation 1");
    EXPECT_EQ(m.judge({write_of(nullptr, span.first, 1)}), "mem.out_of_bounds");
    EXPECT_FALSE(m.may_run);
    EXPECT_EQ(m.last.where.field, "no allocation");
  }
  EXPECT_EQ(m.judge({bytes(INT64_MAX, 0, 4), bytes(INT64_MAX, 1, 0)}), "") << "of nothing";
  EXPECT_TRUE(m.may_run);
}

TEST(MemoryPlaces, FreedNeighboursInTheMiddleAreJoinedToo) {
  Memory m({.capacity = 8192});
  std::vector<int32_t*> p;
  for (int32_t* next = m.ints(64); next != nullptr; next = m.ints(64)) p.push_back(next);
  ASSERT_EQ(p.size(), 15u);
  for (const size_t i : {4, 8, 3}) EXPECT_TRUE(m.memory.release(p[i]));
  EXPECT_EQ(m.ints(192), p[3]);
  EXPECT_EQ(m.ints(192), nullptr) << "one block is left, by itself";
  EXPECT_EQ(m.ints(64), p[8]);
}

// The shadow's table of writers.

TEST(MemoryPlaces, AWriterIsAddedOnceInARow) {
  Origins origins;
  const Origin by{1, 2, 3, 4, Phase::kReplay, "kernel fill"};
  const uint32_t first = origins.add(by);
  EXPECT_EQ(origins.add(by), first);
  uint32_t last = first;
  const auto is_new = [&](auto change) {
    Origin other = by;
    change(other);
    const uint32_t number = origins.add(other);
    return number == std::exchange(last, number) + 1;
  };
  EXPECT_TRUE(is_new([](Origin& o) { ++o.serial; }));
  EXPECT_TRUE(is_new([](Origin&) {}));
  EXPECT_TRUE(is_new([](Origin& o) { ++o.launch; }));
  EXPECT_TRUE(is_new([](Origin&) {}));
  EXPECT_TRUE(is_new([](Origin& o) { ++o.node; }));
  EXPECT_TRUE(is_new([](Origin&) {}));
  EXPECT_TRUE(is_new([](Origin& o) { ++o.step; }));
  EXPECT_TRUE(is_new([](Origin&) {}));
  EXPECT_TRUE(is_new([](Origin& o) { o.what = "kernel add"; }));
  EXPECT_FALSE(is_new([](Origin& o) { o.what = "kernel add"; }));
}

TEST(MemoryPlaces, ASetOfOwnersHoldsEachOnceAndNobodyNever) {
  OwnerSets sets;
  EXPECT_EQ(sets.only(0), 0u);
  const uint32_t one = sets.only(7);
  EXPECT_EQ(sets.with(one, 0), one);
  EXPECT_EQ(sets.with(one, 7), one);
  EXPECT_EQ(sets.with(0, 7), one);
  const uint32_t two = sets.with(one, 3);
  EXPECT_EQ(sets.with(sets.only(3), 7), two);
  EXPECT_TRUE(std::ranges::equal(sets.members(two), std::vector<OwnerId>{3, 7}));
  EXPECT_FALSE(sets.contains(one, 3));
}

TEST(MemoryPlaces, WritersAreKeptAsLongAsAGranuleNamesThem) {
  Memory m;
  int32_t *a = m.ints(4), *arena = m.ints(64), *b = m.ints(4);
  m.memory.declare({arena, 16, 4, Lifetime::kPersistent, "A"});  // the rest has no shadow
  m.write(a, 0, 4);
  m.write(a, 3, 1);
  m.write(a, 1, 1);
  for (int i = 0; i < 10000; ++i) m.write(b, 0, 1);
  EXPECT_LT(m.memory.held().origins, 5000u);
  m.memory.retire(a, 16);
  EXPECT_EQ(m.judge({read_of(a, 0, 1)}), "mem.stale_input");
  EXPECT_NE(m.last.got.find("operation 1,"), std::string::npos) << m.last.got;
  EXPECT_EQ(m.judge({read_of(a, 1, 1)}), "mem.stale_input");
  EXPECT_NE(m.last.got.find("operation 3,"), std::string::npos) << m.last.got;
  EXPECT_EQ(m.judge({read_of(a, 2, 1)}), "mem.stale_input");
  EXPECT_NE(m.last.got.find("operation 1,"), std::string::npos) << m.last.got;
  EXPECT_EQ(m.judge({read_of(a, 3, 1)}), "mem.stale_input");
  EXPECT_NE(m.last.got.find("operation 2,"), std::string::npos) << m.last.got;
}

TEST(MemoryPlaces, AWriteOutsideMemoryMarksNothing) {
  Memory m;
  int32_t* a = m.ints(4);
  m.memory.commit(m.eager(), {write_of(a, INT64_MAX, 1), write_of(nullptr, 0, 4), read_of(a, 0, 4),
                              write_of(a, 0, 0), write_of(a, 3, -1)});
  EXPECT_EQ(m.judge({read_of(a, 0, 4)}), "mem.uninit_read");
}

// Graph allocations.

TEST(MemoryPlaces, ABufferInAGraphAllocationLivesAndEndsWithIt) {
  Memory m;
  auto* p = static_cast<int32_t*>(m.memory.allocate(64, AllocKind::kGraph));
  m.memory.declare({p, 16, 4, Lifetime::kPersistent, "A"});
  const BakedPointer baked = m.memory.bake(p);
  EXPECT_EQ(m.judge({write_of(p, 0, 4)}, {baked}), "mem.use_after_free") << "not begun";
  for (uint64_t launch = 1; launch <= 2; ++launch) {
    m.memory.begin_graph_allocation(p, m.replay(launch, 0));
    EXPECT_EQ(m.judge({read_of(p, 0, 4)}, {baked}), "mem.uninit_read") << "new in every launch";
    m.write(p, 0, 4);
    EXPECT_EQ(m.judge({read_of(p, 0, 4)}, {baked}), "");
    m.memory.end_graph_allocation(p, m.replay(launch, 3));
    EXPECT_EQ(m.judge_by(m.eager(), {read_of(p, 0, 4)}, {baked}), "mem.use_after_free");
    EXPECT_EQ(m.judge_by(m.replay(launch, 4), {read_of(p, 0, 4)}, {baked}), "mem.unordered_access");
    EXPECT_NE(m.last.got.find("node 3 of launch"), std::string::npos) << m.last.got;
  }
  const BakedPointer behind = m.memory.bake(p + 8);
  m.memory.release(p);
  EXPECT_EQ(m.judge_by(m.replay(3, 1), {read_of(p + 8, 0, 1)}, {behind}), "mem.use_after_free")
      << "no order of nodes decides that";
}

TEST(MemoryPlaces, ALeakIsAnAllocationsNotABuffers) {
  Memory m;
  auto* pool = static_cast<int32_t*>(m.memory.allocate(64, AllocKind::kPool));
  m.memory.allocate(64, AllocKind::kGraph);  // not begun
  m.memory.declare({pool, 16, 4, Lifetime::kPersistent, "A"});
  Status leaks;
  m.memory.judge_leaks(&leaks);
  EXPECT_EQ(leaks.to_string(),
            "mem.leak: allocation 1 is live, 64 B; never written, expected freed");
}

TEST(MemoryPlaces, UncheckedGraphAllocationsAreBackedAndKeepWhatTheyHold) {
  Memory m({.capacity = 1 << 20, .checked = false});
  auto* p = static_cast<int32_t*>(m.memory.allocate(64, AllocKind::kGraph));
  p[0] = 7;
  m.memory.begin_graph_allocation(p, m.replay(1, 0));
  EXPECT_EQ(p[0], 7);
  EXPECT_EQ(m.memory.graph_bytes_backed(), 64u);
  m.memory.trim_graph_memory();
  EXPECT_EQ(m.memory.graph_bytes_backed(), 64u) << "in use";
  m.memory.end_graph_allocation(p, m.replay(1, 1));
  m.memory.trim_graph_memory();
  EXPECT_EQ(m.memory.graph_bytes_backed(), 0u);
  m.memory.poison({write_of(p, 0, 4)});
  m.memory.add_owner(p, 64, 1);
  Status status;
  m.memory.judge_output(p, 64, 0, &status);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(p[0], 7);
}

// Judgements of what is not what it was.

TEST(MemoryPlaces, AFreedRedZoneWasWrittenByNobody) {
  Memory m;
  int32_t* a = m.ints(4);
  m.write(a, 0, 4);
  const BakedPointer behind = m.memory.bake(a + 4), inside = m.memory.bake(a);
  m.memory.release(a);
  EXPECT_EQ(m.judge({write_of(a + 4, 0, 1)}, {behind}), "mem.use_after_free");
  EXPECT_NE(m.last.got.find("never written"), std::string::npos) << m.last.got;
  EXPECT_EQ(m.judge({{a, 0, 1, 0, Access::kWrite}}, {inside}), "") << "of no bytes";
  EXPECT_EQ(m.judge({write_of(a, 0, 1)}, {inside}), "mem.use_after_free");
  EXPECT_NE(m.last.got.find("last written by kernel fill"), std::string::npos) << m.last.got;
}

TEST(MemoryPlaces, TheNameOfOneGenerationBeforeIsKnownAndNoOlderOne) {
  Memory m;
  int32_t* a = m.ints(4);
  const BakedPointer baked = m.memory.bake(a);
  const auto next = [&](const char* name) {
    m.memory.release(a);
    ASSERT_EQ(m.ints(4), a);
    if (name != nullptr) m.memory.name(a, name);
    EXPECT_EQ(m.judge({write_of(a, 0, 4)}, {baked}), "mem.stale_generation");
  };
  next(nullptr);
  EXPECT_EQ(m.last.where.field, "allocation 2") << "it had no name";
  next("B");
  EXPECT_EQ(m.last.where.field, "B");
  EXPECT_NE(m.last.got.find("is B now, generation 3"), std::string::npos) << m.last.got;
  next("C");
  EXPECT_EQ(m.last.where.field, "C") << "B came after the pointer";
}

TEST(MemoryPlaces, APointerOlderThanABufferEndsWithIt) {
  Memory m;
  int32_t* a = m.ints(64);
  const BakedPointer before = m.memory.bake(a);
  m.memory.declare({a, 16, 4, Lifetime::kPersistent, "A"});
  EXPECT_EQ(m.judge({write_of(a, 0, 4)}, {before}), "");
  m.memory.undeclare(a);
  EXPECT_EQ(m.judge({write_of(a, 0, 4)}, {before}), "mem.use_after_free");
  EXPECT_EQ(m.last.where.field, "A");
}

TEST(MemoryPlaces, FarFromItsBufferAnAccessIsInNoRedZone) {
  Memory m;
  int32_t *first = m.ints(1024), *a = m.ints(4), *last = m.ints(1024);
  m.memory.release(first);
  m.memory.release(last);
  EXPECT_EQ(m.judge({write_of(a, -1, 1)}), "mem.red_zone");
  EXPECT_EQ(m.last.where.field, "allocation 2 - 1 B");
  EXPECT_EQ(m.judge({write_of(a, 4, 1)}), "mem.red_zone");
  EXPECT_EQ(m.last.where.field, "allocation 2 + 16 B");
  for (const int64_t far : {-256, 256}) {
    EXPECT_EQ(m.judge({write_of(a, far, 1)}), "mem.out_of_bounds");
    EXPECT_EQ(m.last.got.find("no allocation"), 0u) << m.last.got;
  }
}

TEST(MemoryPlaces, AnOverrunLandsInTheFirstBufferThatLives) {
  Memory m;
  int32_t *before = m.ints(4), *arena = m.ints(1024);
  int32_t* place = arena;
  for (const char* name : {"A", "B", "C", "D"}) {
    m.memory.declare({place, 16, 4, Lifetime::kPersistent, name});
    place += 128;
  }
  m.memory.undeclare(arena + 128);
  const auto landed = [&](const char* where) {
    return m.last.got.find(std::string("lands in ") + where) == 0;
  };
  EXPECT_EQ(m.judge({write_of(arena, 0, 400)}), "mem.out_of_bounds");
  EXPECT_TRUE(landed("C[0]")) << m.last.got;
  EXPECT_EQ(m.judge({write_of(arena + 384, -200, 201)}), "mem.out_of_bounds");
  EXPECT_TRUE(landed("C[0]")) << m.last.got;
  EXPECT_EQ(m.judge({write_of(before, 0, 400)}), "mem.out_of_bounds");
  EXPECT_TRUE(landed("A[0]")) << m.last.got;
  EXPECT_EQ(m.judge({write_of(arena + 384, 0, 20)}), "mem.red_zone");
  EXPECT_EQ(m.judge({write_of(arena + 384, 0, 200)}), "mem.out_of_bounds");
  EXPECT_EQ(m.last.got.find("no allocation"), 0u) << m.last.got;
}

TEST(MemoryPlaces, OfABufferOfLaterWorkOneClobberIsTold) {
  Memory m;
  int32_t* out = m.ints(8);
  m.write(out, 0, 8);
  const uint64_t ticket = m.serial;
  m.write(out, 2, 1);
  m.write(out, 5, 1);
  Status clobbered;
  m.memory.judge_output(out, SIZE_MAX, ticket, &clobbered);
  ASSERT_EQ(clobbered.findings().size(), 1u);
  EXPECT_EQ(clobbered.findings()[0].where.field, "allocation 1 + 8 B");
}

}  // namespace
}  // namespace shadowgraph::memory_places_test
