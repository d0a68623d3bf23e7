// G46-G63: the legacy stream, synchronous copies, other streams and threads beside a capture; what
// is left of an invalidated one.
#include <algorithm>

#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

using enum MemcpyKind;

void memcpy16(Run& r, void* dst, const void* src, MemcpyKind kind) {
  r.step("cudaMemcpy", r.api().memcpy({.dst = dst, .src = src, .width = 16, .kind = kind}));
}

DeviceError launch_host_count(Run& r, StreamHandle s) {
  return r.step("cudaLaunchHostFunc", r.api().launch_host_func(s, host_count, nullptr));
}

CaptureInfo capture_info(Run& r, StreamHandle s) {
  CaptureInfo info;
  r.step("cudaStreamGetCaptureInfo", r.api().stream_get_capture_info(s, &info));
  return info;
}

/// G46, G52: sub's last three letters name the direction of a synchronous copy.
void synchronous_copy(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(4, 1), *B = r.dev(4, 2);
  int32_t h[4] = {5, 5, 5, 5}, k[4] = {6, 6, 6, 6};
  r.begin(s);
  r.fill(s, B, 9);
  if (r.sub().ends_with("H2D")) {
    memcpy16(r, A, h, kHostToDevice);
  } else if (r.sub().ends_with("D2H")) {
    memcpy16(r, h, A, kDeviceToHost);
  } else if (r.sub().ends_with("D2D")) {
    memcpy16(r, A, B, kDeviceToDevice);
  } else if (r.sub().ends_with("H2H")) {
    memcpy16(r, h, k, kHostToHost);
  } else if (r.sub_is("memset")) {
    r.step("cudaMemset", r.api().memset({.dst = A, .width = 16}));
  } else {
    const MemcpyParams row{
        .dst = A, .src = B, .width = 8, .dst_pitch = 16, .src_pitch = 16, .kind = kDeviceToDevice};
    r.step("cudaMemcpy2D", r.api().memcpy(row));
  }
  r.probe("s", s);
  r.fill(s, B, 8);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
  r.read("A", A, 4);
  r.read("h", h, 4);
}

void g47(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(4, 1), *B = r.dev(4, 2);
  r.begin(s);
  r.fill(s, B, 9);
  r.step("cudaMemset", r.api().memset({.dst = A, .width = 16}));
  r.probe("s", s);
  r.fill(s, B, 8);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
  r.read("A", A, 4);
}

void legacy_work(Run& r, int32_t* A, const int32_t* B, EventHandle e) {
  const StreamHandle L = kLegacyStream;
  if (r.sub_is("hostfunc")) {
    launch_host_count(r, L);
  } else if (r.sub_is("kernel")) {
    r.fill(L, A, 4);
  } else if (r.sub_is("memcpyAsync")) {
    r.cpy(A, B, 16, kDeviceToDevice, L);
  } else if (r.sub_is("memsetAsync")) {
    memset_async(r, A, 0, 16, L);
  } else if (r.sub_is("eventRecord")) {
    r.rec(e, L);
  } else if (r.sub_is("waitEvent")) {
    r.wait(L, e);
  } else if (r.sub_is("sync")) {
    r.sync(L);
  } else {
    r.step("cudaStreamQuery", r.api().stream_query(L));
  }
}

void g48(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(4, 1), *B = r.dev(4, 2);
  const EventHandle e = r.ev();
  const StreamHandle t = r.st_nb();
  if (r.sub_is("waitEvent")) {
    (void)r.api().event_record(e, t);
    (void)r.api().stream_synchronize(t);
  }
  r.begin(s);
  r.fill(s, B, 9);
  legacy_work(r, A, B, e);
  r.probe("s", s);
  r.fill(s, B, 8);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
  r.read("A", A, 4);
}

void g49(Run& r) {
  const StreamHandle s = r.st();
  int32_t* B = r.dev(4);
  CaptureStatus q = CaptureStatus::kNone;
  const StreamHandle L = r.sub_is("legacy") ? kLegacyStream : kNullStream;
  r.begin(s);
  r.fill(s, B, 9);
  r.step("cudaStreamIsCapturing", r.api().stream_is_capturing(L, &q));
  r.probe("s", s);
  const GraphHandle g = r.end(s);
  r.dump("g", g);
}

void g50(Run& r) {
  const StreamHandle s = r.st();
  int32_t* B = r.dev(4);
  r.begin(s);
  r.fill(s, B, 9);
  capture_info(r, kLegacyStream);
  r.probe("s", s);
  r.fill(s, B, 8);
  const GraphHandle g = r.end(s);
  r.dump("g", g);
}

void g51(Run& r) {
  const StreamHandle s = r.st(), L = kLegacyStream;
  int32_t *B = r.dev(4), *h = r.pinned(1);
  const EventHandle e = r.ev();
  r.begin(s);
  r.fill(s, B, 9);
  if (r.sub_is("hostfunc")) {
    launch_host_count(r, L);
    r.poll([] { return Run::host_calls() != 0; });
    r.fact("calls_during_capture", Run::host_calls());
  } else if (r.sub_is("kernel")) {
    r.launch(k::sys, {1}, {32}, L, k::args(h, 5));
    r.fact("ran_during_capture", r.poll(h, 5));
  } else if (r.sub_is("isCapturing")) {
    CaptureStatus q = CaptureStatus::kInvalidated;
    r.step("cudaStreamIsCapturing", r.api().stream_is_capturing(L, &q));
    r.fact("legacy_status", std::string(name_of(q)));
  } else if (r.sub_is("captureInfo")) {
    r.fact("legacy_status", std::string(name_of(capture_info(r, L).status)));
  } else if (r.sub_is("eventRecord")) {
    r.rec(e, L);
  } else {
    r.step("cudaStreamQuery", r.api().stream_query(L));
  }
  r.probe("s", s);
  r.fill(s, B, 8);
  const GraphHandle g = r.end(s);
  r.dump("g", g);
}

void g53(Run& r) {
  const StreamHandle s = r.st(), t = r.st_nb();
  const EventHandle e = r.ev(), f = r.ev();
  int32_t *A = r.dev(4), *B = r.dev(4);
  r.begin(s);
  r.fill(s, A, 1);
  r.rec(f, s);
  r.sync(s);
  r.probe("s", s);
  r.sync(s);
  const CaptureInfo info = capture_info(r, s);
  r.fact("info_status", std::string(name_of(info.status)));
  r.fact("info_id_nonzero", info.id != 0);
  r.fill(s, A, 2);
  r.cpy(A, B, 16, kDeviceToDevice, s);
  memset_async(r, A, 0, 16, s);
  launch_host_count(r, s);
  r.rec(e, s);
  r.wait(t, f);
  r.probe("t", t);
  r.wait(s, e);
  r.begin(s);
  r.malloc(64);
  r.step("cudaEventQuery", r.api().event_query(f));
  r.probe("s", s);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
  r.end(s);
  r.malloc(64);
  r.fill(s, A, 3);
  r.sync(s);
  r.read("A", A, 4);
  r.sync(t);
}

/// G54-G57: an unrelated stream synchronised during a capture.
void unrelated_sync(Run& r, bool other_thread) {
  const StreamHandle s = r.st(), t = r.st();
  int32_t *A = r.dev(4), *B = r.dev(4);
  const auto fill_and_sync = [&] {
    r.fill(t, B, 5);
    r.sync(t);
  };
  r.begin(s);
  r.fill(s, A, 1);
  if (other_thread) {
    r.on_b(fill_and_sync);
  } else {
    fill_and_sync();
  }
  r.probe("s", s);
  r.fill(s, A, 2);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
  r.sync(t);
  r.read("B", B, 4);
}

void other_thread_sync(Run& r) { unrelated_sync(r, true); }
void same_thread_sync(Run& r) { unrelated_sync(r, false); }

void g58(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  void* M = nullptr;
  r.fact("managed_alloc", static_cast<int32_t>(r.api().malloc_managed(4096, &M)));
  r.begin(s);
  r.fill(s, A, 1);
  r.step("cudaStreamAttachMemAsync", r.api().stream_attach_mem_async(s, M));
  r.probe("s", s);
  r.fill(s, A, 2);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
}

void g59(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  KernelLaunch bad = node(k::fill, A, 9, 4);
  if (r.sub_is("block2048")) {
    bad.block = {2048};
  } else if (r.sub_is("grid0")) {
    bad.grid = {0};
  } else if (r.sub_is("block0")) {
    bad.block = {0};
  } else if (r.sub_is("smem1M")) {
    bad.shared_bytes = 1 << 20;
  } else {
    bad.grid = {1, 70000};
  }
  r.begin(s);
  r.fill(s, A, 1);
  r.step("cudaLaunchKernel", r.api().launch_kernel(bad, s));
  r.probe("s", s);
  r.add(s, A, 1);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
}

void g60(Run& r) {
  const StreamHandle s = r.st(), t = r.st_nb();
  int32_t *A = r.dev(4), *B = r.dev(4), *h = r.pinned(8);
  std::fill_n(h, 4, 3);
  const auto work = [&] {
    r.cpy(B, h, 16, kHostToDevice, t);
    r.launch(k::sys, {1}, {32}, t, k::args(h + 4, 5));
  };
  r.begin(s);
  r.fill(s, A, 1);
  if (r.sub_is("same")) {
    work();
  } else {
    r.on_b(work);
  }
  r.fact("ran_during_capture", r.poll(h + 4, 5));
  r.probe("s", s);
  r.probe("t", t);
  const GraphHandle g = r.end(s);
  r.dump("g", g);
  r.read("B", B, 4);
  r.read("A", A, 4);
}

void g61(Run& r) {
  const StreamHandle s1 = r.st(), s2 = r.st(), s3 = r.st();
  const EventHandle e = r.ev(), f = r.ev();
  int32_t* A = r.dev(4);
  r.begin(s1);
  r.begin(s3);
  r.rec(e, s1);
  r.wait(s2, e);
  const uint64_t i1 = r.capture_id(s1);
  const uint64_t i2 = r.capture_id(s2);
  const uint64_t i3 = r.capture_id(s3);
  r.fact("fork_equal", i1 == i2);
  r.fact("two_captures_differ", i1 != i3);
  r.fact("nonzero", i1 != 0 && i3 != 0);
  r.fill(s2, A, 1);
  r.rec(f, s2);
  r.wait(s1, f);
  const GraphHandle g1 = r.end(s1);
  const GraphHandle g3 = r.end(s3);
  r.begin(s1);
  const uint64_t i4 = r.capture_id(s1);
  r.fact("recapture_differs", i4 != i1 && i4 != i3);
  r.end(s1);
  r.dump("g1", g1);
  r.dump("g3", g3);
}

void g62(Run& r) {
  const StreamHandle s1 = r.st(), s2 = r.st();
  const EventHandle e = r.ev(), f = r.ev();
  int32_t *A = r.dev(4), *B = r.dev(4);
  r.begin(s1);
  r.fill(s1, A, 1);
  r.rec(e, s1);
  if (r.sub_is("after_wait")) {
    r.wait(s2, e);
    r.step("cudaEventDestroy", r.api().event_destroy(e));
    r.probe("s1", s1);
    r.fill(s2, B, 2);
    r.rec(f, s2);
    r.wait(s1, f);
    r.step("cudaEventDestroy", r.api().event_destroy(f));
  } else {
    r.step("cudaEventDestroy", r.api().event_destroy(e));
  }
  r.probe("s1", s1);
  r.add(s1, A, 1);
  const GraphHandle g = r.end(s1);
  r.probe("s1", s1);
  r.dump("g", g);
}

/// G63: what follows when the origin of a capture was destroyed.
void after_origin_destroyed(Run& r, DeviceError destroyed, StreamHandle s1, StreamHandle t,
                            int32_t* A) {
  r.malloc(64);
  r.sync(t);
  GraphHandle g;
  if (destroyed != DeviceError::kSuccess) {
    r.probe("s1", s1);
    g = r.end(s1);
  } else {
    const StreamHandle u = r.st();
    r.begin(u);
    r.fill(u, A, 2);
    g = r.end(u);
  }
  r.dump("g", g);
}

void g63(Run& r) {
  const StreamHandle s1 = r.st(), s2 = r.st(), t = r.st_nb();
  const EventHandle e = r.ev(), f = r.ev();
  int32_t *A = r.dev(4), *B = r.dev(4);
  r.begin(s1);
  r.fill(s1, A, 1);
  if (r.sub_is("origin")) {
    const DeviceError destroyed = r.step("cudaStreamDestroy", r.api().stream_destroy(s1));
    return after_origin_destroyed(r, destroyed, s1, t, A);
  }
  r.rec(e, s1);
  r.wait(s2, e);
  r.fill(s2, B, 2);
  if (r.sub_is("forked_joined")) {
    r.rec(f, s2);
    r.wait(s1, f);
  }
  r.step("cudaStreamDestroy", r.api().stream_destroy(s2));
  r.probe("s1", s1);
  r.add(s1, A, 1);
  const GraphHandle g = r.end(s1);
  r.probe("s1", s1);
  r.dump("g", g);
}

constexpr Open kDestroyOpen[] = {{"", "ret cudaStreamDestroy", "0"},
                                 {"forked", "ret cudaStreamEndCapture", "904"},
                                 {"origin forked_joined", "ret cudaStreamEndCapture", "0"}};

constexpr Program kLegalityBesidePrograms[] = {
    {"G46", "synchronous cudaMemcpy, blocking stream capturing", Verdict::kExact, "B3",
     "H2D D2H D2D H2H", synchronous_copy},
    {"G47", "synchronous cudaMemset, blocking stream capturing", Verdict::kExact, "B3", "", g47},
    {"G48", "work on the legacy stream, blocking stream capturing", Verdict::kExact, "B3",
     "hostfunc kernel memcpyAsync memsetAsync eventRecord waitEvent sync query", g48},
    {"G49", "StreamIsCapturing(legacy), blocking stream capturing", Verdict::kExact, "B3",
     "legacy null", g49},
    {"G50", "StreamGetCaptureInfo(legacy), blocking stream capturing", Verdict::kExact, "B3", "",
     g50},
    {"G51", "legacy stream used while a non-blocking stream captures", Verdict::kExact, "N3",
     "hostfunc kernel isCapturing captureInfo eventRecord query", g51},
    {"G52", "synchronous copies while a non-blocking stream captures", Verdict::kExact, "N3",
     "memcpyH2D memcpyD2H memcpyD2D memcpyH2H memset memcpyToSymbolLike2D", synchronous_copy},
    {"G53", "behaviour of an invalidated capture", Verdict::kExact, "A", "", g53},
    {"G54", "other thread syncs its stream during a global capture", Verdict::kExact, "A:global",
     "", other_thread_sync},
    {"G55", "other thread syncs its stream during a thread-local or relaxed capture",
     Verdict::kExact, "A:thread_local,relaxed", "", other_thread_sync},
    {"G56", "same thread syncs an unrelated stream", Verdict::kExact, "A:global,thread_local", "",
     same_thread_sync},
    {"G57", "same thread syncs an unrelated stream, relaxed", Verdict::kExact, "A:relaxed", "",
     same_thread_sync},
    {"G58", "StreamAttachMemAsync on the capturing stream", Verdict::kExact, "A", "", g58},
    {"G59", "invalid launch configuration in capture", Verdict::kExact, "D+n.relaxed",
     "block2048 grid0 block0 smem1M gridy70000", g59},
    {"G60", "work on a non-participating stream during capture", Verdict::kExact, "A",
     "same otherThread", g60},
    {"G61", "capture ids", Verdict::kExact, "A", "", g61},
    {"G62", "destroy a captured event before EndCapture", Verdict::kExact, "D",
     "after_wait before_wait never_waited", g62},
    {"G63", "destroy a capturing stream", Verdict::kSet, "A", "origin forked forked_joined", g63,
     "graph.destroyed_in_capture", kDestroyOpen},
};

}  // namespace

std::span<const Program> programs_legality_beside() { return kLegalityBesidePrograms; }

}  // namespace shadowgraph
