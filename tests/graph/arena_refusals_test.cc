// Arenas, streams, graphs and buckets where the device refuses something: what is told, what is
// left as it was, and that nothing is lost.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "graph/capture/buckets.h"
#include "patterns_fixture.h"

namespace shadowgraph::arena_refusals_test {
namespace {

/// A device that refuses one call when it is told to.
class Refusing : public SimDevice {
 public:
  using SimDevice::SimDevice;
  DeviceError malloc_host(size_t bytes, void** p) override {
    if (refuse_after == 0) return DeviceError::kMemoryAllocation;
    if (refuse_after > 0) --refuse_after;
    const DeviceError error = SimDevice::malloc_host(bytes, p);
    pinned += error == DeviceError::kSuccess;
    return error;
  }
  DeviceError free_host(void* p) override {
    const DeviceError error = SimDevice::free_host(p);
    pinned -= error == DeviceError::kSuccess;
    return error;
  }
  DeviceError event_create_with_flags(uint32_t flags, EventHandle* e) override {
    return no_events ? DeviceError::kMemoryAllocation
                     : SimDevice::event_create_with_flags(flags, e);
  }
  DeviceError graph_get_edges(GraphHandle g, std::vector<GraphEdge>* edges) override {
    return no_edges ? DeviceError::kInvalidValue : SimDevice::graph_get_edges(g, edges);
  }
  DeviceError graph_instantiate(GraphHandle g, uint64_t flags, ExecHandle* exec) override {
    return no_execs ? DeviceError::kMemoryAllocation : SimDevice::graph_instantiate(g, flags, exec);
  }

  int refuse_after = -1;  // so many pinned allocations are given, then none; -1: all
  int pinned = 0;         // that are live
  bool no_events = false, no_edges = false, no_execs = false;
};

BufferSpec spec_of(std::string name, std::vector<int64_t> shape,
                   Lifetime lifetime = Lifetime::kPersistent) {
  return {std::move(name), DType::kI32, std::move(shape), lifetime};
}
Buffer bound(Arena arena, const BufferSpec& spec) {
  std::vector<Buffer> buffers;
  const Status status = arena.bind({&spec, 1}, &buffers);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return buffers.at(0);
}
std::string law_of(const Status& status) {
  return status.ok() ? "" : status.findings()[0].id + ' ' + status.findings()[0].where.field;
}

TEST(ArenaRefusals, WhatWasStagedBeforeARefusalIsTheNextOnes) {
  Refusing device;
  std::optional<Arena> memory(std::in_place, device, 1 << 12);
  Arena& arena = *memory;
  const std::array specs{spec_of("a", {4}, Lifetime::kPerStep),
                         spec_of("rest", {4}, Lifetime::kOutput),
                         spec_of("b", {4}, Lifetime::kPerStep)};
  std::vector<Buffer> buffers;
  device.refuse_after = 1;
  EXPECT_EQ(law_of(arena.bind(specs, &buffers)), "graph.device_error cudaMallocHost");
  EXPECT_EQ(device.pinned, 1);
  EXPECT_TRUE(buffers.empty());
  EXPECT_EQ(arena.used(), 0u);
  device.refuse_after = -1;
  EXPECT_TRUE(arena.bind(specs, &buffers).ok());
  EXPECT_EQ(device.pinned, 2);
  arena.unbind();
  EXPECT_TRUE(arena.bind(specs, &buffers).ok());
  EXPECT_EQ(device.pinned, 2);
  memory.reset();
  EXPECT_EQ(device.pinned, 0);
}

TEST(ArenaRefusals, WithoutStagingNothingIsWritten) {
  Refusing device;
  Arena arena(device, 1 << 12);
  const Buffer a = bound(arena, spec_of("a", {4}));
  const int32_t value = 7;
  device.refuse_after = 0;
  EXPECT_EQ(law_of(arena.write(a, 0, &value, 1)), "graph.device_error cudaMallocHost");
  EXPECT_EQ(arena.staged(a), nullptr);
  std::span<int32_t> values;
  EXPECT_FALSE(arena.stage(a, {0, 2}, &values).ok());
  EXPECT_TRUE(values.empty());
  EXPECT_TRUE(arena.upload(kLegacyStream).ok()) << "there is nothing to upload";
  device.refuse_after = -1;
  EXPECT_TRUE(arena.write(a, 0, &value, 1).ok());
  ASSERT_NE(arena.staged(a), nullptr);
  EXPECT_EQ(*reinterpret_cast<const int32_t*>(arena.staged(a)), 7);
}

TEST(ArenaRefusals, NoElementsAreWrittenWithoutAValue) {
  Refusing device;
  Arena arena(device, 1 << 12);
  const Buffer a = bound(arena, spec_of("a", {4}));
  device.refuse_after = 0;
  EXPECT_TRUE(arena.write(a, 4, nullptr, 0).ok());
  EXPECT_EQ(arena.staged(a), nullptr) << "nothing can have been written";
}

TEST(ArenaRefusals, ABufferMayBeOneElementOrNone) {
  Refusing device;
  Arena arena(device, 1 << 12);
  const Buffer one = bound(arena, spec_of("one", {}, Lifetime::kPerStep));
  const Buffer none = bound(arena, spec_of("none", {0, 4}, Lifetime::kPerStep));
  EXPECT_EQ(device.pinned, 1) << "of nothing there is no staging";
  EXPECT_EQ(one.numel(), 1);
  EXPECT_EQ(none.numel(), 0);
  const int32_t value = 7;
  EXPECT_TRUE(arena.write(one, 0, &value, 1).ok());
  EXPECT_FALSE(arena.write(one, 1, &value, 1).ok());
  EXPECT_FALSE(arena.write(none, 0, &value, 1).ok());
  EXPECT_TRUE(arena.upload(kLegacyStream).ok());
  EXPECT_EQ(device.device_synchronize(), DeviceError::kSuccess);
  EXPECT_EQ(*reinterpret_cast<const int32_t*>(one.data), 7);
  EXPECT_EQ(device.take_findings().to_string(), "ok");
}

TEST(ArenaRefusals, AGranuleIsAPositiveNumberOfElements) {
  Refusing device;
  Arena arena(device, 1 << 12);
  std::vector<Buffer> buffers;
  for (const int64_t granule : {0, -1, 3}) {
    BufferSpec spec = spec_of("rows", {4});
    spec.granule = granule;
    EXPECT_EQ(law_of(arena.bind({&spec, 1}, &buffers)), "input.shape rows");
  }
}

TEST(ArenaRefusals, ARangeIsInsideItsBuffer) {
  Refusing device;
  Arena arena(device, 1 << 12);
  const Buffer a = bound(arena, spec_of("a", {4}));
  for (const Elements range : {Elements{-1, 1}, {0, -1}, {5, 0}, {4, 1}, {0, 5}, {1, INT64_MAX}})
    EXPECT_EQ(law_of(arena.retire(a, range)), "input.shape a");
  for (const Elements range : {Elements{0, 4}, {4, 0}, {0, 0}})
    EXPECT_TRUE(arena.retire(a, range).ok());
  std::vector<Buffer> buffers;
  for (const int64_t elements : {int64_t{1} << 10, int64_t{1} << 20, int64_t{1} << 60}) {
    const BufferSpec spec = spec_of("large", {elements});
    EXPECT_EQ(law_of(arena.bind({&spec, 1}, &buffers)), "input.memory large");
  }
}

TEST(ArenaRefusals, ABufferOfAnotherArenaOrOfNoneIsNotWritten) {
  Refusing device;
  Arena arena(device, 1 << 12), other(device, 1 << 12);
  const Buffer a = bound(arena, spec_of("a", {4}));
  for (const char* name : {"p", "q", "r"}) bound(other, spec_of(name, {4}));
  const Buffer x = bound(other, spec_of("a", {4})), y = bound(other, spec_of("y", {4}));
  Buffer renamed = a;
  renamed.name = "b";
  Arena scope = arena.scope("step");
  const Buffer ended = bound(scope, spec_of("e", {4}));
  scope.unbind();
  const int32_t value = 7;
  for (const Buffer& wrong : {x, y, renamed, ended, Buffer()}) {
    EXPECT_EQ(law_of(arena.write(wrong, 0, &value, 1)), "input.shape " + wrong.name);
    EXPECT_FALSE(arena.retire(wrong, {0, 1}).ok());
    EXPECT_EQ(arena.staged(wrong), nullptr);
    arena.discard(wrong);
  }
  EXPECT_TRUE(arena.write(a, 0, &value, 1).ok());
}

TEST(ArenaRefusals, WithoutItsEventAnArenaBindsNothing) {
  Refusing device;
  device.no_events = true;
  {
    Arena arena(device, 1 << 12);
    const BufferSpec spec = spec_of("a", {4});
    std::vector<Buffer> buffers;
    EXPECT_EQ(law_of(arena.bind({&spec, 1}, &buffers)),
              "graph.device_error cudaEventCreateWithFlags");
  }
  EXPECT_EQ(device.peek_at_last_error(), DeviceError::kSuccess) << "it ends what there was alone";
}

// Streams and graphs.

class GraphRefusals : public ::testing::Test {
 protected:
  GraphRefusals() : stream_(device_) {
    void* p = nullptr;
    EXPECT_EQ(device_.malloc(64, &p), DeviceError::kSuccess);
    p_ = static_cast<int32_t*>(p);
    stream_.fill(p_, 0, 64);
  }
  Status record(Graph* graph) {
    return Graph::record(
        stream_, [&](Stream& s) { launch(s, k::add, p_, 1, 1); }, graph);
  }

  Refusing device_;
  Stream stream_;
  int32_t* p_ = nullptr;
};

TEST_F(GraphRefusals, WorkOfNoBytesIsNoNode) {
  Graph graph;
  const Status status = Graph::record(
      stream_,
      [&](Stream& s) {
        s.copy(p_, p_ + 4, 0);
        s.fill(p_, 1, 0);
        s.fill(p_, 1, 4);
      },
      &graph);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(graph.nodes().size(), 1u);
}

TEST_F(GraphRefusals, AStreamTellsEachOfItsErrorsOnce) {
  int32_t local = 0;
  for (int i = 0; i < 3; ++i) {
    stream_.copy(p_, p_ + 4, 1 << 20);
    stream_.fill(&local, 0, 4);
    KernelLaunch wrong;
    wrong.kernel = i == 0 ? nullptr : &k::add;
    wrong.block.x = 4096;
    stream_.launch(wrong);
  }
  std::string told;
  const Status status = stream_.take_status();
  for (const Finding& f : status.findings()) told += f.where.field + ' ' + f.got + '\n';
  EXPECT_EQ(told,
            "cudaMemcpyAsync cudaErrorInvalidValue (1)\n"
            "cudaMemsetAsync cudaErrorInvalidValue (1)\n"
            "cudaLaunchKernel cudaErrorInvalidDeviceFunction (98)\n"
            "cudaLaunchKernel cudaErrorInvalidConfiguration (9)\n");
  EXPECT_TRUE(stream_.take_status().ok());
}

TEST_F(GraphRefusals, ARecordingThatCannotBeReadLeavesTheGraphAsItWas) {
  Graph graph;
  ASSERT_TRUE(record(&graph).ok());
  device_.no_edges = true;
  EXPECT_EQ(law_of(record(&graph)), "graph.device_error cudaGraphGetEdges");
  EXPECT_EQ(graph.nodes().size(), 1u);
  GraphExec exec;
  ASSERT_TRUE(GraphExec::instantiate(graph, &exec).ok());
  device_.no_execs = true;
  EXPECT_EQ(law_of(GraphExec::instantiate(graph, &exec)),
            "graph.device_error cudaGraphInstantiate");
  exec.replay(stream_);
  stream_.synchronize();
  EXPECT_EQ(*p_, 1) << "the one from before";
  EXPECT_TRUE(stream_.take_status().ok());
}

TEST_F(GraphRefusals, APooledGraphThatIsNotRecordedIsAsItWas) {
  TensorAllocator allocator(device_);
  PooledGraph recorded;
  const auto body = [&](Stream& s) { launch(s, k::add, p_, 1, 1); };
  device_.no_execs = true;
  EXPECT_FALSE(
      PooledGraph::record(stream_, allocator, GraphPool::create(device_), body, &recorded).ok());
  EXPECT_EQ(recorded.pool, nullptr);
  device_.no_execs = false;
  EXPECT_TRUE(
      PooledGraph::record(stream_, allocator, GraphPool::create(device_), body, &recorded).ok());
}

// Buckets.

class BucketRefusals : public ::testing::Test {
 protected:
  BucketRefusals()
      : stream_(device_),
        allocator_(device_),
        arena_(device_, 1 << 12),
        spec_{.sizes = {2},
              .arena = arena_,
              .inputs = {},
              .outputs = {bound(arena_, spec_of("out", {2}))},
              .step = [](Stream&, int32_t) {},
              .fill = {},
              .after_warm_up = {}} {}
  Status record() { return Buckets::record(stream_, allocator_, spec_, &buckets_); }

  Refusing device_;
  Stream stream_;
  TensorAllocator allocator_;
  Arena arena_;
  BucketSpec spec_;
  std::optional<Buckets> buckets_;
};

TEST_F(BucketRefusals, ABufferHasRows) {
  spec_.outputs = {bound(arena_, spec_of("scalar", {}))};
  EXPECT_EQ(record().to_string(), "input.shape: scalar is 0, expected 2 rows at least");
  EXPECT_FALSE(buckets_.has_value());
}

TEST_F(BucketRefusals, AFillThatFailsIsNotRecorded) {
  int steps = 0;
  spec_.step = [&](Stream&, int32_t) { ++steps; };
  spec_.fill = [&](int32_t, int32_t) { return arena_.write(spec_.outputs[0], 2, &steps, 1); };
  EXPECT_EQ(law_of(record()), "input.shape out");
  EXPECT_EQ(steps, 0);
  EXPECT_FALSE(buckets_.has_value());
}

TEST_F(BucketRefusals, AStepThatCannotBeRecordedAgainIsNotReplayed) {
  bool broken = false;
  spec_.checked = true;
  spec_.step = [&](Stream& s, int32_t rows) {
    if (broken) s.synchronize();
    launch(s, k::fill, ints(spec_.outputs[0]), 7, rows);
  };
  ASSERT_TRUE(record().ok());
  EXPECT_TRUE(buckets_->replay(stream_, 1, {}).ok());
  broken = true;
  EXPECT_EQ(law_of(buckets_->replay(stream_, 1, {})), "graph.device_error cudaStreamSynchronize");
}

}  // namespace
}  // namespace shadowgraph::arena_refusals_test
