// Races: what is unordered is found, in every schedule and once; what is ordered never is.
#include "graph/executor/races.h"

#include <numeric>

#include "executor_fixture.h"

namespace shadowgraph::races_test {
namespace {

class RacesTest : public ExecutorTest {};

TEST_F(RacesTest, TwoLanesThatWriteTheSameBytesRace) {
  int32_t* a = ints(4);
  memory->name(a, "A");
  run(0, fill(a, 1, 4));
  run(1, fill(a + 2, 2, 1));
  EXPECT_EQ(found(), "mem.race");
  EXPECT_NE(last.find("A[2]"), std::string::npos) << last;
  EXPECT_NE(last.find("kernel fill"), std::string::npos) << last;
}

TEST_F(RacesTest, WorkOnOneLaneIsOrdered) {
  int32_t* a = ints(4);
  run(0, fill(a, 1, 4));
  run(0, fill(a, 2, 4));
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, DisjointBytesDoNotRace) {
  int32_t* a = ints(4);
  run(0, fill(a, 1, 2));
  run(1, fill(a + 2, 2, 2));
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, ReadsDoNotRaceAndAReadWithAWriteDoes) {
  int32_t *a = ints(1), *b = ints(1), *c = ints(1);
  run(0, copy(b, a));
  run(1, copy(c, a));
  EXPECT_EQ(found(), "");
  run(2, fill(a, 1));
  EXPECT_EQ(found(), "mem.race mem.race");
}

TEST_F(RacesTest, AMarkerOrders) {
  int32_t* a = ints(1);
  const Marker first = run(0, fill(a, 1));
  run(1, fill(a, 2), {first});
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, WhatTheHostHasSeenDoneIsBeforeWhatItEnqueuesNextAndWhatHasSettledIsNot) {
  int32_t *a = ints(1), *b = ints(1);
  run(0, fill(a, 1));
  executor->wait_all();
  run(1, fill(a, 2));
  EXPECT_EQ(found(), "");
  run(0, fill(b, 1));
  executor->settle();
  run(1, fill(b, 2));
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RacesTest, OrderIsTransitive) {
  int32_t *a = ints(1), *b = ints(1);
  const Marker first = run(0, fill(a, 1));
  const Marker second = run(1, fill(b, 1), {first});
  run(2, fill(a, 2), {second});
  EXPECT_EQ(found(), "");
  run(0, fill(b, 3));
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RacesTest, TheHostThatWaitedOrders) {
  int32_t* a = ints(1);
  executor->wait(run(0, fill(a, 1)));
  run(1, fill(a, 2));
  EXPECT_EQ(found(), "");
  run(0, fill(a, 3));
  EXPECT_EQ(found(), "mem.race");
  executor->wait_all();
  run(1, fill(a, 4));
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, TheHostThatSawItDoneOrders) {
  int32_t* a = ints(1);
  executor->observe(run(0, fill(a, 1)));
  run(1, fill(a, 2));
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, WorkEnqueuedBeforeTheHostWaitedIsNotOrdered) {
  make_lazy();
  int32_t* a = ints(1);
  const Marker first = run(0, fill(a, 1));
  run(1, fill(a, 2));
  executor->wait(first);
  executor->wait_all();
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RacesTest, TransfersAreUnorderedAccesses) {
  int32_t* a = ints(4);
  const std::vector<int32_t> h(4, 5);
  run(0, transfer(a, h.data(), 16, MemcpyKind::kHostToDevice));
  run(1, add(a + 3, 1));
  EXPECT_EQ(found(), "mem.unordered_access");
}

TEST_F(RacesTest, CopiesFromPinnedMemoryAreTransfersAndCopiesOnTheDeviceAreNot) {
  int32_t *a = ints(4), *b = ints(4), *h = ints(4, 1, AllocKind::kPinned);
  run(0, transfer(a, h, 16, MemcpyKind::kHostToDevice));
  run(1, add(a, 1));
  EXPECT_EQ(found(), "mem.unordered_access");
  executor->wait_all();
  run(0, transfer(a, b, 16, MemcpyKind::kDeviceToDevice));
  run(1, add(a, 1));
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RacesTest, NodesWithoutAnEdgeRaceOnceForAllLaunches) {
  int32_t* a = ints(1);
  Body g;
  add_to(g, fill(a, 1));
  add_to(g, fill(a, 2));
  launch(0, g);
  EXPECT_EQ(found(), "mem.race");
  EXPECT_NE(last.find("node 0 of launch 1"), std::string::npos) << last;
  EXPECT_NE(last.find("node 1 of launch 1"), std::string::npos) << last;
  launch(0, g);
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, NodesWithAPathDoNotRace) {
  int32_t* a = ints(1);
  Body g;
  add_to(g, fill(a, 1));
  add_to(g, EmptyParams{}, {0});
  add_to(g, EmptyParams{}, {0});
  add_to(g, fill(a, 2), {1, 2});
  launch(0, g);
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, AChainInsideABranchRacesWithTheOtherBranch) {
  int32_t* a = ints(1);
  Body child, g;
  add_to(child, fill(a, 1));
  add_to(child, fill(a, 2), {0});
  nest(g, ChildGraphParams{}, {&child});
  add_to(g, EmptyParams{}, {0});
  add_to(g, fill(a, 3), {0});
  launch(0, g);
  EXPECT_EQ(found(), "");
  Body parallel;
  child.base = 100;
  nest(parallel, ChildGraphParams{}, {&child});
  parallel.base = 100;
  add_to(parallel, fill(a, 3));
  launch(0, parallel);
  EXPECT_EQ(found(), "mem.race mem.race");
}

TEST_F(RacesTest, IterationsOfALoopAreOrdered) {
  int32_t *a = ints(1), *n = ints(1, 3);
  const ConditionalHandle h{7};
  Body step, g;
  add_to(step, add(a, 1));
  add_to(step, kernel(k::whilestep, k::args(n, h)));
  g.add_handle({h, 1, true, true});
  nest(g, ConditionalParams{h, ConditionalType::kWhile, 1, {}}, {&step});
  launch(0, g);
  executor->wait_all();
  EXPECT_EQ(*a, 3);
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, AMarkerAtANodeOrdersWhatIsBeforeTheNodeOnly) {
  int32_t *a = ints(1), *b = ints(1);
  Body g;
  add_to(g, fill(a, 1));
  add_to(g, EventRecordParams{{5}}, {0});
  add_to(g, fill(b, 1));
  const Marker whole = launch(0, g);
  const Marker node{whole.serial, g.at(1).source};
  run(1, fill(a, 2), {node});
  EXPECT_EQ(found(), "");
  run(1, fill(b, 2));
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RacesTest, AnEventWaitNodeOrdersWhatIsBehindItOnly) {
  int32_t *a = ints(1), *b = ints(1);
  events[{5}] = run(0, fill(a, 1));
  Body g;
  add_to(g, EventWaitParams{{5}});
  add_to(g, fill(a, 2), {0});
  const Marker waiting = launch(1, g);
  EXPECT_EQ(found(), "");
  run(2, fill(a, 3), {waiting});
  EXPECT_EQ(found(), "");
  executor->wait_all();
  events[{5}] = run(0, fill(b, 1));
  Body beside;
  beside.base = 100;
  add_to(beside, EventWaitParams{{5}});
  add_to(beside, fill(b, 2));
  launch(1, beside);
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RacesTest, AnAllocationWithoutOrderIsFoundAloneInEverySchedule) {
  for (uint32_t pick = 0; pick < 3; ++pick) {
    make([pick](uint32_t bound) { return std::min(pick, bound - 1); });
    auto* p = static_cast<int32_t*>(memory->allocate(64, AllocKind::kGraph));
    Body g;
    add_to(g, MemAllocParams{64, p});
    add_to(g, fill(p, 6, 4));
    add_to(g, MemFreeParams{p}, {0});
    launch(0, g);
    executor->wait_all();
    EXPECT_EQ(found(), "mem.unordered_access mem.unordered_access") << "pick " << pick;
  }
}

TEST_F(RacesTest, AnOrderedAllocationIsClean) {
  auto* p = static_cast<int32_t*>(memory->allocate(64, AllocKind::kGraph));
  Body g;
  add_to(g, MemAllocParams{64, p});
  add_to(g, fill(p, 6, 4), {0});
  add_to(g, MemFreeParams{p}, {1});
  launch(0, g);
  launch(0, g);
  executor->wait_all();
  EXPECT_EQ(found(), "");
}

TEST_F(RacesTest, FreedMemoryIsHandedOutAgainInOrder) {
  auto* p = static_cast<int32_t*>(memory->allocate(64, AllocKind::kPool));
  run(0, MemAllocParams{64, p});
  run(0, fill(p, 1, 4));
  run(0, MemFreeParams{p});
  ASSERT_EQ(memory->allocate(64, AllocKind::kPool), p);
  run(1, MemAllocParams{64, p});
  run(1, fill(p, 2, 4));
  EXPECT_EQ(found(), "");
  run(2, fill(p, 3, 4));  // ordered with neither the allocation nor the fill
  EXPECT_EQ(found().find("mem.unordered_access"), 0u);
}

TEST_F(RacesTest, ACopyRacesWithItselfWhereItsSidesOverlap) {
  int32_t* a = ints(8);
  run(0, transfer(a + 4, a, 16, MemcpyKind::kDeviceToDevice));
  EXPECT_EQ(found(), "");
  std::iota(a, a + 8, 0);
  run(0, transfer(a + 1, a, 24, MemcpyKind::kDeviceToDevice));
  EXPECT_EQ(found(), "mem.race");
  EXPECT_EQ(std::vector<int32_t>(a, a + 8), (std::vector<int32_t>{0, 0, 1, 2, 3, 4, 5, 7}));
}

TEST_F(RacesTest, ColumnsOfOneMatrixDoNotOverlap) {
  int32_t* a = ints(16);
  run(0, MemcpyParams{a + 2, a, 8, 4, 16, 16, MemcpyKind::kDeviceToDevice});
  EXPECT_EQ(found(), "");
  run(0, MemcpyParams{a + 1, a, 8, 4, 16, 16, MemcpyKind::kDeviceToDevice});
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RacesTest, WhatTheHostHasSeenIsForgotten) {
  Races races(*memory, &findings);
  int32_t* a = ints(64);
  Ordering op;
  op.position = {1, 1};
  Footprint every_other;
  for (int i = 0; i < 64; i += 2) every_other.push_back({a, i, 1, 4, Access::kWrite});
  races.access({op, {}, {}, {}, false}, every_other);
  EXPECT_EQ(races.intervals(), 32u);
  op.position = {1, 2};
  races.access({op, {}, {}, {}, false},
               {{a, 0, 32, 4, Access::kRead}, {a, 32, 32, 4, Access::kRead}});
  EXPECT_EQ(races.intervals(), 33u);
  Clock seen;
  seen.add(Position{1, 1});
  races.forget(seen);
  EXPECT_EQ(races.intervals(), 1u);
}

TEST_F(RacesTest, TheLogIsBounded) {
  Races races(*memory, &findings);
  int32_t* a = ints((1 << 12) + 200);
  for (uint64_t tick = 1; tick < 200; ++tick) {
    Footprint every_other;
    for (int i = 0; i < 1 << 12; i += 2) every_other.push_back({a + tick, i, 1, 4, Access::kWrite});
    Ordering op;
    op.position = {1, tick};
    Origin by;
    by.serial = tick;
    races.access({op, {}, by, {}, false}, every_other);
  }
  EXPECT_EQ(races.intervals(), size_t{1} << 18);
}

}  // namespace
}  // namespace shadowgraph::races_test
