// The laws of graphs: see diagnostics_test.cc.
#include "diagnostics_fixture.h"

namespace shadowgraph::diagnostics_graph_test {
namespace {

/// Recorded again, with what the fault changes.
void record_again(World& w, const std::function<void(Stream&, bool changed)>& body) {
  Graph kept, again;
  w.status.add(Graph::record(
      w.stream, [&](Stream& s) { body(s, false); }, &kept));
  w.status.add(Graph::record(
      w.stream, [&](Stream& s) { body(s, w.planted); }, &again));
  w.status.add(same_launches(kept, again));
}

void another_scalar(World& w) {
  const Buffer a = w.bind("a", 4);
  record_again(w, [&](Stream& s, bool changed) {
    launch(s, k::fill, ints(a), 7, 4);
    launch(s, k::add, ints(a), changed ? 2 : 1, 4);
  });
}

void another_address(World& w) {
  const Buffer a = w.bind("a", 4), b = w.bind("b", 4), out = w.bind("out", 4);
  record_again(w, [&](Stream& s, bool changed) { copy(s, out, ints(changed ? b : a)); });
}

void another_launch(World& w) {
  const Buffer a = w.bind("a", 4);
  record_again(w, [&](Stream& s, bool changed) {
    fill(s, ints(a));
    if (changed) fill(s, ints(a));
  });
}

void call_from_a_host_function(World& w) {
  w.run([&](Stream& s) {
    const HostFn fn = w.planted ? [](void* d) { static_cast<SimDevice*>(d)->device_synchronize(); }
                                : [](void*) {};
    w.device.launch_host_func(s.handle(), fn, &w.device);
  });
}

void stream_destroyed_in_capture(World& w) {
  StreamHandle s;
  GraphHandle g;
  w.device.stream_create_with_flags(kStreamNonBlocking, &s);
  w.device.stream_begin_capture(s, CaptureMode::kRelaxed);
  if (!w.planted) w.device.stream_end_capture(s, &g);
  w.device.stream_destroy(s);
}

/// Two kernels beside each other, and one behind both. swapped: the same, listed the other way.
void vee(World& w, Stream& side, bool swapped, const Buffer& a, const Buffer& b) {
  side.wait_for(w.stream);
  const auto left = [&] { fill(w.stream, ints(a)); };
  const auto right = [&] { launch(side, k::cold, ints(b), 1); };
  swapped ? (right(), left()) : (left(), right());
  w.stream.wait_for(side);
  launch(w.stream, k::add, ints(a), 1, 4);
}

void updated_in_another_order(World& w) {
  const Buffer a = w.bind("a", 4), b = w.bind("b", 4);
  Stream side(w.device);
  Graph graphs[2];
  for (int i = 0; i < 2; ++i) {
    const bool swapped = i == 1 && w.planted;
    const auto body = [&](Stream& s) {
      fill(s, ints(a));
      vee(w, side, swapped, a, b);
    };
    w.status.add(Graph::record(w.stream, body, &graphs[i]));
  }
  GraphExec exec;
  w.status.add(GraphExec::instantiate(graphs[0], &exec));
  w.status.add(exec.update(graphs[1]));
}

Progress wait_body(LaunchFrame& f) {
  return *f.pointer<volatile int32_t>(0) != 0 ? Progress::kDone : Progress::kWaiting;
}
void wait_footprint(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<void>(0), 0, 1, sizeof(int32_t), Access::kRead});
}
const Kernel kWait{"wait", wait_body, wait_footprint};

void flag_that_nobody_sets(World& w) {
  int32_t* const flag = w.pinned({0});
  w.run([&](Stream& s) { launch(s, kWait, flag); });
  if (!w.planted) *flag = 1;
}

void too_many_threads(World& w) {
  const Buffer a = w.bind("a", 4);
  KernelLaunch l;
  l.kernel = &k::fill, l.block.x = w.planted ? 2048 : 1024, l.args = k::args(ints(a), 7, 4);
  w.run([&](Stream& s) { s.launch(l); });
}

const Fault kFaults[] = {
    {"graph.baked_scalar",
     "AnotherScalar",
     another_scalar,
     {},
     {"add argument 1[1] is 1, expected 2"}},
    {"graph.address_changed", "AnotherAddress", another_address, {}, {"copy argument 1[0]"}},
    {"graph.topology_changed", "AnotherLaunch", another_launch, {}, {"nodes is 1, expected 2"}},
    {"graph.host_callback",
     "CallFromAHostFunction",
     call_from_a_host_function,
     {"a device call"},
     {"a device call"}},
    {"graph.destroyed_in_capture",
     "StreamDestroyed",
     stream_destroyed_in_capture,
     {"a stream of a capture that is open"},
     {}},
    {"graph.update_order",
     "UpdatedInAnotherOrder",
     updated_in_another_order,
     {},
     {"node 1", "another order"}},
    {"graph.stuck",
     "FlagThatNobodySets",
     flag_that_nobody_sets,
     {"kernel wait, operation 1,", "it waits and nothing else runs"},
     {"kernel wait, node 0 of launch 1,", "it waits and nothing else runs"}},
    {"graph.device_error",
     "TooManyThreads",
     too_many_threads,
     {"cudaLaunchKernel", "cudaErrorInvalidConfiguration (9)"},
     {"cudaLaunchKernel", "cudaErrorInvalidValue (1)"}},
};

INSTANTIATE_TEST_SUITE_P(Graph, Diagnostics, ::testing::ValuesIn(runs_of(kFaults)), name_of_run);

}  // namespace
}  // namespace shadowgraph::diagnostics_graph_test

std::span<const shadowgraph::Fault> shadowgraph::graph_faults() {
  return diagnostics_graph_test::kFaults;
}
