// Host memory that copies name: found where it ended or changed, and nowhere else.
#include "graph/memory/host_memory.h"

#include "executor_fixture.h"

namespace shadowgraph::host_memory_test {
namespace {

using Values = std::vector<int32_t>;

class HostMemoryTest : public ExecutorTest {
 protected:
  HostMemoryTest() : h(4, 1) {}
  Body graph_that_copies(const void* from) {
    Body g;
    add_to(g, transfer(a, from, 16, MemcpyKind::kHostToDevice));
    return g;
  }
  void SetUp() override {
    make();
    a = ints(4);
  }

  int32_t* a = nullptr;
  Values h;
};

TEST_F(HostMemoryTest, ACopyFromALivingBlockIsClean) {
  executor->host_block(h.data(), 16, "staging");
  const Body g = graph_that_copies(h.data());
  launch(0, g);
  h.assign(4, 2);
  launch(0, g);
  EXPECT_EQ(found(), "");
  EXPECT_EQ(a[3], 2);
}

TEST_F(HostMemoryTest, ACopyFromAnEndedBlockIsFound) {
  executor->host_block(h.data(), 16, "staging");
  const Body g = graph_that_copies(h.data() + 0);
  executor->host_block_ended(h.data());
  launch(0, g);
  EXPECT_EQ(found(), "mem.host_lifetime");
  EXPECT_NE(last.find("staging"), std::string::npos) << last;
  executor->host_block(h.data(), 16, "somebody else's");
  launch(0, g);
  EXPECT_EQ(found(), "mem.host_lifetime");
  run(0, transfer(a, h.data(), 16, MemcpyKind::kHostToDevice));
  EXPECT_EQ(found(), "");
}

TEST_F(HostMemoryTest, ACopyIntoAnEndedBlockIsFound) {
  executor->host_block(h.data(), 16, "result");
  Body g;
  add_to(g, transfer(h.data(), a, 16, MemcpyKind::kDeviceToHost));
  executor->host_block(h.data() + 1, 4, "a new block over it");
  launch(0, g);
  EXPECT_EQ(found(), "mem.host_lifetime");
}

TEST_F(HostMemoryTest, StagingThatChangesBeforeTheCopyRanIsFound) {
  for (const bool pinned : {false, true}) {
    make_lazy();
    a = ints(4);
    int32_t* staging = pinned ? ints(4, 1, AllocKind::kPinned) : h.data();
    launch(0, graph_that_copies(staging));
    staging[3] = 9;
    executor->wait_all();
    EXPECT_EQ(found(), "mem.host_lifetime");
    EXPECT_EQ(a[3], 9);
    launch(0, graph_that_copies(staging));
    executor->wait_all();
    staging[3] = 1;
    EXPECT_EQ(found(), "");
  }
}

TEST_F(HostMemoryTest, WhatTheDevicesOwnWorkChangesIsNoSurprise) {
  make_lazy();
  a = ints(4, 6);
  int32_t *b = ints(4), *pinned = ints(4, 0, AllocKind::kPinned);
  Body g;
  add_to(g, transfer(h.data(), a, 16, MemcpyKind::kDeviceToHost));
  add_to(g, HostParams{[](void* p) { ++*static_cast<int32_t*>(p); }, h.data()}, {0});
  add_to(g, transfer(b, h.data(), 16, MemcpyKind::kHostToDevice), {1});
  add_to(g, fill(pinned, 8, 4), {2});
  add_to(g, transfer(a, pinned, 16, MemcpyKind::kHostToDevice), {3});
  launch(0, g);
  executor->wait_all();
  EXPECT_EQ(found(), "");
  EXPECT_EQ(b[0], 7);
  EXPECT_EQ(a[0], 8);
  launch(0, g);
  h[2] = -1;  // the host's change is found although device work changes the rest
  pinned[2] = -1;
  executor->wait_all();
  EXPECT_EQ(found(), "mem.host_lifetime mem.host_lifetime");
}

TEST_F(HostMemoryTest, AHostFunctionDoesNotHideWhatTheHostChangedBefore) {
  make_lazy();
  a = ints(4);
  executor->host_block(h.data(), 16, "planner's");
  const Marker call = run(1, HostParams{[](void*) {}, nullptr});
  const Marker copy = launch(0, graph_that_copies(h.data()), {call});
  h[0] = 9;
  executor->wait(copy);
  EXPECT_EQ(found(), "mem.host_lifetime");
  EXPECT_NE(last.find("planner's"), std::string::npos) << last;
}

}  // namespace
}  // namespace shadowgraph::host_memory_test
