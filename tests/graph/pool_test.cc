// Tensors and private pools: who gets which memory, how long it stays, and what a replay sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/choices.h"
#include "graph/memory/graph_pool.h"
#include "patterns_fixture.h"

namespace shadowgraph::pool_test {
namespace {

TEST(GraphPool, ABlockIsAMultipleOf512BytesAndNothingGoesBackEarly) {
  Rig rig;
  const auto pool = GraphPool::create(rig.device);
  EXPECT_EQ(pool->bytes(), 0u);
  { const Tensor t = pool->allocate(1, "t"); }
  EXPECT_EQ(pool->bytes(), 512u);
  const Tensor a = pool->allocate(512, "a"), b = pool->allocate(513, "b");
  EXPECT_EQ(pool->bytes(), 512u + 1024u);
  EXPECT_EQ(a.bytes(), 512u);
  EXPECT_EQ(b.bytes(), 513u);
  EXPECT_TRUE(pool->allocate(0, "empty"));
}

TEST(GraphPool, TheSmallestFreeBlockThatIsLargeEnoughIsTakenTheOldestOfEquals) {
  Rig rig;
  const auto pool = GraphPool::create(rig.device);
  Tensor large = pool->allocate(4096, "large"), first = pool->allocate(1024, "first"),
         second = pool->allocate(1024, "second"), small = pool->allocate(512, "small");
  const void *at_large = large.data(), *at_first = first.data();
  small = large = second = first = {};
  const Tensor fits = pool->allocate(1000, "fits");
  EXPECT_EQ(fits.data(), at_first);
  EXPECT_EQ(pool->allocate(1025, "next size").data(), at_large);
  EXPECT_EQ(pool->bytes(), 4096u + 1024u + 1024u + 512u);
}

TEST(GraphPool, MemoryComesBackWithTheLastCopyOfATensor) {
  Rig rig;
  const auto pool = GraphPool::create(rig.device);
  Tensor t = pool->allocate(64, "t");
  Tensor copy = t;
  const void* at = t.data();
  t = {};
  EXPECT_NE(pool->allocate(64, "other").data(), at);
  copy = {};
  EXPECT_EQ(pool->allocate(64, "next").data(), at);
}

TEST(GraphPool, LiveTensorsNeverShareAByte) {
  Rng rng(7);
  Rig rig;
  const auto pool = GraphPool::create(rig.device);
  std::vector<Tensor> live;
  for (int step = 0; step < 2000; ++step) {
    if (!live.empty() && rng.below(2) == 0) {
      std::swap(live[rng.below(static_cast<uint32_t>(live.size()))], live.back());
      live.pop_back();
    } else {
      live.push_back(pool->allocate(1 + rng.below(5000), "t"));
      const auto* p = live.back().as<std::byte>();
      for (size_t i = 0; i + 1 < live.size(); ++i) {
        const auto* q = live[i].as<std::byte>();
        ASSERT_TRUE(p + live.back().bytes() <= q || q + live[i].bytes() <= p);
      }
    }
  }
  size_t in_use = 0;
  for (const Tensor& t : live) in_use += t.bytes();
  EXPECT_GE(pool->bytes(), in_use);
}

TEST(GraphPool, AnExhaustedDeviceGivesAnEmptyTensor) {
  SimDevice device(Rig::options(0, size_t{1} << 16));
  TensorAllocator allocator(device);
  const auto pool = GraphPool::create(device);
  EXPECT_FALSE(pool->allocate(size_t{1} << 20, "t"));
  EXPECT_EQ(pool->bytes(), 0u);
  EXPECT_FALSE(allocator.allocate(size_t{1} << 20, "t"));
  EXPECT_TRUE(allocator.allocate(1 << 10, "t"));
}

TEST(TensorAllocator, TheInnermostPoolIsCurrent) {
  Rig rig;
  const auto outer = GraphPool::create(rig.device), inner = GraphPool::create(rig.device);
  {
    const PoolScope in_outer(rig.allocator, outer);
    {
      const PoolScope in_inner(rig.allocator, inner);
      const Tensor t = rig.allocator.allocate(1, "t");
    }
    EXPECT_EQ(outer->bytes(), 0u);
    const Tensor t = rig.allocator.allocate(1, "t");
  }
  const Tensor t = rig.allocator.allocate(4096, "t");
  EXPECT_EQ(inner->bytes(), 512u);
  EXPECT_EQ(outer->bytes(), 512u);
}

TEST(TensorAllocator, AllocatesWhileAStreamCaptures) {
  on_every_schedule([](Rig& rig) {
    Tensor kept;
    PooledGraph g = rig.record([&](Stream& s) {
      kept = rig.allocator.allocate(16, "kept");
      launch(s, k::fill, kept.as<int32_t>(), 7, 4);
    });
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(kept.data(), 4), Ints(4, 7));
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(TensorAllocator, LeavesTheThreadsCaptureModeAsItWas) {
  Rig rig;
  const auto pool = GraphPool::create(rig.device);
  const Tensor of_pool = pool->allocate(1, "of pool");
  rig.allocator.allocate(1, "dropped");
  CaptureMode mode = CaptureMode::kThreadLocal;
  rig.device.thread_exchange_stream_capture_mode(&mode);
  EXPECT_EQ(mode, CaptureMode::kGlobal);
  rig.allocator.allocate(1, "dropped");
  rig.device.thread_exchange_stream_capture_mode(&mode);
  EXPECT_EQ(mode, CaptureMode::kThreadLocal);
}

TEST(TensorAllocator, ADroppedTensorOfTheDeviceIsAnotherGeneration) {
  on_every_schedule([](Rig& rig) {
    Graph graph;
    GraphExec exec;
    const auto body = [&](Stream& s) {
      const Tensor t = rig.allocator.allocate(16, "t");
      launch(s, k::fill, t.as<int32_t>(), 7, 4);
    };
    // The fault: recorded without a pool.
    ASSERT_TRUE(Graph::record(rig.stream, body, &graph).ok());
    ASSERT_TRUE(GraphExec::instantiate(graph, &exec).ok());
    exec.replay(rig.stream);
    EXPECT_EQ(rig.found(), "mem.use_after_free");
    const Tensor other = rig.allocator.allocate(16, "other");
    exec.replay(rig.stream);
    EXPECT_EQ(rig.found(), "mem.stale_generation");

    PooledGraph pooled = rig.record(body);
    pooled.exec.replay(rig.stream);
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(GraphPool, AWriteBehindABlockIsFound) {
  Rig rig;
  const auto pool = GraphPool::create(rig.device);
  const Tensor t = pool->allocate(128, "t");
  launch(rig.stream, k::wild, t.as<int32_t>(), int64_t{127});
  EXPECT_EQ(rig.found(), "");
  launch(rig.stream, k::wild, t.as<int32_t>(), int64_t{128});
  EXPECT_EQ(rig.found(), "mem.red_zone");
}

TEST(PooledGraph, AFailedRecordingChangesNothing) {
  Rig rig;
  PooledGraph g = rig.record([](Stream&) {});
  const auto pool = g.pool;
  const auto other = GraphPool::create(rig.device);
  const Status status = PooledGraph::record(
      rig.stream, rig.allocator, other, [](Stream& s) { s.synchronize(); }, &g);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(g.pool, pool);
  EXPECT_EQ(other.use_count(), 1);
}

}  // namespace
}  // namespace shadowgraph::pool_test
