// What running one node does, by its type.
#include "graph/executor/node_work.h"

#include <numeric>

#include "executor_fixture.h"

namespace shadowgraph::node_work_test {
namespace {

using Values = std::vector<int32_t>;

class NodeWork : public ExecutorTest {};

TEST_F(NodeWork, ACopyMovesRows) {
  int32_t* a = ints(12);
  std::iota(a, a + 12, 0);
  Values h(6, -1);
  run(0, MemcpyParams{h.data(), a + 1, 8, 3, 8, 16, MemcpyKind::kDeviceToHost});
  EXPECT_EQ(h, (Values{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(found(), "");
  run(0, MemcpyParams{a, h.data(), 8, 3, 24, 8, MemcpyKind::kHostToDevice});
  EXPECT_EQ(found(), "mem.red_zone");
}

TEST_F(NodeWork, ASetFillsElements) {
  int32_t* a = ints(6);
  run(0, MemsetParams{a, 0x1234, 2, 3, 1, 0});
  EXPECT_EQ(a[0], 0x12341234);
  EXPECT_EQ(a[1], 0x1234);
  run(0, MemsetParams{a, 0x1ff, 1, 4, 3, 8});
  EXPECT_EQ(Values(a, a + 6), (Values{-1, 0x1234, -1, 0, -1, 0}));
  run(0, MemsetParams{a + 1, 9, 4, 2, 1, 0});
  EXPECT_EQ(Values(a, a + 4), (Values{-1, 9, 9, 0}));
  EXPECT_EQ(found(), "");
}

TEST_F(NodeWork, AHostFunctionRunsInsideTheHook) {
  struct Call {
    const bool* in_hook;
    bool inside;
  } call{&in_host_function, false};
  run(0, HostParams{[](void* p) {
                      auto* c = static_cast<Call*>(p);
                      c->inside = *c->in_hook;
                    },
                    &call});
  EXPECT_TRUE(call.inside);
  EXPECT_FALSE(in_host_function);
}

TEST_F(NodeWork, AStreamOrderedFreeReleasesWhenItRuns) {
  make_lazy();
  void* p = memory->allocate(64, AllocKind::kPool);
  run(0, MemAllocParams{64, p});
  run(0, MemFreeParams{p});
  EXPECT_NE(memory->find_allocation(p), nullptr);
  executor->wait_all();
  EXPECT_EQ(memory->find_allocation(p), nullptr);
}

TEST_F(NodeWork, AGraphAllocationIsNewInEveryLaunch) {
  auto* p = static_cast<int32_t*>(memory->allocate(64, AllocKind::kGraph));
  int32_t* a = ints(1);
  Body g;
  add_to(g, MemAllocParams{64, p});
  add_to(g, copy(a, p), {0});
  add_to(g, fill(p, 1), {1});
  add_to(g, MemFreeParams{p}, {2});
  launch(0, g);
  EXPECT_EQ(found(), "mem.uninit_read");
  launch(0, g);
  EXPECT_EQ(found(), "mem.uninit_read");
}

TEST_F(NodeWork, RowOwnersHoldForWorkEnqueuedLater) {
  static constinit const Kernel row_zero{
      "row_zero", [](LaunchFrame&) { return Progress::kDone; },
      [](const LaunchFrame& f, Footprint* spans) {
        spans->push_back({f.pointer<int32_t>(0), 0, 1, 4, Access::kRead, 0});
      }};
  make_lazy();
  int32_t* a = ints(1);
  memory->set_owner(a, 4, 1);
  const std::vector<OwnerId> one{1}, two{2};
  executor->set_row_owners(two);
  run(0, kernel(row_zero, k::args(a)));
  executor->set_row_owners(one);
  run(0, kernel(row_zero, k::args(a)));
  executor->wait_all();
  EXPECT_EQ(found(), "mem.wrong_region");
}

// Conditional nodes.

class ConditionalNodes : public ExecutorTest {
 protected:
  static constexpr ConditionalHandle kHandle{7};

  /// A launch of one conditional node whose body i appends i + 1.
  Values bodies_run(ConditionalType type, uint32_t size, uint32_t value, bool assigned = true) {
    int32_t* log = ints(16);
    Body g;
    const int32_t node = add_to(g, ConditionalParams{kHandle, type, size, {}});
    for (int32_t i = 0; i < static_cast<int32_t>(size); ++i) {
      Body b;
      add_to(b, append(log, i + 1));
      g.at(node).bodies.push_back(b.build());
    }
    g.add_handle({kHandle, value, assigned, true});
    launch(0, g);
    return read_log(log);
  }
};

TEST_F(ConditionalNodes, IfTakesTheFirstBodyForAnyValueButZero) {
  EXPECT_EQ(bodies_run(ConditionalType::kIf, 1, 5), (Values{1}));
  EXPECT_EQ(bodies_run(ConditionalType::kIf, 1, 0), Values{});
  EXPECT_EQ(bodies_run(ConditionalType::kIf, 2, 0), (Values{2}));
}

TEST_F(ConditionalNodes, SwitchTakesTheBodyOfItsValue) {
  EXPECT_EQ(bodies_run(ConditionalType::kSwitch, 2, 0), (Values{1}));
  EXPECT_EQ(bodies_run(ConditionalType::kSwitch, 2, 1), (Values{2}));
  EXPECT_EQ(bodies_run(ConditionalType::kSwitch, 2, 9), Values{});
  EXPECT_EQ(found(), "");
}

TEST_F(ConditionalNodes, AHandleThatNobodySetIsReadUninitialised) {
  EXPECT_EQ(bodies_run(ConditionalType::kIf, 2, 1, false), (Values{2}));
  EXPECT_EQ(found(), "mem.uninit_read");
}

TEST_F(ConditionalNodes, AKernelSetsTheValueForItsLaunchOnly) {
  int32_t *log = ints(16), *value = ints(1, 1);
  Body yes, g;
  add_to(yes, append(log, 1));
  add_to(g, kernel(k::setcond, k::args(kHandle, value)));
  nest(g, ConditionalParams{kHandle, ConditionalType::kIf, 1, {}}, {&yes}, {0});
  g.add_handle({kHandle, 0, false, true});
  launch(0, g);
  *value = 0;
  launch(0, g);
  EXPECT_EQ(read_log(log), (Values{1}));
  g.at(0).enabled = false;
  launch(0, g);
  EXPECT_EQ(found(), "mem.uninit_read");
}

TEST_F(ConditionalNodes, WhileRepeatsUntilTheValueIsZero) {
  for (const bool checked : {true, false}) {
    make(nullptr, checked);
    int32_t *log = ints(16), *n = ints(1, 3);
    Body step, g;
    add_to(step, append(log, 1));
    add_to(step, kernel(k::whilestep, k::args(n, kHandle)), {0});
    const int32_t loop =
        nest(g, ConditionalParams{kHandle, ConditionalType::kWhile, 1, {}}, {&step});
    add_to(g, append(log, 2), {loop});
    g.add_handle({kHandle, 1, true, true});
    launch(0, g);
    EXPECT_EQ(read_log(log), (Values{1, 1, 1, 2}));
    EXPECT_EQ(found(), "");
  }
}

TEST_F(ConditionalNodes, ALoopThatNothingEndsIsStuck) {
  Body nothing, g;
  nest(g, ConditionalParams{kHandle, ConditionalType::kWhile, 1, {}}, {&nothing});
  g.add_handle({kHandle, 1, true, true});
  EXPECT_TRUE(executor->done(launch(0, g)));
  EXPECT_EQ(found(), "graph.stuck");
}

}  // namespace
}  // namespace shadowgraph::node_work_test
