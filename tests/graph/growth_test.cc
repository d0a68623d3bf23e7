// What a long run leaves behind: nothing that grows with its length alone.
#include <gtest/gtest.h>

#include "executor_fixture.h"
#include "graph/executor/races.h"
#include "memory_fixture.h"
#include "store_fixture.h"

namespace shadowgraph::growth_test {
namespace {

// Writers.

TEST(Growth, WritersAreKeptForAsLongAsAGranuleNamesThem) {
  Memory m;
  constexpr int kWords = 100;
  int32_t* a = m.ints(kWords);
  for (int i = 0; i < 100'000; ++i) m.write(a, i % kWords, 1);
  EXPECT_LT(m.memory.held().origins, 10'000u);
}

TEST(Growth, WritersThatAreNamedSurviveEverySweep) {
  Memory m;
  constexpr int kWords = 20'000;  // as many writers: more than a sweep lets pass
  int32_t* a = m.ints(kWords);
  int32_t* other = m.ints(1);
  m.write(other, 0, 1);
  // Neither up nor down; operation i + 2 writes word 7919 i.
  for (int i = 0; i < kWords; ++i) m.write(a, i * 7919 % kWords, 1);
  for (int i = 0; i < 100'000; ++i) m.write(other, 0, 1);
  for (int i = 0; i < kWords; i += 7) {
    const int word = i * 7919 % kWords;
    // Owners make a finding say who wrote last.
    m.memory.set_owner(a + word, 4, 7);
    m.memory.set_row_owners(std::vector<OwnerId>{8});
    EXPECT_EQ(m.judge({read_of(a, word, 1, 0)}), "mem.wrong_region");
    const std::string writer = "operation " + std::to_string(i + 2) + ", step 0";
    EXPECT_NE(m.last.got.find("last written by kernel fill, " + writer), std::string::npos)
        << m.last.got;
  }
}

// Shadows.

TEST(Growth, ShadowsOfDeclaredPartsEndWithTheirAllocation) {
  Memory m;
  size_t after_first = 0;
  for (int i = 0; i < 200; ++i) {
    int32_t* a = m.ints(1 << 10);
    m.memory.declare({.address = a, .bytes = 1 << 11, .granule_bytes = 4, .name = "A"});
    m.memory.declare({.address = a + 512, .bytes = 1 << 11, .granule_bytes = 4, .name = "B"});
    m.write(a, 0, 512);
    EXPECT_TRUE(m.memory.release(a));
    if (i == 0) after_first = m.memory.held().shadow_bytes;
  }
  EXPECT_GT(after_first, 0u);
  EXPECT_EQ(m.memory.held().shadow_bytes, after_first);
}

TEST(Growth, AFreedPartStillTellsWhoWroteIt) {
  Memory m;
  int32_t* a = m.ints(64);
  m.memory.declare({.address = a, .bytes = 64, .granule_bytes = 4, .name = "A"});
  const BakedPointer was = m.memory.bake(a);
  m.write(a, 0, 16);
  m.memory.release(a);
  EXPECT_EQ(m.judge({read_of(a, 0, 1)}, {was}), "mem.use_after_free");
  EXPECT_NE(m.last.got.find("last written by kernel fill, operation 1"), std::string::npos)
      << m.last.got;
}

// Addresses of graph allocations.

class GrowingStore : public StoreTest {
 protected:
  static constexpr size_t kBytes = size_t{1} << 22;  // the memory holds 16 of them

  static Origin by(uint64_t serial) { return {serial, 0, 1, 0, Phase::kReplay, "mem_alloc"}; }
  GraphHandle graph_that_allocates(void** p) {
    const GraphHandle g = graph();
    *p = add_allocation(g, {}, nullptr, kBytes);
    return g;
  }
};

TEST_F(GrowingStore, AGraphThatIsDestroyedGivesItsAddressesBack) {
  void *first = nullptr, *p = nullptr;
  EXPECT_EQ(store_.destroy(graph_that_allocates(&first)), Error::kSuccess);
  for (int round = 0; round < 100; ++round) {
    const GraphHandle g = graph_that_allocates(&p);
    EXPECT_EQ(p, first);
    const ExecHandle exec = instantiate(g);
    EXPECT_EQ(store_.destroy(g), Error::kSuccess);
    EXPECT_EQ(store_.exec_destroy(exec), Error::kSuccess);
  }
}

TEST_F(GrowingStore, AnAddressStaysWhileAGraphAnExecOrALaunchNamesIt) {
  void *p = nullptr, *other = nullptr;
  const GraphHandle g = graph_that_allocates(&p);
  const ExecHandle exec = instantiate(g);
  EXPECT_EQ(store_.destroy(g), Error::kSuccess);
  EXPECT_NE(memory_.find_allocation(p), nullptr) << "the exec names it";
  const GraphHandle frees = graph();
  add(frees, {}, MemFreeParams{p});
  EXPECT_EQ(store_.destroy(frees), Error::kSuccess);
  EXPECT_NE(memory_.find_allocation(p), nullptr) << "the exec still does";
  std::shared_ptr<const ExecBody> launched = store_.find_exec(exec)->body;
  EXPECT_EQ(store_.exec_destroy(exec), Error::kSuccess);
  EXPECT_NE(memory_.find_allocation(p), nullptr) << "a launch names it";
  graph_that_allocates(&other);
  EXPECT_NE(other, p);
  launched.reset();
  EXPECT_EQ(memory_.find_allocation(p), nullptr);
}

TEST_F(GrowingStore, ALiveAllocationStaysUntilItIsFreedOutside) {
  void *p = nullptr, *other = nullptr;
  const GraphHandle g = graph_that_allocates(&p);
  memory_.begin_graph_allocation(p, by(1));
  EXPECT_EQ(store_.destroy(g), Error::kSuccess);
  graph_that_allocates(&other);
  EXPECT_NE(other, p);
  memory_.end_graph_allocation(p, by(2));
  graph_that_allocates(&other);
  EXPECT_EQ(other, p);
}

TEST_F(GrowingStore, AnAllocationThatIsFreedAndStillNamedStays) {
  void *p = nullptr, *other = nullptr;
  graph_that_allocates(&p);
  memory_.begin_graph_allocation(p, by(1));
  memory_.end_graph_allocation(p, by(2));
  graph_that_allocates(&other);
  EXPECT_NE(other, p);
}

TEST_F(GrowingStore, AnUpdatedExecNamesTheOtherGraphsAllocation) {
  void *p = nullptr, *other = nullptr;
  const GraphHandle g = graph_that_allocates(&p), update = graph_that_allocates(&other);
  const ExecHandle exec = instantiate(g);
  UpdateInfo info;
  EXPECT_EQ(store_.exec_update(exec, update, &info), Error::kSuccess);
  EXPECT_EQ(store_.destroy(g), Error::kSuccess);
  EXPECT_EQ(store_.destroy(update), Error::kSuccess);
  EXPECT_EQ(memory_.find_allocation(p), nullptr);
  EXPECT_NE(memory_.find_allocation(other), nullptr);
}

TEST_F(GrowingStore, AnAddressThatIsAnothersNowMayNotBeFreedByAGraph) {
  void* p = nullptr;
  EXPECT_EQ(store_.destroy(graph_that_allocates(&p)), Error::kSuccess);
  EXPECT_EQ(memory_.allocate(kBytes, AllocKind::kMalloc), p);
  EXPECT_EQ(try_add(graph(), {}, MemFreeParams{p}), Error::kInvalidValue);
}

// Bodies.

TEST_F(GrowingStore, ParametersChangeInPlaceWhereNoLaunchHasTheBody) {
  const GraphHandle child = graph(), g = graph();
  add(child, {}, fill(1));
  const NodeHandle node = add(g, {}, fill(1));
  add(g, {node}, ChildGraphParams{child});
  const ExecHandle exec = instantiate(g);
  const ExecBody* before = &body(exec);
  const ExecBody* inside = before->nodes[1].bodies[0].get();
  const NodeHandle in_child = inside->nodes[0].source;
  EXPECT_EQ(store_.exec_set_params(exec, node, fill(2)), Error::kSuccess);
  EXPECT_EQ(store_.exec_set_params(exec, in_child, fill(3)), Error::kSuccess);
  EXPECT_EQ(store_.set_enabled(exec, node, false), Error::kSuccess);
  EXPECT_EQ(&body(exec), before);
  EXPECT_EQ(body(exec).nodes[1].bodies[0].get(), inside);
  EXPECT_EQ(value_of(before->nodes[0].params), 2);
  EXPECT_EQ(value_of(inside->nodes[0].params), 3);
  EXPECT_FALSE(before->nodes[0].enabled);
}

TEST_F(GrowingStore, ALaunchKeepsTheBodyThatItHas) {
  const GraphHandle child = graph(), g = graph();
  add(child, {}, fill(1));
  add(g, {}, ChildGraphParams{child});
  const ExecHandle exec = instantiate(g);
  const std::shared_ptr<const ExecBody> launched = store_.find_exec(exec)->body;
  const NodeHandle in_child = launched->nodes[0].bodies[0]->nodes[0].source;
  for (const int32_t value : {2, 3}) {
    EXPECT_EQ(store_.exec_set_params(exec, in_child, fill(value)), Error::kSuccess);
    EXPECT_EQ(value_of(launched->nodes[0].bodies[0]->nodes[0].params), 1);
    EXPECT_EQ(value_of(body(exec).nodes[0].bodies[0]->nodes[0].params), value);
  }
}

// The log of accesses.

class GrowingWork : public ExecutorTest {
 protected:
  /// One operation on a lane of its own log, eager; after: what of other lanes is before it.
  void access(Races& races, Position at, const Footprint& spans, const Clock& after = {}) {
    Ordering order;
    order.position = at;
    order.before = after;
    Origin by;
    by.serial = ++serial_;
    by.what = "kernel fill";
    races.access({order, {}, by, {}, false}, spans);
  }
  static AccessSpan write(int32_t* p) { return {p, 0, 1, 4, Access::kWrite}; }
  static AccessSpan read(int32_t* p) { return {p, 0, 1, 4, Access::kRead}; }

  uint64_t serial_ = 0;
};

TEST_F(GrowingWork, WorkThatComesAgainIsLoggedOnce) {
  Races races(*memory, &findings);
  int32_t *a = ints(1), *b = ints(1);
  for (uint64_t tick = 1; tick <= 1000; ++tick) {
    access(races, {0, tick}, {tick % 2 == 0 ? write(a) : read(a)});
    access(races, {1, tick}, {write(b)});
  }
  EXPECT_LT(races.intervals(), 10u);
  EXPECT_EQ(found(), "");
}

TEST_F(GrowingWork, OtherAccessesReplaceNothing) {
  int32_t *a = ints(1), *b = ints(1);
  for (const Footprint& later : {Footprint{read(a)}, Footprint{write(b)}, Footprint{}}) {
    Races races(*memory, &findings);
    access(races, {0, 1}, {write(a)});
    for (uint64_t tick = 2; tick < 9; ++tick) access(races, {0, tick}, later);
    access(races, {1, 1}, {read(a)});
    EXPECT_EQ(found(), "mem.race");
  }
}

/// Whether an access on another lane is unordered with one of many equal ones is seen from the
/// newest one: it is after a tick of theirs, or after none.
TEST_F(GrowingWork, WhatIsUnorderedWithAnOlderOfEqualAccessesIsFound) {
  int32_t *a = ints(1), *b = ints(1);
  constexpr uint64_t kTicks = 6;
  for (uint64_t seen = 0; seen <= kTicks; ++seen) {
    Races races(*memory, &findings);
    for (uint64_t tick = 1; tick <= kTicks; ++tick) access(races, {0, tick}, {write(a)});
    access(races, {0, kTicks + 1}, {write(b)});
    Clock after;
    after.add(Position{0, seen});
    access(races, {1, 1}, {write(a)}, after);
    EXPECT_EQ(found().empty(), seen == kTicks) << seen;
  }
}

TEST_F(GrowingWork, ForgettingIsRightAfterReplacing) {
  Races races(*memory, &findings);
  int32_t *a = ints(1), *b = ints(1);
  for (uint64_t tick = 1; tick <= 9; ++tick) access(races, {0, tick}, {write(tick < 5 ? a : b)});
  Clock seen;
  seen.add(Position{0, 8});
  races.forget(seen);
  EXPECT_EQ(races.intervals(), 1u);
  access(races, {0, 10}, {write(a)});
  EXPECT_EQ(races.intervals(), 2u);
  access(races, {0, 11}, {write(b)});
  access(races, {0, 12}, {write(b)});
  seen.add(Position{0, 12});
  races.forget(seen);
  EXPECT_EQ(races.intervals(), 0u);
}

// Lanes.

TEST_F(GrowingWork, ALaneIsUsedAgainOnceTheHostHasSeenItsWork) {
  const size_t before = executor->lanes();
  for (int i = 0; i < 1000; ++i) {
    const uint32_t lane = executor->add_lane();
    executor->wait(run(lane, fill(ints(1), 1)));
    executor->remove_lane(lane);
  }
  EXPECT_EQ(executor->lanes(), before + 1);
}

TEST_F(GrowingWork, ALaneWhoseWorkNobodySawIsAnotherOne) {
  const uint32_t lane = executor->add_lane();
  int32_t* a = ints(1);
  run(lane, fill(a, 1));
  executor->remove_lane(lane);
  run(executor->add_lane(), fill(a, 2));
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(GrowingWork, ALaneWithPendingWorkIsAnotherOne) {
  make(nullptr, false);
  int32_t *flag = ints(1), *a = ints(1), *log = ints(4);
  const uint32_t lane = executor->add_lane();
  run(lane, spinflag(flag, a, 7));
  executor->remove_lane(lane);
  run(executor->add_lane(), append(log, 1));
  EXPECT_EQ(read_log(log), std::vector<int32_t>{1});
  *flag = 1;
  executor->wait_all();
  const size_t lanes = executor->lanes();
  executor->add_lane();
  EXPECT_EQ(executor->lanes(), lanes) << "it is done now, and unchecked nobody asks who saw it";
}

TEST_F(GrowingWork, LanesAreBoundedEvenIfTheHostNeverLooks) {
  for (int i = 0; i < 2000; ++i) {
    const uint32_t lane = executor->add_lane();
    run(lane, fill(ints(1), 1));
    executor->remove_lane(lane);
  }
  EXPECT_LT(executor->lanes(), 300u);
}

// Stream-ordered memory.

TEST_F(GrowingWork, WhoeverGetsFreedBytesComesAfterEveryOneThatHadThem) {
  // Freed on lane 0 in one piece, its front again on lane 1; then the whole place on lane 2.
  auto* whole = static_cast<std::byte*>(memory->allocate(1024, AllocKind::kPool));
  run(0, MemAllocParams{1024, whole});
  run(0, MemsetParams{whole, 1, 1, 1024, 1, 0});
  run(0, MemFreeParams{whole});
  void* front = memory->allocate(256, AllocKind::kPool);
  ASSERT_EQ(front, whole);
  run(1, MemAllocParams{256, front});
  run(1, MemsetParams{front, 2, 1, 256, 1, 0});
  run(1, MemFreeParams{front});
  void* back = memory->allocate(256, AllocKind::kPool);
  if (back == front) back = memory->allocate(256, AllocKind::kPool);
  ASSERT_GT(back, front);
  ASSERT_LT(back, whole + 1024);
  run(2, MemAllocParams{256, back});
  run(2, MemsetParams{back, 3, 1, 256, 1, 0});
  EXPECT_EQ(found(), "");
}

// Traps.

TEST(Traps, ACountThatCannotBeIsOutOfBoundsAndDoesNotRun) {
  for (const bool checked : {true, false}) {
    Memory m({.capacity = size_t{1} << 24, .checked = checked});
    int32_t* a = m.ints(4);
    constexpr int64_t kMost = INT64_MAX, kLeast = INT64_MIN;
    const std::pair<int64_t, int64_t> spans[] = {{0, -1},    {2, -2},        {0, kLeast},
                                                 {0, kMost}, {kMost, 1},     {kLeast, 1},
                                                 {1, kMost}, {kLeast, kMost}};
    for (const auto& [first, count] : spans) {
      std::fill_n(a, 4, 5);
      EXPECT_EQ(m.judge({write_of(a, first, count)}), checked ? "mem.out_of_bounds" : "");
      EXPECT_FALSE(m.may_run) << first << ' ' << count;
      m.memory.poison({write_of(a, first, count)});
    }
    EXPECT_EQ(m.judge({write_of(a, 4, 0), write_of(a + 9, kMost, 0)}), "");
    EXPECT_TRUE(m.may_run);
  }
}

TEST_F(GrowingWork, AKernelMaySetAConditionalHandleAnywhere) {
  static constinit const Kernel sets{"sets", [](LaunchFrame& f) {
                                       f.set_conditional(f, 17, 1);
                                       *f.pointer<int32_t>(0) = 1;
                                       return Progress::kDone;
                                     }};
  for (const bool checked : {true, false}) {
    make(nullptr, checked);
    int32_t* done = ints(2);
    run(0, kernel(sets, k::args(done)));
    Body g;
    add_to(g, kernel(sets, k::args(done + 1)));
    launch(0, g);
    EXPECT_EQ(done[0] + done[1], 2);
  }
}

}  // namespace
}  // namespace shadowgraph::growth_test
