// A simulated device, streams that capture on it, and what they captured.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/kernels.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

inline constexpr CaptureMode kModes[] = {CaptureMode::kGlobal, CaptureMode::kThreadLocal,
                                         CaptureMode::kRelaxed};

class CaptureTest : public ::testing::Test {
 public:
  using Error = DeviceError;
  using Pairs = std::vector<std::pair<int, int>>;

  CaptureTest() { make(); }

  /// A new device with nothing but a counter.
  void make(const SimOptions& options = {}) {
    api.emplace(options);
    exec_ = {};
    exchange(CaptureMode::kGlobal);
    void* q = nullptr;
    EXPECT_EQ(api->malloc(64, &q), Error::kSuccess);
    p = static_cast<int32_t*>(q);
    EXPECT_EQ(api->memset({.dst = p, .width = 64}), Error::kSuccess);
    EXPECT_EQ(api->device_synchronize(), Error::kSuccess);
  }
  /// And with one of everything that unsafe calls name.
  void make_all() {
    make();
    other = stream();
    EXPECT_EQ(api->event_record(e = event(), other), Error::kSuccess);
    EXPECT_EQ(api->malloc(4, &device_block), Error::kSuccess);
    EXPECT_EQ(api->malloc_host(4, &host_block), Error::kSuccess);
    EXPECT_EQ(api->malloc_async(4, other, &pool_block), Error::kSuccess);
    exec();
  }

  StreamHandle stream(bool blocking = false) {
    StreamHandle made_stream;
    EXPECT_EQ(
        api->stream_create_with_flags(blocking ? kStreamDefault : kStreamNonBlocking, &made_stream),
        Error::kSuccess);
    return made_stream;
  }
  EventHandle event() {
    EventHandle made_event;
    EXPECT_EQ(api->event_create_with_flags(kEventDisableTiming, &made_event), Error::kSuccess);
    return made_event;
  }
  StreamHandle capturing(CaptureMode mode, bool blocking) {
    const StreamHandle x = stream(blocking);
    EXPECT_EQ(api->stream_begin_capture(x, mode), Error::kSuccess);
    return x;
  }
  /// An executable graph of nothing, made when it is first asked for.
  ExecHandle exec() {
    if (!exec_) {
      EXPECT_EQ(api->graph_create(&empty), Error::kSuccess);
      EXPECT_EQ(api->graph_instantiate(empty, 0, &exec_), Error::kSuccess);
    }
    return exec_;
  }
  ExecHandle instantiated() {
    EXPECT_EQ(api->graph_instantiate(g, 0, &made), Error::kSuccess);
    return made;
  }

  void exchange(CaptureMode mode) {
    EXPECT_EQ(api->thread_exchange_stream_capture_mode(&mode), Error::kSuccess);
  }
  KernelLaunch adds(int32_t v) const {
    return {&k::add, {}, {.x = 32}, 0, k::args(p, v, 1), false};
  }
  Error add(StreamHandle x, int32_t v) { return api->launch_kernel(adds(v), x); }
  /// to waits for what from has now.
  Error wait(StreamHandle from, StreamHandle to) {
    const EventHandle between = event();
    EXPECT_EQ(api->event_record(between, from), Error::kSuccess);
    return api->stream_wait_event(to, between, kEventWaitDefault);
  }
  /// Sets g.
  Error end(StreamHandle x) { return api->stream_end_capture(x, &g); }
  CaptureStatus status(StreamHandle x) {
    CaptureStatus seen = CaptureStatus::kNone;
    EXPECT_EQ(api->stream_is_capturing(x, &seen), Error::kSuccess);
    return seen;
  }

  size_t nodes() {
    std::vector<NodeHandle> listed;
    EXPECT_EQ(api->graph_get_nodes(g, &listed), Error::kSuccess);
    return listed.size();
  }
  /// The edges of g, by ordinal.
  Pairs edges() {
    std::vector<NodeHandle> order;
    std::vector<GraphEdge> listed;
    EXPECT_EQ(api->graph_get_nodes(g, &order), Error::kSuccess);
    EXPECT_EQ(api->graph_get_edges(g, &listed), Error::kSuccess);
    const auto ordinal = [&](NodeHandle n) {
      return static_cast<int>(std::find(order.begin(), order.end(), n) - order.begin());
    };
    Pairs pairs;
    for (const GraphEdge& edge : listed) pairs.emplace_back(ordinal(edge.from), ordinal(edge.to));
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  }
  /// The counter, once all work is done.
  int32_t read() {
    int32_t value = -1;
    EXPECT_EQ(api->device_synchronize(), Error::kSuccess);
    EXPECT_EQ(api->memcpy({.dst = &value, .src = p, .width = 4}), Error::kSuccess);
    return value;
  }
  /// The laws that were found violated, separated by spaces.
  std::string found() {
    std::string laws;
    const Status status = api->take_findings();
    for (const Finding& f : status.findings()) laws += (laws.empty() ? "" : " ") + f.id;
    return laws;
  }

  std::optional<SimDevice> api;
  int32_t* p = nullptr;  // a counter that add() adds to
  int32_t host = 0;
  StreamHandle s, other;
  EventHandle e;
  GraphHandle g;      // what the last end() gave
  GraphHandle empty;  // what exec() is made from
  ExecHandle made;
  void *out = nullptr, *device_block = nullptr, *host_block = nullptr, *pool_block = nullptr;

 private:
  ExecHandle exec_;
};

}  // namespace shadowgraph
