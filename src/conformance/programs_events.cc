// G64-G83: events, forks, joins.
#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

void append(Run& run, StreamHandle s, int32_t* log, int32_t v) {
  run.launch(k::append, {1}, {32}, s, k::args(log, v));
}

void wait_external(Run& run, StreamHandle s, EventHandle e) {
  run.step("cudaStreamWaitEvent", run.api().stream_wait_event(s, e, kEventWaitExternal));
}

void record_with_flags(Run& run, EventHandle e, StreamHandle s, uint32_t flags) {
  run.step("cudaEventRecordWithFlags", run.api().event_record_with_flags(e, s, flags));
}

void query(Run& run, EventHandle e) { run.step("cudaEventQuery", run.api().event_query(e)); }

void synchronize(Run& run, EventHandle e) {
  run.step("cudaEventSynchronize", run.api().event_synchronize(e));
}

/// An event that was recorded outside any capture, and is done.
EventHandle done_event(Run& run) {
  const StreamHandle t = run.st_nb();
  const EventHandle e = run.ev();
  run.api().event_record(e, t);
  run.api().stream_synchronize(t);
  return e;
}

void g64(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t* const log = run.dev(16, 0, "L");
  run.begin(s1);
  append(run, s1, log, 1);
  order(run, s1, e, s2);
  append(run, s1, log, 2);
  append(run, s2, log, 3);
  order(run, s2, f, s1);
  append(run, s1, log, 4);
  const GraphHandle g = run.end(s1);
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s1);
  run.sync(s1);
  const std::vector<int32_t> h = run.peek(log, 16);
  run.fact("count", h[0]);
  run.fact("first_is_1", h[1] == 1);
  run.fact("last_is_4", h[4] == 4);
  run.fact("middle_is_2_and_3", h[2] + h[3] == 5 && h[2] * h[3] == 6);
}

void g65(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.begin(s1);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.fill(s1, a, 1);
  run.rec(e, s1);
  run.probe("s2", s2);
  run.wait(s2, e);
  run.probe("s2", s2);
  const uint64_t id1 = run.capture_id(s1), id2 = run.capture_id(s2);
  run.fact("same_id", id1 == id2);
  run.fill(s2, b, 2);
  order(run, s2, f, s1);
  run.probe("s2", s2);
  const GraphHandle g = run.end(s1);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.dump("g", g);
}

void g66(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s1);
  run.fill(s1, a, 1);
  order(run, s1, e, s2);
  run.fill(s2, b, 2);
  const GraphHandle g = run.end(s1);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.dump("g", g);
  run.fill(s1, a, 3);
  run.fill(s2, b, 4);
  run.sync(s1);
  run.sync(s2);
  run.read("A", a, 4);
  run.read("B", b, 4);
}

void g67(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s1);
  run.fill(s1, a, 1);
  order(run, s1, e, s2);
  run.fill(s2, b, 2);
  order(run, s2, f, s1);
  run.fill(s2, b, 3);
  const GraphHandle g = run.end(s1);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.dump("g", g);
  run.sync(s1);
  run.sync(s2);
  run.read("B", b, 4);
}

void g68(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s1);
  if (run.sub_is("after_work")) run.fill(s1, a, 1);
  order(run, s1, e, s2);
  run.probe("s2", s2);
  run.add(s1, a, 1);
  const GraphHandle g = run.end(s1);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.dump("g", g);
}

void g69(Run& run) {
  const StreamHandle s = run.st();
  const EventHandle e = done_event(run);
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.fill(s, a, 1);
  run.wait(s, e);
  run.probe("s", s);
  run.fill(s, a, 2);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
}

void g70(Run& run) {
  const StreamHandle s = run.st();
  const EventHandle e = done_event(run);
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.fill(s, a, 1);
  wait_external(run, s, e);
  run.probe("s", s);
  run.add(s, a, 2);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void g71(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s1);
  run.fill(s1, a, 1);
  run.rec(e, s1);
  run.begin(s2);
  run.fill(s2, b, 2);
  run.wait(s2, e);
  run.probe("s1", s1);
  run.probe("s2", s2);
  const GraphHandle g2 = run.end(s2);
  run.probe("s1", s1);
  const GraphHandle g1 = run.end(s1);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.dump("g1", g1);
  run.dump("g2", g2);
}

void g72(Run& run) {
  const StreamHandle s = run.st();
  const EventHandle e = run.ev();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.fill(s, a, 1);
  record_with_flags(run, e, s, run.sub_is("plain") ? kEventRecordDefault : kEventRecordExternal);
  run.add(s, a, 1);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
}

void g73(Run& run) {
  const StreamHandle s = run.st();
  const EventHandle e = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const flag = run.pinned(1);
  query(run, e);
  run.begin(s);
  run.launch(k::spinflag, {1}, {1}, s, k::args(flag, a, 3, k::kSpinT));
  record_with_flags(run, e, s, kEventRecordExternal);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
  query(run, e);
  const ExecHandle x = run.inst(g);
  query(run, e);
  run.run(x, s);
  query(run, e);
  *flag = 1;
  synchronize(run, e);
  run.sync(s);
  query(run, e);
  run.read("A", a, 1);
}

void g74(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st(), s3 = run.st();
  const EventHandle e = run.ev(), f = run.ev(), r = run.ev();
  int32_t* const log = run.dev(16, 0, "L");
  run.begin(s1);
  append(run, s1, log, 1);
  order(run, s1, r, s3);
  append(run, s3, log, 2);
  append(run, s1, log, 3);
  run.rec(e, s1);
  order(run, s3, e, s2);
  append(run, s2, log, 4);
  order(run, s2, f, s1);
  const GraphHandle g = run.end(s1);
  run.dump("g", g);
}

void g75(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.fill(s2, b, 9);
  run.begin(s1);
  run.fill(s1, a, 1);
  run.rec(e, s1);
  run.add(s1, a, 5);
  run.wait(s2, e);
  run.probe("s2", s2);
  run.fill(s2, b, 2);
  order(run, s2, f, s1);
  const GraphHandle g = run.end(s1);
  run.dump("g", g);
  run.sync(s2);
  run.read("B", b, 4);
}

void g76(Run& run) {
  const StreamHandle s = run.st(), t = run.st_nb();
  const EventHandle e = run.ev(), e2 = run.ev();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.fill(s, a, 1);
  run.rec(e, s);
  if (run.sub_is("invalidated")) run.sync(s);
  run.end(s);
  query(run, e);
  synchronize(run, e);
  run.wait(t, e);
  run.probe("t", t);
  float ms = -1;
  run.step("cudaEventElapsedTime", run.api().event_elapsed_time(e, e2, &ms));
  run.begin(s);
  run.wait(s, e);
  run.probe("s", s);
  run.end(s);
  run.rec(e, t);
  synchronize(run, e);
  query(run, e);
  run.wait(s, e);
  run.sync(s);
}

void g77(Run& run) {
  const StreamHandle s = run.st(), s2 = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const flags = run.pinned(2), *const h = run.pinned(1);
  run.launch(k::spinflag, {1}, {1}, s, k::args(flags, flags + 1, 1, k::kSpinT));
  run.begin(s);
  run.launch(k::sys, {1}, {32}, s, k::args(h, 7));
  const GraphHandle g = run.end(s);
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s2);
  run.fact("graph_ran", run.poll(h, 7));
  run.fact("slow_kernel_still_running", flags[1] == 0);
  flags[0] = 1;
  run.sync(s2);
  run.sync(s);
  run.read("A", a, 1);
}

void g78(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const log = run.dev(16, 0, "L"), *const a = run.dev(1, 0, "A");
  run.launch(k::spin, {1}, {1}, s, k::args(a, 5, k::kSpinS));
  append(run, s, log, 1);
  run.begin(s);
  append(run, s, log, 9);
  const GraphHandle g = run.end(s);
  append(run, s, log, 2);
  run.add(s, a, 1, 1);
  run.sync(s);
  run.dump("g", g);
  run.read("L", log, 5);
  run.read("A", a, 1);
}

void update_dependencies(Run& run, StreamHandle s, std::span<const NodeHandle> nodes,
                         uint32_t flags) {
  run.step("cudaStreamUpdateCaptureDependencies",
           run.api().stream_update_capture_dependencies(s, nodes, {}, flags));
}

CaptureInfo capture_info(Run& run, StreamHandle s) {
  CaptureInfo info;
  run.step("cudaStreamGetCaptureInfo", run.api().stream_get_capture_info(s, &info));
  return info;
}

void g79(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B"),
                 *const c = run.dev(4, 0, "C");
  if (run.sub_is("idle")) {
    update_dependencies(run, s, {}, kSetCaptureDependencies);
    run.probe("s", s);
    return;
  }
  run.begin(s);
  run.fill(s, a, 1);
  const std::vector<NodeHandle> before = capture_info(run, s).dependencies;
  run.fact("deps_before", static_cast<int64_t>(before.size()));
  const NodeHandle first = before.empty() ? NodeHandle{} : before[0];
  if (run.sub_is("set_empty")) {
    update_dependencies(run, s, {}, kSetCaptureDependencies);
  } else {
    run.fill(s, b, 2);
    update_dependencies(run, s, {&first, 1}, kAddCaptureDependencies);
  }
  run.fact("deps_after", static_cast<int64_t>(capture_info(run, s).dependencies.size()));
  run.probe("s", s);
  run.fill(s, c, 3);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
}

void g80(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  const GraphHandle g0 = run.graph_create();
  const NodeHandle n0 = run.add_kernel(g0, {}, node(k::fill, a, 1, 4));
  run.step("cudaStreamBeginCaptureToGraph",
           run.api().stream_begin_capture_to_graph(s, g0, {&n0, run.sub_is("dep") ? 1U : 0U}, {},
                                                   run.mode));
  run.probe("s", s);
  run.add(s, b, 2);
  const GraphHandle g = run.end(s);
  run.fact("same_handle", g == g0);
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
  run.read("B", b, 4);
}

void g81(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s1);
  order(run, s1, e, s2);
  run.fill(s1, a, 1);
  run.fill(s2, a, 2);
  order(run, s2, f, s1);
  const GraphHandle g = run.end(s1);
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s1);
  run.sync(s1);
  run.read("A", a, 4);
}

void g82(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s1);
  order(run, s1, e, s2);
  run.add(s1, a, 1);
  run.add(s2, b, 2);
  order(run, s2, f, s1);
  const GraphHandle g = run.end(s1);
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  for (int i = 0; i < 3; ++i) run.run(x, s1);
  run.sync(s1);
  run.read("A", a, 4);
  run.read("B", b, 4);
}

void g83(Run& run) {
  const StreamHandle s = run.st();
  const EventHandle e = run.ev();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.fill(s, a, 1);
  if (run.sub_is("plain")) {
    run.wait(s, e);
  } else {
    wait_external(run, s, e);
  }
  run.probe("s", s);
  run.add(s, a, 1);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
  if (!g) return;
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

constexpr Program kEventsPrograms[] = {
    {"G64", "diamond by fork and join", kE, "D", "", g64},
    {"G65", "status and id of a forked stream", kE, "A", "", g65},
    {"G66", "fork with work, no join", kE, "A", "", g66},
    {"G67", "fork, join, one more kernel on the fork", kE, "D", "", g67},
    {"G68", "fork by wait only", kE, "D", "after_work at_start", g68},
    {"G69", "capturing stream waits on an outside event", kE, "A", "", g69},
    {"G70", "external event wait", kE, "D", "", g70},
    {"G71", "waiting across two captures", kE, "A", "", g71},
    {"G72", "event record in capture", kE, "D", "plain external", g72},
    {"G73", "external record node and the event state", kE, "N", "", g73},
    {"G74", "event recorded twice in capture", kE, "D", "", g74},
    {"G75", "idle stream waiting on a captured event joins", kE, "A", "", g75},
    {"G76", "captured event used after EndCapture", kE, "D+n.relaxed", "ended invalidated", g76},
    {"G77", "work before the capture is not a dependency", kE, "N", "", g77},
    {"G78", "stream order across a capture", kE, "N", "", g78},
    {"G79", "StreamUpdateCaptureDependencies", kE, "D", "set_empty add_first idle", g79},
    {"G80", "BeginCaptureToGraph", kE, "D", "dep nodep", g80},
    {"G81", "two unordered writers of one location", kU, "N", "", g81, "mem.race"},
    {"G82", "two unordered nodes on disjoint buffers", kE, "N", "", g82},
    {"G83", "never-recorded event waited on in capture", kE, "A", "plain external", g83},
};

}  // namespace

std::span<const Program> programs_events() { return kEventsPrograms; }

}  // namespace shadowgraph
