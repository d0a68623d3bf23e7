// The executor: work runs in every order that its dependencies allow and in no other; kernels that
// wait let others run; a fault ends everything; host memory that copies name is watched.
#include "graph/executor/executor.h"

#include <array>
#include <set>

#include "core/choices.h"
#include "executor_fixture.h"

namespace shadowgraph::executor_test {
namespace {

using Values = std::vector<int32_t>;

Progress wait_for_ever(LaunchFrame& f) {
  *f.pointer<int32_t>(0) = static_cast<int32_t>(f.calls + 1);
  return Progress::kWaiting;
}
constinit const Kernel kForEver{"for_ever", wait_for_ever};

void count_call(void* calls) { ++*static_cast<int*>(calls); }

Body diamond(const DeviceMemory& memory, const std::function<KernelLaunch(int32_t)>& node) {
  Body g;
  g.add(memory, node(1));
  g.add(memory, node(2), {0});
  g.add(memory, node(3), {0});
  g.add(memory, node(4), {1, 2});
  return g;
}

/// Walks all sequences of choices. Feed choose; next() is false when all were walked.
class Odometer {
 public:
  uint32_t choose(uint32_t bound) {
    EXPECT_GE(bound, 2u);
    if (at_ == digits_.size()) digits_.push_back({0, bound});
    return digits_[at_++][0];
  }
  bool next() {
    at_ = 0;
    while (!digits_.empty() && digits_.back()[0] + 1 == digits_.back()[1]) digits_.pop_back();
    if (digits_.empty()) return false;
    ++digits_.back()[0];
    return true;
  }

 private:
  std::vector<std::array<uint32_t, 2>> digits_;
  size_t at_ = 0;
};

class Executors : public ExecutorTest {
 protected:
  /// The logs that work(log) can leave, over all choices.
  std::set<Values> all_logs(const std::function<void(int32_t*)>& work) {
    std::set<Values> logs;
    Odometer odometer;
    do {
      make([&](uint32_t bound) { return odometer.choose(bound); });
      int32_t* log = ints(16);
      work(log);
      executor->wait_all();
      logs.insert(read_log(log));
    } while (odometer.next());
    return logs;
  }
};

TEST_F(Executors, EagerWorkRunsAsItIsEnqueued) {
  int32_t* log = ints(16);
  const Marker first = run(0, append(log, 1));
  EXPECT_TRUE(executor->done(first));
  run(1, append(log, 2));
  EXPECT_EQ(read_log(log), (Values{1, 2}));
  EXPECT_EQ(executor->last_serial(), 2u);
  EXPECT_TRUE(executor->done({}));
}

TEST_F(Executors, DelayedWorkRunsWhenItIsWaitedFor) {
  make_lazy();
  int32_t* log = ints(16);
  const Marker first = run(0, append(log, 1));
  run(0, append(log, 2));
  EXPECT_FALSE(executor->done(first));
  EXPECT_EQ(read_log(log), Values{});
  executor->wait(first);
  EXPECT_EQ(read_log(log), (Values{1}));
}

TEST_F(Executors, ALaneKeepsItsOrderAndLanesAnyOther) {
  const std::set<Values> logs = all_logs([&](int32_t* log) {
    run(0, append(log, 1));
    run(0, append(log, 2));
    run(1, append(log, 3));
  });
  EXPECT_EQ(logs, (std::set<Values>{{1, 2, 3}, {1, 3, 2}, {3, 1, 2}}));
}

TEST_F(Executors, AMarkerHoldsWorkBack) {
  const std::set<Values> logs = all_logs([&](int32_t* log) {
    const Marker first = run(0, append(log, 1));
    run(1, append(log, 2), {first});
    run(2, append(log, 3), {first});
  });
  EXPECT_EQ(logs, (std::set<Values>{{1, 2, 3}, {1, 3, 2}}));
}

TEST_F(Executors, AGraphRunsInEveryTopologicalOrder) {
  const std::set<Values> logs = all_logs([&](int32_t* log) {
    launch(0, diamond(*memory, [&](int32_t v) { return append(log, v); }));
  });
  EXPECT_EQ(logs, (std::set<Values>{{1, 2, 3, 4}, {1, 3, 2, 4}}));
}

TEST_F(Executors, AMarkerAtANodeHoldsBackUntilTheNodeOnly) {
  const std::set<Values> logs = all_logs([&](int32_t* log) {
    Body g;
    add_to(g, append(log, 1));
    add_to(g, append(log, 2), {0});
    run(1, append(log, 3), {{launch(0, g).serial, g.at(0).source}});
  });
  EXPECT_EQ(logs, (std::set<Values>{{1, 2, 3}, {1, 3, 2}}));
}

TEST_F(Executors, AMarkerMayLieInANestedGraph) {
  make_lazy();
  int32_t* log = ints(16);
  Body child, g;
  child.base = 100;
  add_to(child, append(log, 1));
  add_to(child, append(log, 2), {0});
  nest(g, ChildGraphParams{}, {&child});
  const Marker whole = launch(0, g), first{whole.serial, child.at(0).source};
  EXPECT_FALSE(executor->done(first));
  executor->wait(first);
  EXPECT_EQ(read_log(log), (Values{1}));
  EXPECT_FALSE(executor->done(whole));
}

TEST_F(Executors, NestedGraphsInterleaveWithParallelBranches) {
  const std::set<Values> logs = all_logs([&](int32_t* log) {
    Body child, g;
    add_to(child, append(log, 1));
    add_to(child, append(log, 2), {0});
    nest(g, ChildGraphParams{}, {&child});
    add_to(g, append(log, 3));
    add_to(g, append(log, 4), {0});
    launch(0, g);
  });
  EXPECT_EQ(logs, (std::set<Values>{{1, 2, 3, 4}, {1, 2, 4, 3}, {1, 3, 2, 4}, {3, 1, 2, 4}}));
}

TEST_F(Executors, TheSameChoicesGiveTheSameHistory) {
  std::set<Values> logs;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::array<Values, 2> history;
    for (Values& log : history) {
      Rng rng(seed);
      make([&](uint32_t bound) { return rng.below(bound); });
      int32_t* p = ints(64);
      for (int32_t i = 0; i < 9; ++i) run(static_cast<uint32_t>(i) % 3, append(p, i));
      executor->wait_all();
      log = read_log(p);
    }
    EXPECT_EQ(history[0], history[1]);
    logs.insert(history[0]);
  }
  EXPECT_GT(logs.size(), 1u);
}

TEST_F(Executors, ADisabledNodeKeepsTheOrder) {
  int32_t* log = ints(16);
  Body g;
  add_to(g, append(log, 1));
  add_to(g, append(log, 2), {0});
  add_to(g, append(log, 3), {1});
  g.at(1).enabled = false;
  launch(0, g);
  EXPECT_EQ(read_log(log), (Values{1, 3}));
}

TEST_F(Executors, AnEmptyGraphIsDoneAtOnce) {
  const Marker empty = launch(0, Body());
  EXPECT_TRUE(executor->done(empty));
}

// Kernels that wait.

TEST_F(Executors, AWaitingKernelLetsOtherWorkRun) {
  int32_t *flag = ints(1, 0, AllocKind::kPinned), *a = ints(1), *b = ints(1);
  const Marker waiting = run(0, spinflag(flag, a, 7));
  const Marker behind = run(0, fill(b, 1));
  const Marker beside = run(1, fill(ints(1), 2));
  EXPECT_FALSE(executor->done(waiting));
  EXPECT_FALSE(executor->done(behind));
  EXPECT_TRUE(executor->done(beside));
  *flag = 1;
  executor->wait(behind);
  EXPECT_EQ(*a, 7);
}

TEST_F(Executors, AdvancingCallsAWaitingKernelOnce) {
  int32_t* calls = ints(1);
  run(0, kernel(kForEver, k::args(calls)));
  EXPECT_EQ(*calls, 1);
  executor->advance();
  EXPECT_EQ(*calls, 2);
}

TEST_F(Executors, ASpinRunsOutOfItsClocksWhereNothingElseMoves) {
  int32_t *flag = ints(1), *a = ints(1);
  executor->wait(run(0, spinflag(flag, a, 7)));
  EXPECT_EQ(*a, -1);
  EXPECT_EQ(found(), "");
}

TEST_F(Executors, AKernelThatWorkOnAnotherLaneReleasesDoesNotRunOut) {
  make_lazy();
  int32_t *flag = ints(1), *a = ints(1);
  const Marker waiting = run(0, spinflag(flag, a, 7));
  run(1, kernel(k::spin, k::args(ints(1), 1, k::kSpinS)));
  run(1, kernel(k::sys, k::args(flag, 1)));
  executor->wait(waiting);
  EXPECT_EQ(*a, 7);
}

TEST_F(Executors, OneSpinThatRanOutReleasesAnother) {
  make_lazy();
  int32_t *never = ints(1), *flag = ints(1), *a = ints(1), *b = ints(1);
  run(0, spinflag(never, a, 7));
  run(1, spinflag(flag, b, 7));
  run(0, kernel(k::sys, k::args(flag, 1)));
  executor->wait_all();
  EXPECT_EQ(*a, -1);
  EXPECT_EQ(*b, 7);
}

TEST_F(Executors, WorkThatNeverEndsIsDroppedAndTheHostGoesOn) {
  int32_t *calls = ints(1), *log = ints(16);
  const Marker stuck = run(0, kernel(kForEver, k::args(calls)));
  run(0, append(log, 1));
  executor->wait_all();
  EXPECT_TRUE(executor->done(stuck));
  EXPECT_EQ(found(), "graph.stuck");
  EXPECT_NE(last.find("kernel for_ever"), std::string::npos) << last;
  EXPECT_EQ(read_log(log), (Values{1}));
}

TEST_F(Executors, ASuspendedKernelIsJudgedOnce) {
  int32_t* a = static_cast<int32_t*>(memory->allocate(4, AllocKind::kMalloc));
  *a = 1;
  run(0, kernel(k::rmw, k::args(a, 1, k::kSpinS)));
  executor->wait_all();
  EXPECT_EQ(*a, 2);
  EXPECT_EQ(found(), "mem.uninit_read");
}

// Faults.

TEST_F(Executors, AnIllegalAddressEndsEverything) {
  make_lazy();
  int32_t* a = ints(4, 5);
  int calls = 0;
  Body g;
  add_to(g, kernel(k::wild, k::args(a, int64_t{1} << 44)));
  add_to(g, HostParams{count_call, &calls}, {0});
  launch(0, g);
  const Marker behind = run(0, fill(a, 6));
  const Marker beside = run(1, HostParams{count_call, &calls}, {behind});
  executor->wait_all();
  EXPECT_EQ(found(), "mem.out_of_bounds");
  EXPECT_EQ(executor->sticky(), DeviceError::kIllegalAddress);
  EXPECT_TRUE(executor->done(beside));
  const Marker later = run(1, fill(a, 7));
  EXPECT_TRUE(executor->done(later));
  executor->wait_all();
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(*a, 5);
  EXPECT_EQ(found(), "");
}

TEST_F(Executors, WhatAFaultingKernelWouldHaveWrittenIsPoison) {
  static constinit const Kernel writes_two{
      "writes_two", [](LaunchFrame&) { return Progress::kDone; },
      [](const LaunchFrame& f, Footprint* spans) {
        spans->push_back({f.pointer<int32_t>(0), 0, 2, 4, Access::kWrite});
        spans->push_back({f.pointer<int32_t>(0), int64_t{1} << 44, 1, 4, Access::kRead});
      }};
  int32_t* a = ints(4, 5);
  run(0, kernel(writes_two, k::args(a)));
  EXPECT_EQ(Values(a, a + 4), (Values{-1, -1, 5, 5}));
}

// Events.

TEST_F(Executors, EventNodesRecordAndWait) {
  const std::set<Values> logs = all_logs([&](int32_t* log) {
    Body producer, consumer;
    add_to(producer, append(log, 1));
    add_to(producer, EventRecordParams{{5}}, {0});
    add_to(producer, append(log, 2), {1});
    events[{5}] = {launch(0, producer).serial, producer.at(1).source};
    add_to(consumer, EventWaitParams{{5}});
    add_to(consumer, append(log, 3), {0});
    launch(1, consumer);
  });
  EXPECT_EQ(logs, (std::set<Values>{{1, 2, 3}, {1, 3, 2}}));
}

// Unchecked.

TEST_F(Executors, UncheckedWorkRunsAtOnceAndFindsNothing) {
  make(nullptr, false);
  int32_t *a = ints(4), *b = ints(4);
  Body g;
  add_to(g, fill(a, 1, 4));
  add_to(g, MemsetParams{b, 2, 4, 4, 1, 0});
  add_to(g, transfer(b, a, 8, MemcpyKind::kDeviceToDevice), {0, 1});
  add_to(g, EmptyParams{}, {2});
  add_to(g, add(b, 5), {3});
  const uint64_t serial = executor->enqueue(g.build(), {0, Phase::kReplay, {}});
  EXPECT_TRUE(executor->done({serial, {}}));
  EXPECT_EQ(Values(b, b + 4), (Values{6, 1, 2, 2}));
  run(1, fill(a, 2, 4));
  EXPECT_EQ(found(), "");
}

TEST_F(Executors, UncheckedWorkThatWaitsGoesOnLater) {
  make(nullptr, false);
  int32_t *flag = ints(1), *log = ints(16), *a = ints(1);
  Body g;
  add_to(g, append(log, 1));
  add_to(g, kernel(k::rmw, k::args(a, 5, k::kSpinS)), {0});
  add_to(g, spinflag(flag, a, 7), {1});
  add_to(g, append(log, 2), {2});
  const uint64_t serial = executor->enqueue(g.build(), {0, Phase::kReplay, {}});
  EXPECT_EQ(*a, 0);
  EXPECT_EQ(read_log(log), (Values{1}));
  executor->advance();
  EXPECT_EQ(*a, 5);
  *flag = 1;
  executor->wait({serial, {}});
  EXPECT_EQ(*a, 7);
  EXPECT_EQ(read_log(log), (Values{1, 2}));
}

TEST_F(Executors, UncheckedWorkWaitsForWhatItNames) {
  make(nullptr, false);
  int32_t *flag = ints(1), *log = ints(16), *a = ints(1);
  const Marker waiting = run(0, spinflag(flag, a, 7));
  run(1, append(log, 1), {waiting});
  run(2, append(log, 2));
  EXPECT_EQ(read_log(log), (Values{2}));
  *flag = 1;
  executor->wait_all();
  EXPECT_EQ(read_log(log), (Values{2, 1}));
}

TEST_F(Executors, AnUncheckedSetOutsideMemoryIsAnIllegalAddress) {
  make(nullptr, false);
  run(0, MemsetParams{nullptr, 2, 4, 4, 1, 0});
  EXPECT_EQ(executor->sticky(), DeviceError::kIllegalAddress);
}

}  // namespace
}  // namespace shadowgraph::executor_test
