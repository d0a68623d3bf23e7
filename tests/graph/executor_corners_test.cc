// The executor at its edges: markers at what is not there, work that waits inside other work, logs
// that are full, and the same without a shadow.
#include "graph/executor/happens_before.h"
#include "graph/executor/node_work.h"
#include "graph/executor/races.h"
#include "graph/executor_fixture.h"
#include "graph/memory/host_memory.h"

namespace shadowgraph::executor_corners_test {
namespace {

using Values = std::vector<int32_t>;

Progress for_ever_body(LaunchFrame&) { return Progress::kWaiting; }
constinit const Kernel kForEver{"for_ever", for_ever_body};

class ExecutorCorners : public ExecutorTest {
 protected:
  static KernelLaunch for_ever() { return {&kForEver, {}, {}, 0, {}, false}; }
  /// A body that holds the body in a child node.
  Body around(const Body& inner, uint64_t base) {
    Body outer;
    outer.base = base;
    nest(outer, ChildGraphParams{}, {&inner});
    return outer;
  }
};

// Markers.

TEST_F(ExecutorCorners, WhatNeverWasIsDone) {
  for (const uint64_t serial : {0, 1, 12345}) EXPECT_TRUE(executor->done({serial, {}}));
}

TEST_F(ExecutorCorners, AMarkerAtNoNodeOfItsWorkStandsForAllOfIt) {
  make_lazy();
  int32_t* log = ints(16);
  Body g;
  add_to(g, append(log, 1));
  add_to(g, append(log, 2), {0});
  const Marker whole = launch(0, g), nowhere{whole.serial, {12345}};
  const Marker behind = run(1, append(log, 3), {nowhere});
  EXPECT_FALSE(executor->done(nowhere));
  executor->wait(behind);
  EXPECT_EQ(read_log(log), (Values{1, 2, 3}));
  EXPECT_TRUE(executor->done(nowhere));
  EXPECT_TRUE(executor->done({12345, {}})) << "work that never was";
  EXPECT_EQ(found(), "");
}

TEST_F(ExecutorCorners, AMarkerAtANodeOfWorkThatHasNotBegunIsNotDone) {
  make_lazy();
  int32_t* log = ints(16);
  run(0, append(log, 1));
  Body g;
  add_to(g, append(log, 2));
  const Marker whole = launch(0, g), node{whole.serial, g.at(0).source};
  EXPECT_FALSE(executor->done(node));
  executor->wait(node);
  EXPECT_TRUE(executor->done(node));
  EXPECT_EQ(read_log(log), (Values{1, 2}));
}

TEST_F(ExecutorCorners, AMarkerAtADeepNodeIsDoneWithItAlone) {
  make_lazy();
  int32_t* log = ints(16);
  Body inner, beside;
  inner.base = 100, beside.base = 200;
  add_to(inner, append(log, 1));
  add_to(inner, append(log, 2), {0});
  add_to(beside, EmptyParams{});
  Body middle, outer;
  middle.base = 300;
  nest(middle, ChildGraphParams{}, {&beside});
  nest(middle, ChildGraphParams{}, {&inner}, {0});
  nest(outer, ChildGraphParams{}, {&middle});
  const Marker whole = launch(0, outer), deep{whole.serial, inner.at(0).source};
  executor->wait(deep);
  EXPECT_EQ(read_log(log), Values{1});
  EXPECT_FALSE(executor->done({whole.serial, inner.at(1).source}));
  executor->wait(whole);
  EXPECT_EQ(read_log(log), (Values{1, 2}));
}

TEST_F(ExecutorCorners, WhatIsBehindAnEventWaitIsBehindWhatItWaitedFor) {
  int32_t *a = ints(1), *b = ints(1);
  events[{5}] = run(0, fill(a, 1));
  Body g;
  add_to(g, EventWaitParams{{5}});
  add_to(g, EventRecordParams{{6}}, {0});
  add_to(g, fill(b, 1));
  add_to(g, EventRecordParams{{7}}, {2});
  const Marker whole = launch(1, g);
  run(2, fill(a, 2), {{whole.serial, g.at(1).source}});
  EXPECT_EQ(found(), "");
  executor->add_lane();
  run(3, fill(a, 3), {{whole.serial, g.at(3).source}});
  EXPECT_EQ(found(), "mem.race mem.race") << "nothing orders that node after the wait";
}

// Work that waits.

TEST_F(ExecutorCorners, AKernelThatWaitsInsideAChildGraphGoesOn) {
  int32_t *flag = ints(1, 0, AllocKind::kPinned), *a = ints(1);
  Body inner;
  inner.base = 100;
  add_to(inner, spinflag(flag, a, 7));
  const Marker waiting = launch(0, around(around(inner, 200), 300));
  EXPECT_FALSE(executor->done(waiting));
  *flag = 1;
  executor->advance();
  EXPECT_TRUE(executor->done(waiting));
  EXPECT_EQ(*a, 7);
}

TEST_F(ExecutorCorners, WhatIsStuckIsTheInnermostNodeAndWhatIsBehindGoesOn) {
  int32_t* log = ints(16);
  Body inner;
  inner.base = 100;
  add_to(inner, for_ever());
  const Marker stuck = launch(0, around(around(inner, 200), 300));
  run(1, append(log, 1), {stuck});
  run(1, append(log, 2));
  executor->wait_all();
  EXPECT_EQ(found(), "graph.stuck");
  EXPECT_NE(last.find("kernel for_ever, node 0 of launch 1"), std::string::npos) << last;
  EXPECT_EQ(read_log(log), (Values{1, 2}));
}

TEST_F(ExecutorCorners, ALoopOfSomethingThatNothingEndsIsStuckToo) {
  Body step, g;
  add_to(step, EmptyParams{});
  nest(g, ConditionalParams{{7}, ConditionalType::kWhile, 1, {}}, {&step});
  g.add_handle({{7}, 1, true, true});
  EXPECT_TRUE(executor->done(launch(0, g)));
  EXPECT_EQ(found(), "graph.stuck");
  EXPECT_NE(last.find("its loop never ends"), std::string::npos) << last;
}

TEST_F(ExecutorCorners, AChildGraphOfNothingIsDone) {
  int32_t* log = ints(16);
  Body nothing, g;
  nest(g, ChildGraphParams{}, {&nothing});
  nest(g, ChildGraphParams{}, {}, {0});
  add_to(g, append(log, 1), {1});
  EXPECT_TRUE(executor->done(launch(0, g)));
  EXPECT_EQ(read_log(log), Values{1});
}

TEST_F(ExecutorCorners, GraphsOfNothingThatWaitEndTogether) {
  make_lazy();
  int32_t* log = ints(16);
  const Marker first = run(0, append(log, 1));
  const Marker one = launch(1, Body(), {first}), other = launch(2, Body(), {first});
  EXPECT_FALSE(executor->done(one) || executor->done(other));
  executor->wait(first);
  executor->wait_all();
  EXPECT_TRUE(executor->done(one) && executor->done(other));
}

TEST_F(ExecutorCorners, ADisabledCopysSourceMayChange) {
  make_lazy();
  int32_t* a = ints(4, 5);
  Values h(4, 1);
  Body g;
  add_to(g, transfer(a, h.data(), 16, MemcpyKind::kHostToDevice));
  g.at(0).enabled = false;
  launch(0, g);
  h[0] = 2;
  executor->wait_all();
  EXPECT_EQ(a[0], 5);
  EXPECT_EQ(found(), "");
}

// Owners.

TEST_F(ExecutorCorners, WorkFromBeforeThereWereOwnersHasNone) {
  static constinit const Kernel row_zero{
      "row_zero", [](LaunchFrame&) { return Progress::kDone; },
      [](const LaunchFrame& f, Footprint* spans) {
        spans->push_back({f.pointer<int32_t>(0), 0, 1, 4, Access::kRead, 0});
      }};
  make([](uint32_t bound) { return bound - 1; });  // what waits is waited for newest first
  int32_t* a = ints(1);
  memory->set_owner(a, 4, 1);
  const Marker before = run(0, kernel(row_zero, k::args(a)));
  const std::vector<OwnerId> two{2};
  executor->set_row_owners(two);
  executor->wait(run(1, kernel(row_zero, k::args(a))));
  EXPECT_FALSE(executor->done(before));
  EXPECT_EQ(found(), "mem.wrong_region");
  executor->wait(before);
  EXPECT_EQ(found(), "");
}

// Memory nodes.

TEST_F(ExecutorCorners, WhatWasFreedIsFreedOnceAndOrdersNothing) {
  auto *p = static_cast<int32_t*>(memory->allocate(64, AllocKind::kPool)), *a = ints(1);
  Body g;
  add_to(g, MemFreeParams{p});
  add_to(g, fill(a, 1));
  add_to(g, MemFreeParams{p}, {0});
  launch(0, g);
  EXPECT_EQ(memory->find_allocation(p), nullptr);
  EXPECT_EQ(*a, 1);
  EXPECT_EQ(found(), "");
}

TEST_F(ExecutorCorners, AFreeOrdersWhoHasTheseBytesNextAndNobodyElse) {
  const auto pool = [&] { return static_cast<int32_t*>(memory->allocate(64, AllocKind::kPool)); };
  // Lane 0 frees the middle one of three; the others do not have its bytes.
  int32_t *below = pool(), *freed = pool(), *above = pool(), *a = ints(1);
  ASSERT_TRUE(below < freed && freed < above);
  run(0, MemAllocParams{64, freed});
  run(0, fill(a, 1));
  run(0, MemFreeParams{freed});
  for (int32_t* p : {below, above}) {
    run(1, MemAllocParams{64, p});
    run(1, fill(a, 2));
    EXPECT_EQ(found(), "mem.race");
  }
  executor->wait_all();
  run(0, MemAllocParams{64, above});
  run(0, fill(a, 1));
  run(0, MemFreeParams{above});
  ASSERT_EQ(pool(), above);
  run(1, MemAllocParams{64, above});
  run(1, fill(a, 2));
  EXPECT_EQ(found(), "");
}

TEST_F(ExecutorCorners, WhoHasAPartOfWhatWasFreedComesAfterTheFree) {
  const auto pool = [&](size_t bytes) {
    return static_cast<int32_t*>(memory->allocate(bytes, AllocKind::kPool));
  };
  int32_t *big = pool(4096), *a = ints(1), *b = ints(1);
  run(0, MemAllocParams{4096, big});
  run(0, fill(a, 1));
  run(0, MemFreeParams{big});
  // Three parts of it; the middle one is freed again by another lane.
  int32_t *first = pool(64), *middle = pool(64), *last_part = pool(64);
  ASSERT_TRUE(big == first && first < middle && middle < last_part && last_part < big + 1024);
  run(1, MemAllocParams{64, middle});
  run(1, fill(b, 1));
  run(1, MemFreeParams{middle});
  uint32_t lane = 2;
  for (int32_t* p : {first, last_part}) {
    run(lane, MemAllocParams{64, p});
    EXPECT_EQ(found(), "");
    run(lane, fill(a, 2));
    EXPECT_EQ(found(), lane == 2 ? "" : "mem.race") << "with the lane before, not with the free";
    run(lane, fill(b, 2));
    EXPECT_NE(found(), "") << "nothing orders it after the middle one's free";
    lane = executor->add_lane();
  }
}

TEST_F(ExecutorCorners, OfOneFreeOverAnotherTheLatterSaysNothingMore) {
  const auto pool = [&](size_t bytes) {
    return static_cast<int32_t*>(memory->allocate(bytes, AllocKind::kPool));
  };
  int32_t *small = pool(64), *a = ints(1);
  run(0, MemAllocParams{64, small});
  run(0, MemFreeParams{small});
  memory->release(a);
  ASSERT_EQ(memory->allocate((size_t{1} << 24) - 1, AllocKind::kPool),
            nullptr);  // joins what is free
  int32_t* big = pool(4096);
  ASSERT_EQ(big, small);
  int32_t* b = ints(1);
  run(1, MemAllocParams{4096, big});
  run(1, fill(b, 1));
  run(1, MemFreeParams{big});
  ASSERT_EQ(pool(4096), big);
  run(2, MemAllocParams{4096, big});
  run(2, fill(b, 2));
  EXPECT_EQ(found(), "");
}

TEST_F(ExecutorCorners, WhatAGraphDoesBesideItsAllocationNeedsNoOrder) {
  auto *p = static_cast<int32_t*>(memory->allocate(64, AllocKind::kGraph)), *a = ints(1);
  Body g;
  add_to(g, MemAllocParams{64, p});
  add_to(g, fill(a, 1));
  add_to(g, MemFreeParams{p}, {0});
  launch(0, g);
  EXPECT_EQ(*a, 1);
  EXPECT_EQ(found(), "");
}

TEST_F(ExecutorCorners, UncheckedMemoryNodesAllocateAndFreeToo) {
  make(nullptr, false);
  void* pool = memory->allocate(64, AllocKind::kPool);
  void* graph = memory->allocate(64, AllocKind::kGraph);
  run(0, MemAllocParams{64, pool});
  run(0, MemFreeParams{pool});
  EXPECT_EQ(memory->find_allocation(pool), nullptr);
  Body g;
  add_to(g, MemAllocParams{64, graph});
  add_to(g, MemFreeParams{graph}, {0});
  launch(0, g);
  EXPECT_NE(memory->find_allocation(graph), nullptr);
  EXPECT_EQ(memory->graph_bytes_backed(), 64u);
  EXPECT_EQ(found(), "");
}

// Without a shadow.

TEST_F(ExecutorCorners, UncheckedWorkInAnyOrderFindsNothing) {
  for (uint32_t pick = 0; pick < 3; ++pick) {
    make([pick](uint32_t bound) { return std::min(pick, bound - 1); }, false);
    int32_t *a = ints(4, 1), *b = ints(4), *log = ints(16);
    events[{5}] = run(1, append(log, 1));
    Body g;
    add_to(g, fill(a, 2, 4));
    add_to(g, EventWaitParams{{5}}, {0});
    add_to(g, transfer(b, a, 16, MemcpyKind::kDeviceToDevice), {1});
    add_to(g, MemsetParams{a, 9, 4, 1, 1, 0}, {2});
    add_to(g, append(log, 2), {3});
    launch(0, g);
    run(2, fill(a + 1, 7));  // races, unseen
    executor->wait_all();
    EXPECT_EQ(read_log(log), (Values{1, 2}));
    EXPECT_EQ(a[0], 9);
    EXPECT_EQ(b[3], 2);
    EXPECT_EQ(found(), "");
  }
}

TEST_F(ExecutorCorners, AnUncheckedCopyOutsideMemoryIsAnIllegalAddress) {
  for (const bool pending : {false, true}) {
    for (const bool reads : {false, true}) {
      make(nullptr, false);
      int32_t *a = ints(4, 5), *flag = ints(1);
      void* const wild = reinterpret_cast<std::byte*>(a) + (size_t{1} << 44);
      if (pending) run(1, spinflag(flag, a, 7));
      run(0, reads ? transfer(a, wild, 16, MemcpyKind::kDeviceToDevice)
                   : transfer(wild, a, 16, MemcpyKind::kDeviceToDevice));
      EXPECT_EQ(executor->sticky(), DeviceError::kIllegalAddress);
      EXPECT_EQ(a[0], 5);
      EXPECT_EQ(found(), "");
    }
  }
}

TEST_F(ExecutorCorners, AnUncheckedHostFunctionRunsInItsPlace) {
  make(nullptr, false);
  int32_t* a = ints(1);
  Body g;
  add_to(g, fill(a, 1));
  add_to(g, HostParams{[](void* p) { *static_cast<int32_t*>(p) += 10; }, a}, {0});
  add_to(g, add(a, 100), {1});
  launch(0, g);
  EXPECT_EQ(*a, 111);
}

TEST_F(ExecutorCorners, AnUncheckedHandleThatNobodySetIsZero) {
  make(nullptr, false);
  int32_t* log = ints(16);
  Body yes, no, g;
  add_to(yes, append(log, 1));
  add_to(no, append(log, 2));
  nest(g, ConditionalParams{{7}, ConditionalType::kIf, 2, {}}, {&yes, &no});
  g.add_handle({{7}, 1, false, true});
  launch(0, g);
  EXPECT_EQ(read_log(log), Values{2});
  EXPECT_EQ(found(), "");
}

// Copies.

TEST_F(ExecutorCorners, ACopyOfNoRowsOrNoWidthTouchesNothing) {
  for (const bool checked : {true, false}) {
    make(nullptr, checked);
    int32_t* a = ints(4, 5);
    const Values h(4, 9);
    run(0, MemcpyParams{a, h.data(), 16, 0, 16, 16, MemcpyKind::kHostToDevice});
    run(0, MemcpyParams{a, a, 0, 2, 16, 16, MemcpyKind::kDeviceToDevice});
    run(0, MemsetParams{a, 9, 4, 1, 0, 16});
    EXPECT_EQ(Values(a, a + 4), Values(4, 5));
    EXPECT_EQ(executor->sticky(), DeviceError::kSuccess);
    EXPECT_EQ(found(), "");
  }
}

TEST_F(ExecutorCorners, WhatACopyCallsTheDevicesIsTheDevices) {
  int32_t *a = ints(4), *pinned = ints(4, 0, AllocKind::kPinned), *ended = ints(4);
  memory->release(ended);
  const Values h(4);
  using enum MemcpyKind;
  const std::tuple<MemcpyParams, bool, bool, bool, bool> cases[] = {
      // copy, reads the device, writes it, is a transfer, is staged
      {transfer(a, a, 4, kDeviceToDevice), true, true, false, false},
      {transfer(a, a, 4, kDefault), true, true, false, false},
      {transfer(a, h.data(), 4, kHostToDevice), false, true, true, true},
      {transfer(a, h.data(), 4, kDefault), false, true, true, true},
      {transfer(a, pinned, 4, kDefault), true, true, true, true},
      {transfer(pinned, a, 4, kDefault), true, true, true, false},
      {transfer(nullptr, a, 4, kDeviceToHost), true, false, true, false},
      {transfer(nullptr, nullptr, 4, kDeviceToHost), true, false, true, false},
      {transfer(nullptr, nullptr, 4, kHostToDevice), false, true, true, true},
      {transfer(nullptr, nullptr, 4, kHostToHost), false, false, true, false},
      {transfer(ended, ended, 4, kDefault), true, true, false, false},
  };
  for (const auto& [copy, reads, writes, moves, staged] : cases) {
    EXPECT_EQ(reads_device(*memory, copy), reads);
    EXPECT_EQ(writes_device(*memory, copy), writes);
    EXPECT_EQ(is_transfer(*memory, copy), moves);
    EXPECT_EQ(is_staged(*memory, copy), staged);
    const bool wild = (reads && copy.src == nullptr) || (writes && copy.dst == nullptr);
    EXPECT_EQ(is_mapped(*memory, copy), !wild);
  }
}

TEST_F(ExecutorCorners, ACopyOverlapsItselfWhereItsLaterSideBegins) {
  int32_t* a = ints(16);
  EXPECT_EQ(overlap(transfer(a + 1, a, 16, MemcpyKind::kDeviceToDevice)), a + 1);
  EXPECT_EQ(overlap(transfer(a, a + 1, 16, MemcpyKind::kDeviceToDevice)), a + 1);
  EXPECT_EQ(overlap(transfer(a, a + 4, 16, MemcpyKind::kDeviceToDevice)), nullptr);
  EXPECT_EQ(overlap(transfer(a, a, 0, MemcpyKind::kDeviceToDevice)), nullptr);
  // Rows of 2 in 4: the second source row begins inside the first row of the destination.
  EXPECT_EQ(overlap({a + 3, a, 8, 2, 32, 16, MemcpyKind::kDeviceToDevice}), a + 4);
}

TEST_F(ExecutorCorners, ACopyOverItselfIsToldOnceForAllLaunches) {
  int32_t* a = ints(8);
  Body g;
  add_to(g, transfer(a + 1, a, 16, MemcpyKind::kDeviceToDevice));
  launch(0, g);
  EXPECT_EQ(found(), "mem.race");
  launch(0, g);
  EXPECT_EQ(found(), "");
}

// Host memory.

TEST_F(ExecutorCorners, OfManyEndedBlocksTheOldestAreTakenAsLiving) {
  HostBlocks blocks;
  std::vector<std::byte> bytes(16);
  const auto pointer = [&] {
    return BakedPointer{bytes.data(), 0, 0, blocks.block_of(bytes.data())};
  };
  blocks.begin(bytes.data(), 0, "of nothing");
  EXPECT_EQ(blocks.block_of(bytes.data()), 0u);
  blocks.begin(bytes.data(), 16, "");
  const std::vector<BakedPointer> first{{&blocks, 1, 1, 0}, pointer()};
  EXPECT_EQ(blocks.ended_among(first), "");
  blocks.end(bytes.data() + 16);
  blocks.end(bytes.data() - 1);
  EXPECT_EQ(blocks.ended_among(first), "") << "it neither begins nor ends there";
  blocks.end(bytes.data() + 15);
  EXPECT_EQ(blocks.ended_among(first), "host memory") << "it had no name";
  for (int i = 0; i < 4096; ++i) {
    blocks.begin(bytes.data(), 16, "again");
    if (i < 4095) continue;
    EXPECT_EQ(blocks.ended_among(first), "host memory");
  }
  blocks.end(bytes.data());
  EXPECT_EQ(blocks.ended_among(first), "");
}

TEST_F(ExecutorCorners, ACopysSourceIsWatchedByOperationAndNode) {
  int32_t* a = ints(4);
  Values h(4, 1), other(4, 1);
  const MemcpyParams copy = transfer(a, h.data(), 16, MemcpyKind::kHostToDevice);
  Body g;
  add_to(g, copy);
  add_to(g, transfer(a, other.data(), 16, MemcpyKind::kHostToDevice));
  StagedCopies staged;
  EXPECT_FALSE(staged.are_written_by(copy));
  staged.add(1, g.at(0), copy);
  staged.add(1, g.at(1), std::get<MemcpyParams>(g.at(1).params));
  h[3] = 2;
  EXPECT_TRUE(staged.is_changed(1, g.at(0)));
  EXPECT_FALSE(staged.is_changed(1, g.at(1)));
  EXPECT_FALSE(staged.is_changed(2, g.at(0)));
  EXPECT_TRUE(staged.are_written_by(transfer(h.data() + 3, a, 4, MemcpyKind::kDeviceToHost)));
  EXPECT_FALSE(staged.are_written_by(copy)) << "it writes the device";
  staged.end(2);
  EXPECT_FALSE(staged.empty());
  staged.end(1);
  EXPECT_TRUE(staged.empty());
}

}  // namespace
}  // namespace shadowgraph::executor_corners_test
