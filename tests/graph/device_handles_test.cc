// Handles that name nothing, and results that have no place to go: which error each call gives, and
// that it changes nothing.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "graph/capture_fixture.h"

namespace shadowgraph::device_handles_test {
namespace {

using enum DeviceError;

class DeviceHandles : public CaptureTest {
 protected:
  using Call = std::function<DeviceError(SimDevice&)>;
  using Calls = std::vector<std::pair<const char*, Call>>;

  DeviceHandles() {
    s = stream();
    EXPECT_EQ(api->graph_create(&g), kSuccess);
    n = node(g);
  }
  NodeHandle node(GraphHandle to) {
    NodeParams params = adds(1);
    NodeHandle added;
    EXPECT_EQ(api->graph_add_node(to, {}, params, &added), kSuccess);
    return added;
  }
  /// Each call gives this error, which the thread remembers once, and does nothing else.
  void expect_refused(const Calls& calls, DeviceError error) {
    for (const auto& [name, call] : calls) {
      const uint64_t enqueued = api->output_ticket();
      EXPECT_EQ(call(*api), error) << name;
      EXPECT_EQ(api->peek_at_last_error(), error) << name;
      EXPECT_EQ(api->get_last_error(), error) << name;
      EXPECT_EQ(api->peek_at_last_error(), kSuccess) << name;
      EXPECT_EQ(api->output_ticket(), enqueued) << name << " enqueued something";
      EXPECT_EQ(found(), "") << name;
    }
    EXPECT_EQ(nodes(), 1u);
    EXPECT_EQ(edges(), Pairs{});
    EXPECT_EQ(read(), 0);
    EXPECT_EQ(add(s, 1), kSuccess);
    EXPECT_EQ(read(), 1) << "the device goes on";
  }
  /// Calls that name the stream x.
  Calls on_stream(StreamHandle x) {
    static void* q;
    static GraphHandle ended;
    static CaptureStatus seen;
    static CaptureInfo info;
    static int32_t priority;
    const GraphHandle graph = g;
    const KernelLaunch launch = adds(1);
    int32_t* const at = p;
    const EventHandle recorded = event();
    const ExecHandle nothing = exec();
    EXPECT_EQ(api->event_record(recorded, s), kSuccess);
    const HostFn fn = [](void*) { ADD_FAILURE() << "a host function of no stream"; };
    return {
        {"malloc_async", [=](auto& d) { return d.malloc_async(4, x, &q); }},
        {"free_async", [=](auto& d) { return d.free_async(at, x); }},
        {"memcpy_async",
         [=](auto& d) { return d.memcpy_async({.dst = at, .src = at + 1, .width = 4}, x); }},
        {"memset_async",
         [=](auto& d) { return d.memset_async({.dst = at, .value = 9, .width = 4}, x); }},
        {"attach", [=](auto& d) { return d.stream_attach_mem_async(x, at); }},
        {"prefetch", [=](auto& d) { return d.mem_prefetch_async(at, 4, x); }},
        {"kernel", [=](auto& d) { return d.launch_kernel(launch, x); }},
        {"host function", [=](auto& d) { return d.launch_host_func(x, fn, nullptr); }},
        {"callback", [=](auto& d) { return d.stream_add_callback(x, fn, nullptr); }},
        {"destroy", [=](auto& d) { return d.stream_destroy(x); }},
        {"priority", [=](auto& d) { return d.stream_get_priority(x, &priority); }},
        {"synchronize", [=](auto& d) { return d.stream_synchronize(x); }},
        {"query", [=](auto& d) { return d.stream_query(x); }},
        {"wait", [=](auto& d) { return d.stream_wait_event(x, recorded, 0); }},
        {"record", [=](auto& d) { return d.event_record(recorded, x); }},
        {"begin", [=](auto& d) { return d.stream_begin_capture(x, CaptureMode::kGlobal); }},
        {"begin to graph",
         [=](auto& d) {
           return d.stream_begin_capture_to_graph(x, graph, {}, {}, CaptureMode::kGlobal);
         }},
        {"end", [=](auto& d) { return d.stream_end_capture(x, &ended); }},
        {"is capturing", [=](auto& d) { return d.stream_is_capturing(x, &seen); }},
        {"capture info", [=](auto& d) { return d.stream_get_capture_info(x, &info); }},
        {"dependencies",
         [=](auto& d) {
           return d.stream_update_capture_dependencies(x, {}, {}, kSetCaptureDependencies);
         }},
        {"upload", [=](auto& d) { return d.graph_upload(nothing, x); }},
        {"launch", [=](auto& d) { return d.graph_launch(nothing, x); }},
    };
  }

  NodeHandle n;
};

TEST_F(DeviceHandles, EveryCallRefusesAStreamThatIsNot) {
  const StreamHandle destroyed = stream();
  ASSERT_EQ(api->stream_destroy(destroyed), kSuccess);
  expect_refused(on_stream({12345}), kInvalidResourceHandle);
  EXPECT_EQ(api->memset({.dst = p, .width = 4}), kSuccess);
  expect_refused(on_stream(destroyed), kInvalidResourceHandle);
}

TEST_F(DeviceHandles, TheDevicesOwnStreamsAreNotDestroyed) {
  for (const StreamHandle own : {kNullStream, kLegacyStream, kPerThreadStream})
    EXPECT_EQ(api->stream_destroy(own), kInvalidResourceHandle);
}

TEST_F(DeviceHandles, EveryCallRefusesAnEventThatIsNot) {
  const EventHandle destroyed = event(), lives = event();
  ASSERT_EQ(api->event_destroy(destroyed), kSuccess);
  float ms = -1;
  const Calls calls = {
      {"destroy", [=](auto& d) { return d.event_destroy(destroyed); }},
      {"record", [=, this](auto& d) { return d.event_record(destroyed, s); }},
      {"wait", [=, this](auto& d) { return d.stream_wait_event(s, destroyed, 0); }},
      {"synchronize", [=](auto& d) { return d.event_synchronize(destroyed); }},
      {"query", [=](auto& d) { return d.event_query(destroyed); }},
      {"start", [=, &ms](auto& d) { return d.event_elapsed_time(destroyed, lives, &ms); }},
      {"stop", [=, &ms](auto& d) { return d.event_elapsed_time(lives, destroyed, &ms); }},
  };
  expect_refused(calls, kInvalidResourceHandle);
  EXPECT_EQ(ms, -1);
}

TEST_F(DeviceHandles, ACaptureThatWaitsForNoEventIsInvalid) {
  const StreamHandle a = capturing(CaptureMode::kGlobal, false);
  EXPECT_EQ(api->stream_wait_event(a, {12345}, 0), kInvalidResourceHandle);
  EXPECT_EQ(status(a), CaptureStatus::kInvalidated);
  EXPECT_EQ(end(a), kStreamCaptureInvalidated);
}

TEST_F(DeviceHandles, EveryCallRefusesAGraphThatIsNot) {
  GraphHandle x, out_graph;
  ASSERT_EQ(api->graph_create(&x), kSuccess);
  ASSERT_EQ(api->graph_destroy(x), kSuccess);
  NodeHandle out_node;
  std::vector<NodeHandle> listed;
  std::vector<GraphEdge> arrows;
  ConditionalHandle h;
  UpdateInfo info;
  NodeParams child = ChildGraphParams{x}, params = adds(1);
  InstantiateParams how;
  const ExecHandle nothing = exec();
  const Calls calls = {
      {"destroy", [=](auto& d) { return d.graph_destroy(x); }},
      {"clone", [=, &out_graph](auto& d) { return d.graph_clone(x, &out_graph); }},
      {"find",
       [=, this, &out_node](auto& d) { return d.graph_node_find_in_clone(n, x, &out_node); }},
      {"add",
       [=, &params, &out_node](auto& d) { return d.graph_add_node(x, {}, params, &out_node); }},
      {"child",
       [=, this, &child, &out_node](auto& d) { return d.graph_add_node(g, {}, child, &out_node); }},
      {"link", [=](auto& d) { return d.graph_add_dependencies(x, {}); }},
      {"unlink", [=](auto& d) { return d.graph_remove_dependencies(x, {}); }},
      {"nodes", [=, &listed](auto& d) { return d.graph_get_nodes(x, &listed); }},
      {"edges", [=, &arrows](auto& d) { return d.graph_get_edges(x, &arrows); }},
      {"handle", [=, &h](auto& d) { return d.graph_conditional_handle_create(x, 0, 0, &h); }},
      {"instantiate", [=, this](auto& d) { return d.graph_instantiate(x, 0, &made); }},
      {"with params",
       [=, this, &how](auto& d) { return d.graph_instantiate_with_params(x, &how, &made); }},
      {"update", [=, &info](auto& d) { return d.graph_exec_update(nothing, x, &info); }},
      {"capture into",
       [=, this](auto& d) {
         return d.stream_begin_capture_to_graph(s, x, {}, {}, CaptureMode::kGlobal);
       }},
  };
  expect_refused(calls, kInvalidValue);
  EXPECT_FALSE(out_graph || out_node || h || made);
  EXPECT_EQ(info.result, UpdateResult::kError);
  EXPECT_EQ(how.result, InstantiateResult::kError);
}

TEST_F(DeviceHandles, EveryCallRefusesANodeThatIsNot) {
  const NodeHandle x = node(g);
  ASSERT_EQ(api->graph_destroy_node(x), kSuccess);
  GraphHandle clone;
  ASSERT_EQ(api->graph_clone(g, &clone), kSuccess);
  NodeParams params;
  NodeHandle out_node;
  int32_t priority = 7;
  bool enabled = true;
  const ExecHandle of_g = instantiated();
  const GraphEdge from{x, n, {}}, to{n, x, {}};
  const Calls calls = {
      {"destroy", [=](auto& d) { return d.graph_destroy_node(x); }},
      {"find", [=, &out_node](auto& d) { return d.graph_node_find_in_clone(x, clone, &out_node); }},
      {"get", [=, &params](auto& d) { return d.graph_node_get_params(x, &params); }},
      {"set", [=, this](auto& d) { return d.graph_node_set_params(x, adds(2)); }},
      {"priority",
       [=, &priority](auto& d) { return d.graph_kernel_node_get_priority(x, &priority); }},
      {"exec set", [=, this](auto& d) { return d.graph_exec_node_set_params(of_g, x, adds(2)); }},
      {"enable", [=](auto& d) { return d.graph_node_set_enabled(of_g, x, false); }},
      {"enabled", [=, &enabled](auto& d) { return d.graph_node_get_enabled(of_g, x, &enabled); }},
      {"from",
       [=, this](auto& d) {
         return d.graph_add_dependencies(g, {&from, 1});
       }},
      {"to",
       [=, this](auto& d) {
         return d.graph_add_dependencies(g, {&to, 1});
       }},
      {"unlink",
       [=, this](auto& d) {
         return d.graph_remove_dependencies(g, {&to, 1});
       }},
      {"capture behind",
       [=, this](auto& d) {
         return d.stream_begin_capture_to_graph(s, g, {&x, 1}, {}, CaptureMode::kGlobal);
       }},
  };
  expect_refused(calls, kInvalidValue);
  EXPECT_FALSE(out_node);
  EXPECT_EQ(priority, 7);
  EXPECT_TRUE(enabled);
}

TEST_F(DeviceHandles, EveryCallRefusesAnExecThatIsNot) {
  const ExecHandle x{12345};
  uint64_t flags = 7;
  bool enabled = true;
  UpdateInfo info;
  const Calls calls = {
      {"destroy", [=](auto& d) { return d.graph_exec_destroy(x); }},
      {"flags", [=, &flags](auto& d) { return d.graph_exec_get_flags(x, &flags); }},
      {"update", [=, this, &info](auto& d) { return d.graph_exec_update(x, g, &info); }},
      {"set", [=, this](auto& d) { return d.graph_exec_node_set_params(x, n, adds(2)); }},
      {"enable", [=, this](auto& d) { return d.graph_node_set_enabled(x, n, false); }},
      {"enabled",
       [=, this, &enabled](auto& d) { return d.graph_node_get_enabled(x, n, &enabled); }},
      {"upload", [=, this](auto& d) { return d.graph_upload(x, s); }},
      {"launch", [=, this](auto& d) { return d.graph_launch(x, s); }},
  };
  expect_refused(calls, kInvalidValue);
  EXPECT_EQ(flags, 7u);
  EXPECT_TRUE(enabled);
  EXPECT_EQ(info.result, UpdateResult::kError);
}

TEST_F(DeviceHandles, EveryCallRefusesAResultWithoutAPlace) {
  NodeParams params = adds(1);
  InstantiateParams how;
  GraphHandle clone;
  ASSERT_EQ(api->graph_clone(g, &clone), kSuccess);
  const ExecHandle of_g = instantiated();
  const Calls calls = {
      {"malloc", [](auto& d) { return d.malloc(4, nullptr); }},
      {"malloc_managed", [](auto& d) { return d.malloc_managed(4, nullptr); }},
      {"host_alloc", [](auto& d) { return d.host_alloc(4, 0, nullptr); }},
      {"malloc_host", [](auto& d) { return d.malloc_host(4, nullptr); }},
      {"malloc_async", [this](auto& d) { return d.malloc_async(4, s, nullptr); }},
      {"graph_mem_used", [](auto& d) { return d.device_graph_mem_used(nullptr); }},
      {"stream", [](auto& d) { return d.stream_create_with_flags(kStreamDefault, nullptr); }},
      {"priority", [this](auto& d) { return d.stream_get_priority(s, nullptr); }},
      {"event", [](auto& d) { return d.event_create_with_flags(kEventDefault, nullptr); }},
      {"is capturing", [this](auto& d) { return d.stream_is_capturing(s, nullptr); }},
      {"capture info", [this](auto& d) { return d.stream_get_capture_info(s, nullptr); }},
      {"exchange", [](auto& d) { return d.thread_exchange_stream_capture_mode(nullptr); }},
      {"graph", [](auto& d) { return d.graph_create(nullptr); }},
      {"clone", [this](auto& d) { return d.graph_clone(g, nullptr); }},
      {"find", [=, this](auto& d) { return d.graph_node_find_in_clone(n, clone, nullptr); }},
      {"add", [this, &params](auto& d) { return d.graph_add_node(g, {}, params, nullptr); }},
      {"nodes", [this](auto& d) { return d.graph_get_nodes(g, nullptr); }},
      {"edges", [this](auto& d) { return d.graph_get_edges(g, nullptr); }},
      {"get", [this](auto& d) { return d.graph_node_get_params(n, nullptr); }},
      {"node priority", [this](auto& d) { return d.graph_kernel_node_get_priority(n, nullptr); }},
      {"handle", [this](auto& d) { return d.graph_conditional_handle_create(g, 0, 0, nullptr); }},
      {"instantiate", [this](auto& d) { return d.graph_instantiate(g, 0, nullptr); }},
      {"no exec",
       [this, &how](auto& d) { return d.graph_instantiate_with_params(g, &how, nullptr); }},
      {"no params", [this](auto& d) { return d.graph_instantiate_with_params(g, nullptr, &made); }},
      {"flags", [=](auto& d) { return d.graph_exec_get_flags(of_g, nullptr); }},
      {"update", [=, this](auto& d) { return d.graph_exec_update(of_g, g, nullptr); }},
      {"enabled", [=, this](auto& d) { return d.graph_node_get_enabled(of_g, n, nullptr); }},
  };
  expect_refused(calls, kInvalidValue);
}

TEST_F(DeviceHandles, FlagsThatAreNotAreRefused) {
  StreamHandle made_stream;
  EventHandle made_event;
  ConditionalHandle h;
  const StreamHandle a = capturing(CaptureMode::kRelaxed, false);
  const EventHandle recorded = event();
  const std::vector<std::pair<const char*, DeviceError>> answers = {
      {"stream", api->stream_create_with_flags(2, &made_stream)},
      {"event", api->event_create_with_flags(8, &made_event)},
      {"record", api->event_record_with_flags(recorded, s, 2)},
      {"wait", api->stream_wait_event(s, recorded, 2)},
      {"handle", api->graph_conditional_handle_create(g, 0, 2, &h)},
      {"dependencies", api->stream_update_capture_dependencies(a, {}, {}, 2)},
      {"upload", api->graph_instantiate(g, kInstantiateUpload, &made)},
  };
  for (const auto& [name, answer] : answers) EXPECT_EQ(answer, kInvalidValue) << name;
  EXPECT_FALSE(made_stream || made_event || h || made);
  EXPECT_EQ(status(a), CaptureStatus::kActive);
  EXPECT_EQ(end(a), kSuccess);
}

}  // namespace
}  // namespace shadowgraph::device_handles_test
