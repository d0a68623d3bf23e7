// Q01-Q15: what the documentation leaves open, and an H200 answered.
#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

void query(Run& run, StreamHandle s) { run.step("cudaStreamQuery", run.api().stream_query(s)); }

/// The thread's old mode.
CaptureMode exchange_mode(Run& run, CaptureMode mode) {
  run.step("cudaThreadExchangeStreamCaptureMode",
           run.api().thread_exchange_stream_capture_mode(&mode));
  return mode;
}

std::string text(CaptureMode mode) { return std::string(name_of(mode)); }

/// The mode that the last word of a sub names: "relaxed", "thread_local", anything else.
CaptureMode mode_of(std::string_view sub) {
  if (sub.ends_with("relaxed")) return CaptureMode::kRelaxed;
  return sub.ends_with("thread_local") ? CaptureMode::kThreadLocal : CaptureMode::kGlobal;
}

void q01(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.fill(s, a, 1);
  run.step("cudaLaunchHostFunc", run.api().launch_host_func(s, nullptr, nullptr));
  run.probe("s", s);
  run.add(s, a, 1);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
}

void bad_copy(Run& run, StreamHandle s, int32_t* a, const int32_t* b, const int32_t* h) {
  if (run.sub_is("memcpyNullDst")) {
    run.cpy(nullptr, b, 16, MemcpyKind::kDeviceToDevice, s);
  } else if (run.sub_is("memcpyNullSrc")) {
    run.cpy(a, nullptr, 16, MemcpyKind::kDeviceToDevice, s);
  } else if (run.sub_is("memcpyBadKind")) {
    run.cpy(a, b, 16, static_cast<MemcpyKind>(9), s);
  } else {
    run.cpy(a, h, 16, MemcpyKind::kDeviceToDevice, s);
  }
}

void bad_call(Run& run, StreamHandle s, EventHandle e) {
  DeviceApi& api = run.api();
  if (run.sub_is("memsetNull")) {
    memset_async(run, nullptr, 0, 16, s);
  } else if (run.sub_is("launchNullFunc")) {
    run.step("cudaLaunchKernel", api.launch_kernel({nullptr, {1}, {32}, 0, {}}, s));
  } else if (run.sub_is("recordNullEvent")) {
    run.rec(EventHandle{}, s);
  } else if (run.sub_is("waitNullEvent")) {
    run.wait(s, EventHandle{});
  } else if (run.sub_is("waitBadFlags")) {
    run.rec(e, s);
    run.step("cudaStreamWaitEvent", api.stream_wait_event(s, e, 8));
  } else if (run.sub_is("mallocAsyncZero")) {
    run.fact("p_null", run.malloc_async(0, s) == nullptr);
  } else if (run.sub_is("mallocAsyncNullOut")) {
    run.step("cudaMallocAsync", api.malloc_async(64, s, nullptr));
  } else if (run.sub_is("freeAsyncNull")) {
    run.free_async(nullptr, s);
  } else {
    run.run(ExecHandle{}, s);
  }
}

void q02(Run& run) {
  const StreamHandle s = run.st();
  const EventHandle e = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B"), *const h = run.host(4);
  run.begin(s);
  run.fill(s, a, 1);
  if (run.sub().starts_with("memcpy")) {
    bad_copy(run, s, a, b, h);
  } else {
    bad_call(run, s, e);
  }
  run.probe("s", s);
  run.add(s, a, 1);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
}

void q03(Run& run) {
  const StreamHandle s = run.st(), t = run.st_nb();
  void* a = nullptr;
  run.api().malloc(16, &a);
  run.begin(s);
  if (run.sub_is("launch")) {
    run.launch(k::cold, {1}, {1}, s, k::args(a, 5));
  } else if (run.sub_is("attr")) {
    run.step("cudaFuncGetAttributes", run.api().func_get_attributes(&k::cold));
  } else {
    run.launch(k::cold, {1}, {1}, t, k::args(a, 5));
  }
  run.probe("s", s);
  run.launch(k::cold2, {1}, {1}, s, k::args(a, 6));
  run.probe("s", s);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
}

/// The nodes' places in cudaGraphGetNodes order.
void read_ordinals(Run& run, std::string_view name, GraphHandle g,
                   std::span<const NodeHandle> nodes) {
  std::vector<int32_t> ordinals;
  for (const NodeHandle n : nodes) ordinals.push_back(run.ordinal(g, n));
  run.read(name, ordinals.data(), static_cast<int64_t>(ordinals.size()));
}

void q04(Run& run) {
  int32_t* const a = run.dev(8, 0, "A");
  const GraphHandle g = run.graph_create();
  const KernelLaunch kernel = node(k::fill, a, 1, 4);
  NodeHandle n[6];
  n[0] = add_node(run, g, {}, EmptyParams{});
  n[1] = run.add_kernel(g, {}, kernel);
  n[2] = add_node(run, g, {}, MemsetParams{a, 0, 4, 4});
  n[3] = run.add_kernel(g, {n[2]}, kernel);
  n[4] = add_node(run, g, {}, EmptyParams{});
  n[5] = add_node(run, g, {}, EmptyParams{});
  const GraphEdge more[] = {{n[5], n[0], {}}, {n[4], n[0], {}}, {n[3], n[1], {}}, {n[5], n[4], {}}};
  run.step("cudaGraphAddDependencies", run.api().graph_add_dependencies(g, more));
  read_ordinals(run, "ordinal_of_ith_added", g, n);
  run.dump("g", g);
  std::vector<GraphEdge> edges;
  run.api().graph_get_edges(g, &edges);
  std::vector<NodeHandle> ends;
  for (const GraphEdge& edge : edges) ends.insert(ends.end(), {edge.from, edge.to});
  read_ordinals(run, "raw_edge_order", g, ends);
  run.step("cudaGraphDestroyNode", run.api().graph_destroy_node(n[1]));
  n[1] = add_node(run, g, {}, EmptyParams{});
  read_ordinals(run, "ordinal_after_replace_1", g, n);
}

void q05(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.fill(s, a, 1);
  run.on_b([&] {
    run.fact("old_mode_B", text(exchange_mode(run, mode_of(run.sub()))));
    run.malloc(64);
  });
  run.probe("s", s);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
}

void q06(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.fact("old_before", text(exchange_mode(run, mode_of(run.sub()))));
  run.begin(s);
  run.fill(s, a, 1);
  run.malloc(64);
  run.probe("s", s);
  run.on_b([&] { run.malloc(64); });
  run.probe("s", s);
  const GraphHandle g = run.end(s);
  run.fact("old_after", text(exchange_mode(run, CaptureMode::kGlobal)));
  run.dump("g", g);
  exchange_mode(run, static_cast<CaptureMode>(5));
}

void q07(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  if (run.sub_is("kernel_kernel")) {
    run.fill(s, a, 1);
  } else {
    memset_async(run, a, 0, 16, s);
  }
  KernelLaunch programmatic = node(k::add, a, 2, 4);
  programmatic.programmatic = true;
  run.step("cudaLaunchKernelExC", run.api().launch_kernel(programmatic, s));
  run.probe("s", s);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void q08(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st(), s3 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s1);
  run.fill(s1, a, 1);
  order(run, s1, e, s2);
  run.fill(s2, b, 2);
  query(run, s2);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.rec(f, s2);
  run.wait(s3, e);
  run.probe("s3", s3);
  run.wait(s1, f);
  const GraphHandle g = run.end(s1);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.probe("s3", s3);
  run.dump("g", g);
  run.fill(s2, b, 7);
  run.sync(s2);
  run.read("B", b, 4);
}

void q09(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  run.begin(s1);
  run.mode = CaptureMode::kRelaxed;
  run.begin(s2);
  run.mode = run.variant().mode;
  run.malloc(64);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.end(s1);
  run.malloc(64);
  run.probe("s2", s2);
  run.end(s2);
}

void q10(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st(), t = run.st_nb();
  run.begin(s1);
  run.begin(s2);
  run.sync(t);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.end(s1);
  run.end(s2);
}

void q11(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st(), t = run.st_nb();
  run.begin(s1);
  run.on_b([&] {
    run.step("cudaStreamBeginCapture", run.api().stream_begin_capture(s2, mode_of(run.sub())));
    run.sync(t);
    run.probe("s2", s2);
  });
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.on_b([&] { run.end(s2); });
  run.probe("s2", s2);
  run.end(s1);
  run.probe("s1", s1);
}

void q12(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s1);
  run.fill(s1, a, 1);
  run.rec(e, s1);
  run.on_b([&] {
    run.wait(s2, e);
    run.fill(s2, b, 2);
    run.rec(f, s2);
  });
  run.wait(s1, f);
  const GraphHandle g = run.end(s1);
  run.probe("s1", s1);
  run.probe("s2", s2);
  run.dump("g", g);
}

void q13(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.on_b([&] {
    run.fill(s, a, 1);
    run.probe("s", s);
    query(run, s);
  });
  run.probe("s", s);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
}

void q14(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  EventHandle e, f;
  run.api().event_create_with_flags(run.sub_is("blocking") ? kEventBlockingSync : kEventDefault,
                                    &e);
  run.api().event_create_with_flags(kEventDefault, &f);
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s1);
  order(run, s1, e, s2);
  run.fill(s2, a, 1);
  order(run, s2, f, s1);
  if (run.sub_is("elapsed")) {
    float ms = 0;
    run.step("cudaEventElapsedTime", run.api().event_elapsed_time(e, f, &ms));
  }
  run.probe("s1", s1);
  const GraphHandle g = run.end(s1);
  run.dump("g", g);
}

void q15(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.sync(s);
  run.step("cudaPeekAtLastError", run.api().peek_at_last_error());
  get_last_error(run);
  get_last_error(run);
  run.fill(s, a, 1);
  get_last_error(run);
  run.end(s);
  get_last_error(run);
  query(run, s);
  get_last_error(run);
}

constexpr Program kQuestionsPrograms[] = {
    {"Q01", "null host function in capture", kE, "A", "", q01},
    {"Q02", "invalid arguments in capture", kE, "D+n.relaxed",
     "memcpyNullDst memcpyNullSrc memcpyBadKind memcpyKindWrong memsetNull launchNullFunc "
     "recordNullEvent waitNullEvent waitBadFlags mallocAsyncZero mallocAsyncNullOut freeAsyncNull "
     "launchNullExec",
     q02},
    {"Q03", "cold (lazily loaded) kernel in capture", kE, "A", "launch attr launch_unrelated", q03},
    {"Q04", "is GetNodes order insertion order", kE, "N", "", q04},
    {"Q05", "thread B changes its own mode", kE, "A", "B_relaxed B_thread_local B_default", q05},
    {"Q06", "thread mode around BeginCapture", kE, "N3", "thr_global thr_thread_local thr_relaxed",
     q06},
    {"Q07", "programmatic launch edge in capture", kE, "D", "kernel_kernel memset_kernel", q07},
    {"Q08", "invalidated capture and its fork", kE, "A", "", q08},
    {"Q09", "a global capture ends while another is open", kE, "N3:global,thread_local", "", q09},
    {"Q10", "unsafe call invalidates which captures", kE, "N3", "", q10},
    {"Q11", "unsafe call in B: whose capture is hit", kE, "N3", "B_relaxed B_thread_local B_global",
     q11},
    {"Q12", "fork wait with captured event by another thread", kE, "A", "", q12},
    {"Q13", "capturing stream used by another thread", kE, "A", "", q13},
    {"Q14", "events created with timing or blocking sync in capture", kE, "D",
     "timing blocking elapsed", q14},
    {"Q15", "errors of refused calls stay out of cudaGetLastError state", kE, "N", "", q15},
};

}  // namespace

std::span<const Program> programs_questions() { return kQuestionsPrograms; }

}  // namespace shadowgraph
