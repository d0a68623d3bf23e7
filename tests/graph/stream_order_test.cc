// Which work waits for which: on a device that runs the newest work first wherever it may.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "graph/capture_fixture.h"

namespace shadowgraph::stream_order_test {
namespace {

using enum DeviceError;

class StreamOrder : public CaptureTest {
 public:
  using Log = std::vector<int32_t>;

  StreamOrder() { make_newest_first(); }

  /// Nothing runs before it is waited for; then the newest that can.
  void make_newest_first() {
    SimOptions options;
    options.choose = [](uint32_t bound) { return bound - 1; };
    make(options);
  }
  KernelLaunch appends(int32_t v) const {
    return {&k::append, {}, {.x = 1}, 0, k::args(p, v), false};
  }
  void append(StreamHandle x, int32_t v) { EXPECT_EQ(api->launch_kernel(appends(v), x), kSuccess); }
  /// What was appended, in the order in which it ran.
  Log log() {
    int32_t words[16] = {};
    EXPECT_EQ(api->device_synchronize(), kSuccess);
    EXPECT_EQ(api->memcpy({.dst = words, .src = p, .width = sizeof words}), kSuccess);
    EXPECT_EQ(api->memset({.dst = p, .width = sizeof words}), kSuccess);
    EXPECT_EQ(api->device_synchronize(), kSuccess);
    return {words + 1, words + 1 + words[0]};
  }
  Log log_of(StreamHandle first, StreamHandle second) {
    append(first, 1);
    append(second, 2);
    return log();
  }
};

const StreamOrder::Log kInOrder{1, 2}, kNewestFirst{2, 1};

TEST_F(StreamOrder, OneStreamIsInOrder) {
  for (const StreamHandle x : {stream(false), stream(true), kLegacyStream, kPerThreadStream})
    EXPECT_EQ(log_of(x, x), kInOrder);
}

TEST_F(StreamOrder, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  for (const StreamHandle x : {stream(true), kPerThreadStream}) {
    for (const StreamHandle legacy : {kLegacyStream, kNullStream}) {
      EXPECT_EQ(log_of(x, legacy), kInOrder);
      EXPECT_EQ(log_of(legacy, x), kInOrder);
    }
  }
}

TEST_F(StreamOrder, NothingOrdersOtherStreams) {
  const StreamHandle n = stream(false);
  EXPECT_EQ(log_of(n, kLegacyStream), kNewestFirst);
  EXPECT_EQ(log_of(kLegacyStream, n), kNewestFirst);
  EXPECT_EQ(log_of(n, stream(false)), kNewestFirst);
  EXPECT_EQ(log_of(stream(true), stream(true)), kNewestFirst);
}

TEST_F(StreamOrder, EveryThreadsOwnStreamIsBlocking) {
  std::thread([this] { append(kPerThreadStream, 1); }).join();
  append(kLegacyStream, 2);
  EXPECT_EQ(log(), kInOrder);
  append(kLegacyStream, 1);
  std::thread([this] { append(kPerThreadStream, 2); }).join();
  EXPECT_EQ(log(), kInOrder);
}

TEST_F(StreamOrder, AWaitIsForTheEventsLastRecord) {
  const StreamHandle a = stream(), b = stream();
  append(a, 1);
  EXPECT_EQ(wait(a, b), kSuccess);
  append(a, 3);
  append(b, 2);
  EXPECT_EQ(log(), (Log{1, 2, 3}));
}

TEST_F(StreamOrder, SynchronisingAStreamWaitsForItsWorkAlone) {
  const StreamHandle a = stream(), b = stream();
  append(b, 1);
  append(a, 2);
  EXPECT_EQ(api->stream_synchronize(a), kSuccess);
  EXPECT_EQ(api->stream_query(a), kSuccess);
  EXPECT_EQ(api->stream_query(b), kNotReady);
  EXPECT_EQ(log(), kNewestFirst);
}

TEST_F(StreamOrder, LaunchesOfOneExecFollowEachOtherAndExecsOfOneGraphDoNot) {
  const StreamHandle a = stream(), b = stream();
  EXPECT_EQ(api->stream_begin_capture(a, CaptureMode::kRelaxed), kSuccess);
  append(a, 1);
  append(a, 2);
  EXPECT_EQ(end(a), kSuccess);
  const ExecHandle first = instantiated(), second = instantiated();
  for (const StreamHandle x : {a, b}) EXPECT_EQ(api->graph_launch(first, x), kSuccess);
  append(a, 3);
  append(b, 4);
  EXPECT_EQ(log(), (Log{1, 2, 3, 1, 2, 4}));
  append(a, 5);
  EXPECT_EQ(api->graph_launch(first, a), kSuccess);
  EXPECT_EQ(api->graph_launch(second, b), kSuccess);
  EXPECT_EQ(log(), (Log{1, 2, 5, 1, 2}));
}

TEST_F(StreamOrder, ACopyTakesPageableBytesWithTheCall) {
  const StreamHandle a = stream();
  host = 7;
  EXPECT_EQ(api->memcpy_async({.dst = p, .src = &host, .width = 4}, a), kSuccess);
  host = 8;
  EXPECT_EQ(read(), 7);
}

TEST_F(StreamOrder, EdgesOrderAGraphNotTheOrderInWhichItsNodesWereAdded) {
  for (const bool checked : {true, false}) {
    SimOptions options;
    options.checked = checked;
    make(options);
    ASSERT_EQ(api->graph_create(&g), kSuccess);
    NodeHandle added[2];
    for (int32_t i = 0; i < 2; ++i) {
      NodeParams params = appends(2 - i);
      ASSERT_EQ(api->graph_add_node(g, {}, params, &added[i]), kSuccess);
    }
    const GraphEdge edge{added[1], added[0], {}};
    ASSERT_EQ(api->graph_add_dependencies(g, {&edge, 1}), kSuccess);
    ASSERT_EQ(api->graph_launch(instantiated(), kLegacyStream), kSuccess);
    EXPECT_EQ(log(), kInOrder);
  }
}

}  // namespace
}  // namespace shadowgraph::stream_order_test
