// G15-G28: copies, memsets and host functions in a capture.
#include <algorithm>

#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

using enum MemcpyKind;

/// G15, G16: the captured copy reads h at each launch.
void host_to_device(Run& r, int32_t* h, bool probe) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.cpy(A, h, 16, kHostToDevice, s);
  if (probe) r.probe("s", s);
  const GraphHandle g = r.end(s);
  r.read("A0", A, 4);
  const ExecHandle e = r.inst(g);
  std::fill_n(h, 4, 1);
  r.run(e, s);
  r.sync(s);
  r.read("A1", A, 4);
  std::fill_n(h, 4, 2);
  r.run(e, s);
  r.sync(s);
  r.read("A2", A, 4);
  r.dump("g", g);
}

void g15(Run& r) { host_to_device(r, r.pinned(4, 9), false); }
void g16(Run& r) { host_to_device(r, r.host(4, 9), true); }

void g17(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4, 3);
  int32_t* h = r.sub_is("pinned") ? r.pinned(4, 9) : r.host(4, 9);
  r.begin(s);
  r.cpy(h, A, 16, kDeviceToHost, s);
  const GraphHandle g = r.end(s);
  r.read("h_after_capture", h, 4);
  const ExecHandle e = r.inst(g);
  std::fill_n(h, 4, 8);
  r.run(e, s);
  r.sync(s);
  r.read("h_after_launch", h, 4);
  r.put(A, {4, 5, 6, 7});
  r.run(e, s);
  r.sync(s);
  r.read("h_after_launch2", h, 4);
  r.dump("g", g);
}

void g18(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4, 0, "A");
  int32_t* h = r.host(r.sub_is("stack") ? 64 : 4, 1);
  r.begin(s);
  r.cpy(A, h, 16, kHostToDevice, s);
  const GraphHandle g = r.end(s);
  // The block's owner ends: free(), another user of the buffer, a return. The bytes stay readable,
  // so that a replay has something to read.
  if (r.sub_is("stack")) r.end_host(h);
  const ExecHandle e = r.inst(g);
  if (!r.sub_is("stack")) r.end_host(h);
  if (!r.sub_is("freed")) std::fill_n(h, 4, 66);
  r.run(e, s);
  r.sync(s);
  r.dump("g", g);
  if (r.sub_is("reused")) {
    r.read("A", A, 4);
  } else {
    const std::vector<int32_t> v = r.peek(A, 4);
    r.fact("saw_capture_time_bytes", v[0] == 1 && v[3] == 1);
  }
}

void g19(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(4, 1), *B = r.dev(4);
  r.begin(s);
  r.cpy(B, A, 16, kDeviceToDevice, s);
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("B1", B, 4);
  r.put(A, {5, 6, 7, 8});
  r.run(e, s);
  r.sync(s);
  r.read("B2", B, 4);
  r.dump("g", g);
}

void g20(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(24), *B = r.dev(24);
  MemsetParams set{.dst = A, .value = 0x11, .width = 8};
  r.begin(s);
  if (r.sub_is("1d")) {
    r.step("cudaMemsetAsync", r.api().memset_async(set, s));
  } else {
    set.height = 3;
    set.pitch = 32;
    r.step("cudaMemset2DAsync", r.api().memset_async(set, s));
  }
  set.value = 0x33;
  set.dst = B;
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.dump("g", g);
  r.read("A", A, 24);
  r.read("B", B, 4);
}

void g21(Run& r) {
  const StreamHandle s = r.st();
  HostSee u, other;
  u.val = 1;
  other.val = 50;
  HostSee* p = &u;
  r.begin(s);
  r.step("cudaLaunchHostFunc", r.api().launch_host_func(s, host_see, p));
  p = &other;
  const GraphHandle g = r.end(s);
  r.poll([&u] { return u.n != 0; }, std::chrono::milliseconds(20));
  r.fact("calls_after_capture", u.n);
  const ExecHandle e = r.inst(g);
  r.fact("calls_after_instantiate", u.n);
  u.val = 2;
  r.run(e, s);
  r.sync(s);
  u.val = 3;
  r.run(e, s);
  r.sync(s);
  r.fact("calls_other", other.n);
  r.dump("g", g);
  r.read("seen", u.seen, 4);
}

void g22(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(1), *B = r.dev(1), *h = r.pinned(2);
  HostInc u{.src = h, .dst = h + 1};
  r.begin(s);
  r.add(s, A, 5, 1);
  r.cpy(h, A, 4, kDeviceToHost, s);
  r.step("cudaLaunchHostFunc", r.api().launch_host_func(s, host_inc, &u));
  r.cpy(B, h + 1, 4, kHostToDevice, s);
  r.add(s, B, 1000, 1);
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("B1", B, 1);
  r.run(e, s);
  r.sync(s);
  r.read("B2", B, 1);
  r.dump("g", g);
  r.read("h", h, 2);
}

/// The call that a host function makes, and what it needs.
struct HostApi {
  DeviceApi& api;
  std::string_view call;
  StreamHandle s;
  EventHandle e;
  int32_t *a = nullptr, *b = nullptr;
  DeviceError ret = DeviceError::kUnknown;
};

DeviceError make_call(HostApi& u) {
  void* p = nullptr;
  const MemcpyParams copy{.dst = u.b, .src = u.a, .width = 16, .kind = kDeviceToDevice};
  const KernelLaunch launch = node(k::fill, u.a, 1, 4);
  if (u.call == "cudaGetDevice") return u.api.other_call(OtherCall::kGetDevice);
  if (u.call == "cudaGetLastError") return u.api.get_last_error();
  if (u.call == "cudaMalloc") return u.api.malloc(64, &p);
  if (u.call == "cudaFree0") return u.api.free(nullptr);
  if (u.call == "cudaStreamQuery") return u.api.stream_query(u.s);
  if (u.call == "cudaEventQuery") return u.api.event_query(u.e);
  if (u.call == "cudaEventRecord") return u.api.event_record(u.e, u.s);
  if (u.call == "cudaMemcpyAsync") return u.api.memcpy_async(copy, u.s);
  if (u.call == "cudaLaunchKernel") return u.api.launch_kernel(launch, u.s);
  if (u.call == "cudaStreamSynchronize") return u.api.stream_synchronize(u.s);
  return u.api.device_synchronize();
}

void host_api(void* user_data) {
  Run::count_host_call();
  auto& u = *static_cast<HostApi*>(user_data);
  u.ret = make_call(u);
}

void g23(Run& r) {
  const StreamHandle s = r.st();
  HostApi u{.api = r.api(), .call = r.sub(), .s = r.st_nb(), .e = r.ev()};
  u.a = r.dev(4);
  u.b = r.dev(4);
  int32_t* A = r.dev(1);
  r.begin(s);
  r.add(s, A, 1, 1);
  r.step("cudaLaunchHostFunc", r.api().launch_host_func(s, host_api, &u));
  r.add(s, A, 1, 1);
  const GraphHandle g = r.end(s);
  r.dump("g", g);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.fact("ret_in_callback", static_cast<int32_t>(u.ret));
  r.fact("name_in_callback", std::string(name_of(u.ret)));
  r.step("cudaDeviceSynchronize", r.api().device_synchronize());
  r.read("A", A, 1);
}

void g24(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.fill(s, A, 1);
  r.step("cudaStreamAddCallback", r.api().stream_add_callback(s, host_count, nullptr));
  r.probe("s", s);
  r.fill(s, A, 2);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
}

void empty_work(Run& r, int32_t* A, int32_t* B, int32_t* h, StreamHandle s) {
  DeviceApi& api = r.api();
  MemcpyParams rows{.dst = A, .src = B, .kind = kDeviceToDevice};
  rows.dst_pitch = rows.src_pitch = 16;
  if (r.sub_is("memcpyD2D")) {
    r.cpy(A, B, 0, kDeviceToDevice, s);
  } else if (r.sub_is("memcpyH2D")) {
    r.cpy(A, h, 0, kHostToDevice, s);
  } else if (r.sub_is("memcpyDefaultNull")) {
    r.cpy(nullptr, nullptr, 0, kDefault, s);
  } else if (r.sub_is("memset")) {
    memset_async(r, A, 1, 0, s);
  } else if (r.sub_is("memsetNull")) {
    memset_async(r, nullptr, 1, 0, s);
  } else if (r.sub_is("memcpy2Dw0")) {
    rows.height = 2;
    r.step("cudaMemcpy2DAsync", api.memcpy_async(rows, s));
  } else if (r.sub_is("memcpy2Dh0")) {
    rows.width = 4;
    rows.height = 0;
    r.step("cudaMemcpy2DAsync", api.memcpy_async(rows, s));
  } else {
    const MemsetParams set{.dst = A, .value = 1, .height = 2, .pitch = 16};
    r.step("cudaMemset2DAsync", api.memset_async(set, s));
  }
}

void g25(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(8), *B = r.dev(8), *h = r.pinned(4);
  r.begin(s);
  r.fill(s, A, 1);
  empty_work(r, A, B, h, s);
  r.probe("s", s);
  r.add(s, A, 1);
  const GraphHandle g = r.end(s);
  r.dump("g", g);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("A", A, 4);
}

void g26(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(8, 0, "A");
  r.put(A, {0, 1, 2, 3, 4, 5, 6, 7});
  r.begin(s);
  r.cpy(A + 1, A, 24, kDeviceToDevice, s);
  const GraphHandle g = r.end(s);
  r.dump("g", g);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("A", A, 8);
}

void g27(Run& r) {
  constexpr int32_t n = 8192, bytes = n * 4;
  const StreamHandle s = r.st();
  int32_t *A = r.dev(n, 0, "A"), *B = r.dev(n, 0, "B");
  std::vector<int32_t> h(n);
  const MemcpyParams copy{.dst = A, .src = h.data(), .width = bytes, .kind = kHostToDevice};
  const KernelLaunch launch{
      .kernel = &k::copy, .grid = {n / 256}, .block = {256}, .args = k::args(B, A, n)};
  int bad = 0;
  for (int32_t i = 1; i <= 200; ++i) {
    std::fill(h.begin(), h.end(), i);
    (void)r.api().memcpy(copy);
    (void)r.api().launch_kernel(launch, s);
    (void)r.api().stream_synchronize(s);
    const std::vector<int32_t> o = r.peek(B, n);
    if (std::any_of(o.begin(), o.end(), [i](int32_t value) { return value != i; })) ++bad;
  }
  r.fact("any_mismatch", bad > 0);
}

void g28(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(16), *B = r.dev(16);
  r.put(A, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  const MemcpyParams rows{.dst = B,
                          .src = A,
                          .width = 8,
                          .height = 2,
                          .dst_pitch = 16,
                          .src_pitch = 32,
                          .kind = kDeviceToDevice};
  r.begin(s);
  r.step("cudaMemcpy2DAsync", r.api().memcpy_async(rows, s));
  const GraphHandle g = r.end(s);
  r.dump("g", g);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("B", B, 16);
}

// What an H200 refuses, and the two calls that it answers.
constexpr Open kHostApiOpen[] = {
    {"cudaGetDevice cudaMalloc cudaFree0 cudaStreamQuery cudaEventRecord cudaMemcpyAsync "
     "cudaLaunchKernel cudaStreamSynchronize cudaDeviceSynchronize",
     "fact ret_in_callback", "800"},
    {"cudaGetLastError cudaEventQuery", "fact ret_in_callback", "0"}};

constexpr Program kCopiesPrograms[] = {
    {"G15", "captured H2D from pinned memory", Verdict::kExact, "N", "", g15},
    {"G16", "captured H2D from pageable memory", Verdict::kExact, "N", "", g16},
    {"G17", "captured D2H", Verdict::kExact, "N", "pinned pageable", g17},
    {"G18", "host source freed or reused before launch", Verdict::kUndefined, "N",
     "freed reused stack", g18, "mem.host_lifetime"},
    {"G19", "captured D2D", Verdict::kExact, "N", "", g19},
    {"G20", "memset node baked", Verdict::kExact, "N", "1d 2d", g20},
    {"G21", "host function in capture", Verdict::kExact, "N", "", g21},
    {"G22", "kernel, host function, kernel chain", Verdict::kExact, "N", "", g22},
    {"G23", "host function calls the API", Verdict::kSet, "N",
     "cudaGetDevice cudaGetLastError cudaMalloc cudaFree0 cudaStreamQuery cudaEventQuery "
     "cudaEventRecord cudaMemcpyAsync cudaLaunchKernel cudaStreamSynchronize "
     "cudaDeviceSynchronize",
     g23,
     "cudaGetDevice=graph.host_callback cudaGetLastError=- cudaMalloc=graph.host_callback "
     "cudaFree0=graph.host_callback cudaStreamQuery=graph.host_callback "
     "cudaEventQuery=graph.host_callback cudaEventRecord=graph.host_callback "
     "cudaMemcpyAsync=graph.host_callback cudaLaunchKernel=graph.host_callback "
     "cudaStreamSynchronize=graph.host_callback cudaDeviceSynchronize=graph.host_callback",
     kHostApiOpen},
    {"G24", "cudaStreamAddCallback in capture", Verdict::kExact, "A", "", g24},
    {"G25", "zero-byte copies and sets in capture", Verdict::kExact, "N",
     "memcpyD2D memcpyH2D memcpyDefaultNull memset memsetNull memcpy2Dw0 memcpy2Dh0 memset2Dw0",
     g25},
    {"G26", "overlapping memcpy node", Verdict::kUndefined, "N", "", g26, "mem.race"},
    {"G27", "pageable cudaMemcpy then kernel on another stream", Verdict::kUndefined, "D", "", g27,
     "n=mem.unordered_access b=-"},
    {"G28", "captured cudaMemcpy2DAsync", Verdict::kExact, "N", "", g28},
};

}  // namespace

std::span<const Program> programs_copies() { return kCopiesPrograms; }

}  // namespace shadowgraph
