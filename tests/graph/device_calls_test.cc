// What an H200 answers where a program is not in the conformance suite: sizes, handles, order with
// the legacy stream, graphs under capture.
#include <gtest/gtest.h>

#include <vector>

#include "conformance/kernels.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::device_calls_test {
namespace {

using enum DeviceError;

class DeviceCalls : public ::testing::TestWithParam<uint64_t> {
 protected:
  DeviceCalls() : device_({.seed = GetParam(), .choose = {}}) {
    for (int32_t** p : {&a_, &b_}) {
      void* memory = nullptr;
      device_.malloc(64, &memory);
      device_.memset({.dst = memory, .width = 64});
      *p = static_cast<int32_t*>(memory);
    }
    device_.stream_create_with_flags(kStreamDefault, &blocking_);
    device_.stream_create_with_flags(kStreamNonBlocking, &other_);
    device_.device_synchronize();
  }
  DeviceError add(StreamHandle s, int32_t* p, int32_t value) {
    KernelLaunch launch;
    launch.kernel = &k::add;
    launch.args.pointer(p).scalar(value).scalar(int32_t{1});
    return device_.launch_kernel(launch, s);
  }
  /// *b = *a
  DeviceError copy_cell(StreamHandle s) {
    KernelLaunch launch;
    launch.kernel = &k::copy;
    launch.args.pointer(b_).pointer(a_).scalar(int32_t{1});
    return device_.launch_kernel(launch, s);
  }
  int32_t value(const int32_t* p) {
    int32_t v = 0;
    EXPECT_EQ(device_.device_synchronize(), kSuccess);
    device_.memcpy({.dst = &v, .src = p, .width = 4});
    return v;
  }
  void expect_no_finding() {
    EXPECT_EQ(device_.device_synchronize(), kSuccess);
    EXPECT_EQ(device_.take_findings().to_string(), "ok");
  }

  SimDevice device_;
  int32_t *a_ = nullptr, *b_ = nullptr;
  StreamHandle blocking_, other_;
};

TEST_P(DeviceCalls, ACopyStaysInsideAnAllocation) {
  std::vector<std::byte> host(1 << 16);
  for (const size_t bytes : {size_t{65}, size_t{4096}, size_t{1} << 40, ~size_t{0}}) {
    EXPECT_EQ(device_.memcpy({.dst = a_, .src = b_, .width = bytes}), kInvalidValue) << bytes;
    EXPECT_EQ(device_.memcpy_async({.dst = a_, .src = host.data(), .width = bytes}, other_),
              kInvalidValue);
  }
  EXPECT_EQ(device_.memcpy({.dst = a_, .src = b_, .width = 64}), kSuccess);
  expect_no_finding();
}

TEST_P(DeviceCalls, AFreedAddressIsNoPlaceForACopy) {
  device_.free(a_);
  EXPECT_EQ(device_.memcpy({.dst = a_, .src = b_, .width = 4}), kInvalidValue);
}

TEST_P(DeviceCalls, ASetHasAnElementSizeAndAPitch) {
  EXPECT_EQ(device_.memset({.dst = a_, .element_size = 3, .width = 4}), kInvalidValue);
  EXPECT_EQ(device_.memset({.dst = a_, .width = 16, .height = 2, .pitch = 4}), kInvalidValue);
  EXPECT_EQ(device_.memset({.dst = a_, .width = 16, .height = 2, .pitch = 32}), kSuccess);
}

TEST_P(DeviceCalls, AnEventOfABlockingStreamStandsBehindLegacyWork) {
  EventHandle e;
  device_.event_create_with_flags(kEventDisableTiming, &e);
  add(kLegacyStream, a_, 7);
  device_.event_record(e, blocking_);
  device_.stream_wait_event(other_, e, 0);
  copy_cell(other_);
  EXPECT_EQ(value(b_), 7);
  expect_no_finding();
}

TEST_P(DeviceCalls, WhatTheLegacyStreamWaitsForBlockingStreamsWaitForToo) {
  EventHandle e;
  device_.event_create_with_flags(kEventDisableTiming, &e);
  add(other_, a_, 7);
  device_.event_record(e, other_);
  device_.stream_wait_event(kLegacyStream, e, 0);
  copy_cell(blocking_);
  EXPECT_EQ(value(b_), 7);
  expect_no_finding();
}

TEST_P(DeviceCalls, TheLegacyStreamStandsBehindADestroyedStreamsWork) {
  add(blocking_, a_, 7);
  EXPECT_EQ(device_.stream_destroy(blocking_), kSuccess);
  copy_cell(kLegacyStream);
  EXPECT_EQ(value(b_), 7);
  expect_no_finding();
}

TEST_P(DeviceCalls, SynchronisingAnIdleBlockingStreamSaysNothingOfLegacyWork) {
  add(kLegacyStream, a_, 7);
  EXPECT_EQ(device_.stream_query(blocking_), kSuccess);
  EXPECT_EQ(device_.stream_synchronize(blocking_), kSuccess);
  copy_cell(other_);
  device_.device_synchronize();
  const Status found = device_.take_findings();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.findings()[0].id, "mem.race");
}

TEST_P(DeviceCalls, ACaptureIntoAGraphOfTheUsersLeavesItThere) {
  GraphHandle g;
  device_.graph_create(&g);
  device_.stream_begin_capture_to_graph(other_, g, {}, {}, CaptureMode::kRelaxed);
  add(other_, a_, 1);
  EXPECT_EQ(device_.graph_destroy(g), kIllegalState) << "while it is captured into";
  EXPECT_EQ(device_.stream_end_capture(other_, nullptr), kSuccess);
  std::vector<NodeHandle> nodes;
  EXPECT_EQ(device_.graph_get_nodes(g, &nodes), kSuccess);
  EXPECT_EQ(nodes.size(), 1);
  EXPECT_EQ(device_.graph_destroy(g), kSuccess);
}

TEST_P(DeviceCalls, WhatThereIsOneOfIsNotClonedAtAnyDepth) {
  GraphHandle inner, outer, clone;
  ConditionalHandle h;
  NodeHandle node;
  device_.graph_create(&inner);
  device_.graph_create(&outer);
  NodeParams child = ChildGraphParams{inner};
  ASSERT_EQ(device_.graph_add_node(outer, {}, child, &node), kSuccess);
  NodeParams added;
  ASSERT_EQ(device_.graph_node_get_params(node, &added), kSuccess);
  const GraphHandle inside = std::get<ChildGraphParams>(added).graph;
  ASSERT_EQ(device_.graph_conditional_handle_create(outer, 0, 0, &h), kSuccess);
  NodeParams allocation = MemAllocParams{64, nullptr};
  EXPECT_EQ(device_.graph_add_node(inside, {}, allocation, &node), kNotSupported);
  NodeParams conditional = ConditionalParams{h, ConditionalType::kIf, 1, {}};
  if (device_.graph_add_node(inside, {}, conditional, &node) == kSuccess) {
    EXPECT_EQ(device_.graph_clone(outer, &clone), kNotSupported);
  }
  EXPECT_EQ(device_.graph_destroy(outer), kSuccess);
  EXPECT_EQ(device_.graph_destroy(inner), kSuccess);
}

TEST_P(DeviceCalls, ExternalFlagsAreForCaptures) {
  EventHandle e;
  device_.event_create_with_flags(kEventDisableTiming, &e);
  EXPECT_EQ(device_.event_record_with_flags(e, other_, kEventRecordExternal), kIllegalState);
  EXPECT_EQ(device_.stream_wait_event(other_, e, kEventWaitExternal), kIllegalState);
  EXPECT_EQ(device_.event_create_with_flags(0x80, &e), kInvalidValue);
}

TEST_P(DeviceCalls, NullOutPointersAreRefused) {
  EXPECT_EQ(device_.device_get_stream_priority_range(nullptr, nullptr), kSuccess);
  EXPECT_EQ(device_.stream_get_priority(other_, nullptr), kInvalidValue);
  EXPECT_EQ(device_.device_graph_mem_used(nullptr), kInvalidValue);
}

TEST_P(DeviceCalls, AnAllocationOfMallocMayBeFreedInStreamOrder) {
  add(other_, a_, 1);
  EXPECT_EQ(device_.free_async(a_, other_), kSuccess);
  EXPECT_EQ(device_.device_synchronize(), kSuccess);
  EXPECT_EQ(device_.free(a_), kInvalidValue);
  expect_no_finding();
}

TEST_P(DeviceCalls, AHostFunctionMayAskForFindings) {
  static SimDevice* device = nullptr;
  device = &device_;
  device_.launch_host_func(
      other_, [](void*) { EXPECT_TRUE(device->take_findings().ok()); }, nullptr);
  expect_no_finding();
}

TEST_P(DeviceCalls, TimeElapsesBetweenEventsThatKeepItAndWereRecorded) {
  EventHandle first, last, untimed;
  for (EventHandle* e : {&first, &last}) device_.event_create_with_flags(kEventDefault, e);
  device_.event_create_with_flags(kEventDisableTiming, &untimed);
  float ms = -1;
  device_.event_record(first, other_);
  device_.event_record(untimed, other_);
  EXPECT_EQ(device_.device_synchronize(), kSuccess);
  EXPECT_EQ(device_.event_elapsed_time(first, last, &ms), kInvalidResourceHandle);
  EXPECT_EQ(device_.event_elapsed_time(first, untimed, &ms), kInvalidResourceHandle);
  EXPECT_EQ(ms, -1);
  device_.event_record(last, other_);
  EXPECT_EQ(device_.device_synchronize(), kSuccess);
  EXPECT_EQ(device_.event_elapsed_time(first, last, nullptr), kInvalidValue);
  EXPECT_EQ(device_.event_elapsed_time(first, last, &ms), kSuccess);
  EXPECT_GE(ms, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeviceCalls, ::testing::Range<uint64_t>(0, 12));

}  // namespace
}  // namespace shadowgraph::device_calls_test
