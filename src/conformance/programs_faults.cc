// G130-G135: faults at execution.
#include <algorithm>

#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

constexpr int64_t kFarAway = int64_t{1} << 44;

/// Begin s; wild<1,1>@s(p, offset)
void begin_with_wild_write(Run& run, StreamHandle s, int32_t* p, int64_t offset) {
  run.begin(s);
  run.launch(k::wild, {1}, {1}, s, k::args(p, offset));
}

void device_synchronize(Run& run) {
  run.step("cudaDeviceSynchronize", run.api().device_synchronize());
}

void free(Run& run, void* p) { run.step("cudaFree", run.api().free(p)); }

/// ~cudaMalloc(&p, bytes)
int32_t* malloc_unrecorded(Run& run, size_t bytes) {
  void* p = nullptr;
  run.api().malloc(bytes, &p);
  return static_cast<int32_t*>(p);
}

ExecHandle captured_exec(Run& run, StreamHandle s, int32_t* p, int32_t v) {
  run.begin(s);
  run.fill(s, p, v);
  return run.inst(run.end(s));
}

void g130(Run& run) {
  const StreamHandle s = run.st(), t = run.st_nb();
  int32_t* const a = run.dev(4, 0, "A");
  const EventHandle e = run.ev();
  begin_with_wild_write(run, s, a, kFarAway);
  const GraphHandle g = run.end(s);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.sync(s);
  run.sync(t);
  run.malloc(64);
  run.fill(t, a, 1);
  run.rec(e, t);
  run.step("cudaEventQuery", run.api().event_query(e));
  run.step("cudaStreamQuery", run.api().stream_query(s));
  run.begin(t);
  run.end(t);
  run.run(x, s);
  device_synchronize(run);
  run.step("cudaMemcpy", run.api().memcpy({.dst = a, .src = a, .width = 4}));
  free(run, a);
  get_last_error(run);
  get_last_error(run);
}

void g131(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(128, 0, "A");
  begin_with_wild_write(run, s, a, 128);
  const GraphHandle g = run.end(s);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void g132(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  begin_with_wild_write(run, s, a, kFarAway);
  run.step("cudaLaunchHostFunc", run.api().launch_host_func(s, host_count, nullptr));
  const GraphHandle g = run.end(s);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.poll([] { return Run::host_calls() > 0; }, std::chrono::milliseconds(10));
}

void g133(Run& run) {
  const StreamHandle s = run.st();
  const size_t n = run.sub_is("large") ? size_t{16} << 20 : 4;
  run.api().free(run.dev(4));
  int32_t* const a = malloc_unrecorded(run, n * sizeof(int32_t));
  const ExecHandle x = captured_exec(run, s, a, 7);
  free(run, a);
  run.run(x, s);
  run.sync(s);
  device_synchronize(run);
}

void g134(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  const ExecHandle x = captured_exec(run, s, a, 7);
  free(run, a);
  auto* const b = static_cast<int32_t*>(run.malloc(16));
  run.fact("same_address", a == b);
  run.put(b, {1, 1, 1, 1});
  run.run(x, s);
  run.sync(s);
  run.read("B", b, 4);
}

void g135(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const b = run.dev(4, 5, "B");
  const int32_t* const a = malloc_unrecorded(run, 64);
  run.begin(s);
  run.launch(k::copy, {1}, {32}, s, k::args(b, a, 4));
  const GraphHandle g = run.end(s);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.dump("g", g);
  run.fact("all_zero",
           std::ranges::all_of(run.peek(b, 4), [](int32_t value) { return value == 0; }));
}

constexpr Program kFaultsPrograms[] = {
    {"G130", "wild write at replay is a sticky error", kE, "N", "", g130, "mem.out_of_bounds"},
    {"G131", "one element past an allocation", kU, "N", "", g131, "mem.red_zone"},
    {"G132", "host function after a faulting kernel", kE, "N", "", g132, "mem.out_of_bounds"},
    {"G133", "freed buffer baked in a graph", kU, "N", "small large", g133, "mem.use_after_free"},
    {"G134", "freed buffer, address handed out again", kU, "N", "", g134, "mem.stale_generation"},
    {"G135", "read of allocated, never written bytes", kU, "N", "", g135, "mem.uninit_read"},
};

}  // namespace

std::span<const Program> programs_faults() { return kFaultsPrograms; }

}  // namespace shadowgraph
