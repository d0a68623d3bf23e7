// Graphs as the device's calls show them: what a capture depends on, what a launch allocates and
// frees, where its event nodes stand, and every order of its nodes.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "graph/capture_fixture.h"

namespace shadowgraph::device_graphs_test {
namespace {

using enum DeviceError;

class DeviceGraphs : public CaptureTest {
 protected:
  DeviceGraphs() { start({}); }
  void start(const SimOptions& options) {
    make(options);
    s = stream();
    EXPECT_EQ(api->graph_create(&g), kSuccess);
  }
  NodeHandle node(NodeParams params, std::vector<NodeHandle> after = {}) {
    NodeHandle added;
    EXPECT_EQ(api->graph_add_node(g, after, params, &added), kSuccess);
    return added;
  }
  void* allocation(NodeHandle* n) {
    NodeParams params = MemAllocParams{64, nullptr};
    EXPECT_EQ(api->graph_add_node(g, {}, params, n), kSuccess);
    return std::get<MemAllocParams>(params).address;
  }
  KernelLaunch fills(int32_t* at, int32_t v) const {
    return {&k::fill, {}, {.x = 32}, 0, k::args(at, v, 1), false};
  }
};

// Dependencies of a capture.

TEST_F(DeviceGraphs, ACaptureDependsOnNodesOfItsOwnGraphAlone) {
  const NodeHandle own = node(adds(1));
  GraphHandle kept = g;
  ASSERT_EQ(api->graph_create(&g), kSuccess);
  const NodeHandle foreign = node(adds(1));
  g = kept;
  const auto begin = [&](const std::vector<NodeHandle>& after, const std::vector<EdgeData>& data) {
    return api->stream_begin_capture_to_graph(s, g, after, data, CaptureMode::kRelaxed);
  };
  EXPECT_EQ(begin({own, foreign}, {}), kInvalidValue);
  EXPECT_EQ(begin({own, {12345}}, {}), kInvalidValue);
  EXPECT_EQ(status(s), CaptureStatus::kNone);

  const EdgeData programmatic{1, 0, 1};
  ASSERT_EQ(begin({own}, {programmatic}), kSuccess);
  CaptureInfo before, after;
  ASSERT_EQ(api->stream_get_capture_info(s, &before), kSuccess);
  EXPECT_EQ(before.dependencies, std::vector{own});
  EXPECT_EQ(before.edge_data, std::vector{programmatic});
  for (const uint32_t flags : {kAddCaptureDependencies, kSetCaptureDependencies})
    EXPECT_EQ(api->stream_update_capture_dependencies(s, {&foreign, 1}, {}, flags), kInvalidValue);
  ASSERT_EQ(api->stream_get_capture_info(s, &after), kSuccess);
  EXPECT_EQ(after.dependencies, before.dependencies);
  EXPECT_EQ(api->graph_destroy_node(own), kIllegalState) << "while it is captured into";
  EXPECT_EQ(end(s), kSuccess);
  EXPECT_EQ(api->graph_destroy_node(own), kSuccess);
}

TEST_F(DeviceGraphs, OnlyACaptureThatGoesOnHasDependencies) {
  const auto update = [&](StreamHandle x) {
    return api->stream_update_capture_dependencies(x, {}, {}, kSetCaptureDependencies);
  };
  EXPECT_EQ(update(s), kIllegalState);
  const StreamHandle a = capturing(CaptureMode::kGlobal, false);
  EXPECT_EQ(update(a), kSuccess);
  EXPECT_EQ(api->stream_query(a), kStreamCaptureUnsupported);
  EXPECT_EQ(update(a), kStreamCaptureInvalidated);
  CaptureInfo info;
  info.id = 7;
  EXPECT_EQ(api->stream_get_capture_info(a, &info), kSuccess);
  EXPECT_EQ(info.status, CaptureStatus::kInvalidated);
  EXPECT_EQ(info.id, 0u) << "it has no graph any more";
  EXPECT_EQ(end(a), kStreamCaptureInvalidated);
}

TEST_F(DeviceGraphs, AProgrammaticLaunchHasProgrammaticEdgesFromKernels) {
  for (const bool after_kernel : {true, false}) {
    const StreamHandle a = capturing(CaptureMode::kRelaxed, false);
    EXPECT_EQ(after_kernel ? add(a, 1) : api->memset_async({.dst = p, .width = 4}, a), kSuccess);
    KernelLaunch next = adds(1);
    next.programmatic = true;
    EXPECT_EQ(api->launch_kernel(next, a), kSuccess);
    ASSERT_EQ(end(a), kSuccess);
    std::vector<GraphEdge> listed;
    ASSERT_EQ(api->graph_get_edges(g, &listed), kSuccess);
    ASSERT_EQ(listed.size(), 1u);
    EXPECT_EQ(listed[0].data, after_kernel ? (EdgeData{1, 0, 1}) : EdgeData{});
  }
}

// Launches.

TEST_F(DeviceGraphs, ParametersOfNodesAreUsedByExecsMadeLater) {
  const NodeHandle n = node(adds(1));
  InstantiateParams how;
  ASSERT_EQ(api->graph_instantiate_with_params(g, &how, &made), kSuccess);
  const StreamHandle a = capturing(CaptureMode::kGlobal, false);
  ExecHandle refused;
  EXPECT_EQ(api->graph_instantiate_with_params(g, &how, &refused), kStreamCaptureUnsupported);
  EXPECT_EQ(api->stream_end_capture(a, nullptr), kStreamCaptureInvalidated);
  EXPECT_EQ(api->graph_node_set_params(n, adds(10)), kSuccess);
  EXPECT_EQ(api->graph_launch(made, s), kSuccess);
  EXPECT_EQ(api->graph_upload(instantiated(), s), kSuccess);
  EXPECT_EQ(api->graph_launch(made, s), kSuccess);
  EXPECT_EQ(read(), 11);
}

TEST_F(DeviceGraphs, AnAutomaticFreeTakesWhatIsStillLive) {
  NodeHandle first, second;
  void* a = allocation(&first);
  allocation(&second);
  ASSERT_EQ(api->graph_instantiate(g, kAutoFreeOnLaunch, &made), kSuccess);
  ASSERT_EQ(api->graph_launch(made, s), kSuccess);
  ASSERT_EQ(api->free_async(a, s), kSuccess);
  const uint64_t before = api->output_ticket();
  ASSERT_EQ(api->graph_launch(made, s), kSuccess);
  EXPECT_EQ(api->output_ticket() - before, 2u) << "one free and the launch";
  EXPECT_EQ(api->free_async(a, s), kSuccess) << "it lives again";
  EXPECT_EQ(api->device_synchronize(), kSuccess);
  api->check_leaks();
  EXPECT_EQ(found(), "mem.leak") << "the other one";
}

TEST_F(DeviceGraphs, ALaunchThatFreesWhatIsNotLiveIsRefused) {
  NodeHandle n;
  void* a = allocation(&n);
  const ExecHandle makes = instantiated();
  ASSERT_EQ(api->graph_create(&g), kSuccess);
  node(MemFreeParams{a});
  const ExecHandle frees = instantiated();
  EXPECT_EQ(api->graph_launch(frees, s), kInvalidValue);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(api->graph_launch(makes, s), kSuccess);
    EXPECT_EQ(api->graph_launch(frees, s), kSuccess);
    EXPECT_EQ(api->graph_launch(frees, s), kInvalidValue);
  }
  EXPECT_EQ(api->device_synchronize(), kSuccess);
  EXPECT_EQ(found(), "");
}

TEST_F(DeviceGraphs, MemoryThatGraphsUsedIsKeptUntilItIsTrimmed) {
  NodeHandle n;
  void* a = allocation(&n);
  node(MemFreeParams{a}, {n});
  uint64_t used = 7;
  EXPECT_EQ(api->device_graph_mem_used(&used), kSuccess);
  EXPECT_EQ(used, 0u);
  ASSERT_EQ(api->graph_launch(instantiated(), s), kSuccess);
  ASSERT_EQ(api->device_synchronize(), kSuccess);
  EXPECT_EQ(api->device_graph_mem_used(&used), kSuccess);
  EXPECT_EQ(used, 64u);
  EXPECT_EQ(api->other_call(OtherCall::kDeviceGraphMemTrim), kSuccess);
  EXPECT_EQ(api->device_graph_mem_used(&used), kSuccess);
  EXPECT_EQ(used, 0u);
}

TEST_F(DeviceGraphs, EventNodesOfEventsThatEndedDoNothing) {
  const EventHandle recorded = event(), waited = event(), never = event();
  const NodeHandle record = node(EventRecordParams{recorded});
  const NodeHandle wait_ended = node(EventWaitParams{waited}, {record});
  const NodeHandle wait_never = node(EventWaitParams{never}, {wait_ended});
  node(adds(1), {wait_never});
  instantiated();
  ASSERT_EQ(api->event_record(waited, s), kSuccess);
  for (const EventHandle x : {recorded, waited}) ASSERT_EQ(api->event_destroy(x), kSuccess);
  EXPECT_EQ(api->graph_launch(made, s), kSuccess);
  EXPECT_EQ(read(), 1);
  EXPECT_EQ(api->event_query(recorded), kInvalidResourceHandle);
  EXPECT_EQ(found(), "");
}

TEST_F(DeviceGraphs, EventNodesStandForTheLaunchThatIsTheLatest) {
  const EventHandle recorded = event(), waited = event();
  const StreamHandle a = capturing(CaptureMode::kRelaxed, false);
  ASSERT_EQ(api->stream_wait_event(a, waited, kEventWaitExternal), kSuccess);
  ASSERT_EQ(add(a, 1), kSuccess);
  ASSERT_EQ(api->event_record_with_flags(recorded, a, kEventRecordExternal), kSuccess);
  ASSERT_EQ(end(a), kSuccess);
  EXPECT_EQ(edges(), (Pairs{{0, 1}, {1, 2}}));
  const StreamHandle before = stream(), behind = stream();
  ASSERT_EQ(add(before, 10), kSuccess);
  ASSERT_EQ(api->event_record(waited, before), kSuccess);
  ASSERT_EQ(api->graph_launch(instantiated(), s), kSuccess);
  ASSERT_EQ(api->stream_wait_event(behind, recorded, 0), kSuccess);
  ASSERT_EQ(add(behind, 100), kSuccess);
  EXPECT_EQ(api->event_synchronize(recorded), kSuccess);
  EXPECT_EQ(read(), 111);
  EXPECT_EQ(found(), "") << "each is before the next";
}

TEST_F(DeviceGraphs, ACaptureThatNobodyTakesIsLost) {
  const StreamHandle a = capturing(CaptureMode::kGlobal, false);
  CaptureInfo info;
  ASSERT_EQ(add(a, 1), kSuccess);
  ASSERT_EQ(api->stream_get_capture_info(a, &info), kSuccess);
  EXPECT_EQ(api->stream_end_capture(a, nullptr), kSuccess);
  std::vector<NodeHandle> listed;
  EXPECT_EQ(api->graph_get_nodes(info.graph, &listed), kInvalidValue);
}

TEST_F(DeviceGraphs, AnUncheckedDeviceDoesTheSameWork) {
  SimOptions options;
  options.checked = false;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    options.seed = seed;
    start(options);
    api->declare_buffer({p, 16, 4, Lifetime::kPerStep, "counter"});
    api->set_owner(p, 16, 1);
    NodeHandle n;
    auto* a = static_cast<int32_t*>(allocation(&n));
    const NodeHandle set =
        node(MemsetParams{.dst = a, .value = 5, .element_size = 4, .width = 2}, {n});
    const NodeHandle copy = node(MemcpyParams{.dst = p, .src = a, .width = 4}, {set});
    node(MemFreeParams{a}, {node(adds(1), {copy})});
    ASSERT_EQ(api->graph_launch(instantiated(), s), kSuccess);
    ASSERT_EQ(api->memcpy_async({.dst = &host, .src = p, .width = 4}, s), kSuccess);
    EXPECT_EQ(host, 6);
    EXPECT_EQ(api->shadow_cost(p).shadow_bytes, 0u);
    api->expect_output(p, 4, 0);
    EXPECT_EQ(found(), "");
  }
}

TEST_F(DeviceGraphs, AnUncheckedDeviceMeetsIllegalAddressesToo) {
  SimOptions options;
  options.checked = false;
  start(options);
  // A set is not looked at before it runs.
  ASSERT_EQ(api->stream_begin_capture(s, CaptureMode::kRelaxed), kSuccess);
  ASSERT_EQ(api->memset_async({.dst = nullptr, .width = 4}, s), kSuccess);
  ASSERT_EQ(end(s), kSuccess);
  ASSERT_EQ(api->graph_launch(instantiated(), s), kSuccess);
  EXPECT_EQ(api->device_synchronize(), kIllegalAddress);
  EXPECT_EQ(found(), "");
}

// Every order.

class EveryOrderOfADevice : public DeviceGraphs {
 protected:
  uint64_t orders() { return api->launch_every_order(instantiated(), s); }
  int32_t value(const int32_t* at) {
    int32_t v = -1;
    EXPECT_EQ(api->memcpy({.dst = &v, .src = at, .width = 4}), kSuccess);
    return v;
  }
};

TEST_F(EveryOrderOfADevice, CopiesSetsHostFunctionsAndEmptyNodesHaveOrdersToo) {
  host = 3;
  int calls = 0;
  node(MemcpyParams{.dst = p, .src = &host, .width = 4});
  node(MemsetParams{.dst = p + 1, .value = 4, .element_size = 4, .width = 1});
  node(HostParams{[](void* n) { ++*static_cast<int*>(n); }, &calls});
  node(EmptyParams{});
  EXPECT_EQ(orders(), 1u) << "they touch nothing in common";
  EXPECT_EQ(calls, 2) << "the plain order runs twice";
  EXPECT_EQ(value(p), 3);
  EXPECT_EQ(value(p + 1), 4);
  EXPECT_EQ(found(), "");
  node(MemcpyParams{.dst = p + 1, .src = p, .width = 4});
  EXPECT_EQ(orders(), 4u) << "behind both, between them either way, before both";
}

TEST_F(EveryOrderOfADevice, NodesThatTradePlacesWithoutConflictAreNotNamed) {
  api->name_buffer(p, "cells");
  node(fills(p, 1));
  node(fills(p + 1, 2));
  node(fills(p, 3));
  EXPECT_EQ(orders(), 2u);
  const Status status = api->take_findings();
  int named = 0;
  for (const Finding& f : status.findings()) {
    if (f.expected != "the same bytes in every order") continue;
    ++named;
    EXPECT_NE(f.got.find("node 2 runs before kernel fill, node 0"), std::string::npos) << f.got;
  }
  EXPECT_EQ(named, 1);
}

TEST_F(EveryOrderOfADevice, AKernelThatTakesItsTimeIsOneNode) {
  node({KernelLaunch{&k::spin, {}, {.x = 32}, 0, k::args(p, 7, k::kSpinS), false}});
  node(fills(p + 1, 2));
  EXPECT_EQ(orders(), 1u);
  EXPECT_EQ(value(p), 7);
  EXPECT_EQ(found(), "");
}

TEST_F(EveryOrderOfADevice, OneOrderMayFaultWhereThePlainOneDoesNot) {
  // Writes as much as a cell says.
  static constinit const Kernel counted{
      "counted", [](LaunchFrame&) { return Progress::kDone; },
      [](const LaunchFrame& f, Footprint* spans) {
        spans->push_back({f.pointer<int32_t>(1), 0, 1, 4, Access::kRead});
        spans->push_back({f.pointer<int32_t>(0), 0, *f.pointer<int32_t>(1), 4, Access::kWrite});
      }};
  SimOptions options;
  options.memory_bytes = 1 << 20;
  start(options);
  node({KernelLaunch{&counted, {}, {}, 0, k::args(p, p + 8), false}});
  node(fills(p + 8, std::numeric_limits<int32_t>::max()));
  EXPECT_EQ(orders(), 1u) << "and no more";
  EXPECT_EQ(api->device_synchronize(), kIllegalAddress);
}

TEST_F(EveryOrderOfADevice, APlainOrderThatFaultsIsNone) {
  node({KernelLaunch{&k::wild, {}, {}, 0, k::args(p, int64_t{1} << 44), false}});
  EXPECT_EQ(orders(), 0u);
  EXPECT_EQ(api->get_last_error(), kIllegalAddress);
  EXPECT_EQ(found(), "mem.out_of_bounds");
}

TEST_F(EveryOrderOfADevice, IsOfAFlatGraphOnAStreamThatCapturesNothing) {
  const ExecHandle nothing = exec();
  EXPECT_EQ(api->launch_every_order(nothing, s), 1u);
  EXPECT_EQ(api->launch_every_order({12345}, s), 0u);
  EXPECT_EQ(api->get_last_error(), kInvalidValue);
  EXPECT_EQ(api->launch_every_order(nothing, {12345}), 0u);
  EXPECT_EQ(api->get_last_error(), kInvalidValue);
  node(ChildGraphParams{empty});
  EXPECT_EQ(orders(), 0u);
  EXPECT_EQ(api->get_last_error(), kInvalidValue);
  const StreamHandle a = capturing(CaptureMode::kRelaxed, false);
  EXPECT_EQ(api->launch_every_order(nothing, a), 0u);
  EXPECT_EQ(api->get_last_error(), kStreamCaptureUnsupported);
  EXPECT_EQ(end(a), kStreamCaptureInvalidated);
}

}  // namespace
}  // namespace shadowgraph::device_graphs_test
