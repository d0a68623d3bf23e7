// M:...: which calls are allowed beside a capture. One program; each entry makes another call in
// the middle of it, in the capturing thread or in another.
#include <array>
#include <utility>

#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

/// What the calls are made on: all of it idle, only s about to capture.
struct Fixture {
  StreamHandle s, t, td;
  int32_t *a, *b, *mfree, *hp, *hfree, *hv;
  void* pool = nullptr;  // of cudaMallocAsync on t
  EventHandle done, never, cap, edel, tim1, tim2;
  NodeParams fill_node;
  GraphHandle g0, gd, ge;  // g0: fill_node; the others are empty
  ExecHandle x0, xd;       // of g0 and gd

  // What the calls return.
  void *p = nullptr, *async = nullptr;
  StreamHandle stream;
  EventHandle event;
  GraphHandle graph;
  NodeHandle node;
  ExecHandle exec;
  UpdateInfo info;
  CaptureStatus status{};
  int32_t priority = 0;
  float ms = 0;
};

Fixture make_fixture(Run& run) {
  DeviceApi& api = run.api();
  Fixture f{};
  f.s = run.st();
  f.t = run.st_nb();
  f.td = run.st_nb();
  f.a = run.dev(4, 0, "A");
  f.b = run.dev(4, 0, "B");
  f.mfree = run.dev(4);
  f.hp = run.pinned(4);
  f.hfree = run.pinned(4);
  f.hv = run.host(4);
  api.malloc_async(64, f.t, &f.pool);
  for (EventHandle* e : {&f.done, &f.never, &f.cap, &f.edel}) *e = run.ev();
  for (EventHandle* e : {&f.tim1, &f.tim2}) api.event_create_with_flags(kEventDefault, e);
  for (const EventHandle e : {f.done, f.tim1, f.tim2}) api.event_record(e, f.t);
  f.fill_node = node(k::fill, f.b, 1, 4);
  for (GraphHandle* g : {&f.g0, &f.gd, &f.ge}) api.graph_create(g);
  api.graph_add_node(f.g0, {}, f.fill_node, &f.node);
  api.graph_instantiate(f.g0, 0, &f.x0);
  api.graph_instantiate(f.gd, 0, &f.xd);
  api.device_synchronize();
  return f;
}

MemcpyParams copy(void* dst, const void* src, MemcpyKind kind) {
  return {.dst = dst, .src = src, .width = 16, .kind = kind};
}

MemsetParams zero(void* dst) { return {.dst = dst, .width = 16}; }

DeviceError fill(DeviceApi& api, StreamHandle s, int32_t* p) {
  return api.launch_kernel(node(k::fill, p, 1, 4), s);
}

/// The call takes the pointer out of the fixture, unless it is refused.
DeviceError free_pool(DeviceApi& api, Fixture& f) {
  const DeviceError ret = api.free_async(f.pool, f.t);
  if (ret == DeviceError::kSuccess) f.pool = nullptr;
  return ret;
}

struct Call {
  std::string_view id, title;
  DeviceError (*make)(DeviceApi& api, Fixture& f);
};

#define CALL(name, call)                                                                  \
  {                                                                                       \
    "M:" #name, "matrix: " #name,                                                         \
        []([[maybe_unused]] DeviceApi& api, [[maybe_unused]] Fixture& f) { return call; } \
  }

constexpr Call kCalls[] = {
    CALL(cudaMalloc, api.malloc(64, &f.p)),
    CALL(cudaFree, api.free(f.mfree)),
    CALL(cudaFree_null, api.free(nullptr)),
    CALL(cudaHostAlloc, api.host_alloc(64, 0, &f.p)),
    CALL(cudaMallocHost, api.malloc_host(64, &f.p)),
    CALL(cudaFreeHost, api.free_host(f.hfree)),
    CALL(cudaHostRegister, api.other_call(OtherCall::kHostRegister)),
    CALL(cudaMallocManaged, api.malloc_managed(4096, &f.p)),
    CALL(cudaMallocPitch, api.other_call(OtherCall::kMallocPitch)),
    CALL(cudaMallocAsync_unrelated, api.malloc_async(64, f.t, &f.async)),
    CALL(cudaFreeAsync_unrelated, free_pool(api, f)),
    CALL(cudaMemPoolTrimTo, api.other_call(OtherCall::kMemPoolTrimTo)),
    CALL(cudaMemGetInfo, api.other_call(OtherCall::kMemGetInfo)),
    CALL(cudaPointerGetAttributes, api.other_call(OtherCall::kPointerGetAttributes)),
    CALL(cudaStreamCreate, api.stream_create_with_flags(kStreamNonBlocking, &f.stream)),
    CALL(cudaStreamCreateBlocking, api.stream_create_with_flags(kStreamDefault, &f.stream)),
    CALL(cudaStreamDestroy_unrelated, api.stream_destroy(f.td)),
    CALL(cudaEventCreate, api.event_create_with_flags(kEventDefault, &f.event)),
    CALL(cudaEventDestroy_unrelated, api.event_destroy(f.edel)),
    CALL(cudaStreamSynchronize_unrelated, api.stream_synchronize(f.t)),
    CALL(cudaStreamQuery_unrelated, api.stream_query(f.t)),
    CALL(cudaEventSynchronize_unrelated, api.event_synchronize(f.done)),
    CALL(cudaEventQuery_unrelated, api.event_query(f.done)),
    CALL(cudaEventQuery_never, api.event_query(f.never)),
    CALL(cudaEventSynchronize_never, api.event_synchronize(f.never)),
    CALL(cudaEventQuery_captured, api.event_query(f.cap)),
    CALL(cudaEventSynchronize_captured, api.event_synchronize(f.cap)),
    CALL(cudaEventElapsedTime_unrelated, api.event_elapsed_time(f.tim1, f.tim2, &f.ms)),
    CALL(cudaEventElapsedTime_captured, api.event_elapsed_time(f.tim1, f.cap, &f.ms)),
    CALL(cudaEventRecord_unrelated, api.event_record(f.done, f.t)),
    CALL(cudaStreamWaitEvent_unrelated, api.stream_wait_event(f.t, f.done, kEventWaitDefault)),
    CALL(cudaEventRecord_captured_event_elsewhere, api.event_record(f.cap, f.t)),
    CALL(cudaDeviceSynchronize, api.device_synchronize()),
    CALL(cudaStreamQuery_capturing, api.stream_query(f.s)),
    CALL(cudaStreamSynchronize_capturing, api.stream_synchronize(f.s)),
    CALL(cudaStreamSynchronize_legacy, api.stream_synchronize(kLegacyStream)),
    CALL(cudaStreamQuery_legacy, api.stream_query(kLegacyStream)),
    CALL(cudaStreamIsCapturing_legacy, api.stream_is_capturing(kLegacyStream, &f.status)),
    CALL(cudaStreamIsCapturing_unrelated, api.stream_is_capturing(f.t, &f.status)),
    CALL(cudaMemcpy_H2D, api.memcpy(copy(f.b, f.hv, MemcpyKind::kHostToDevice))),
    CALL(cudaMemcpy_D2H, api.memcpy(copy(f.hv, f.b, MemcpyKind::kDeviceToHost))),
    CALL(cudaMemcpy_D2D, api.memcpy(copy(f.b, f.mfree, MemcpyKind::kDeviceToDevice))),
    CALL(cudaMemset, api.memset(zero(f.b))),
    CALL(cudaMemcpyToSymbol, api.memcpy_to_symbol(f.hv, 16)),
    CALL(cudaMemcpyAsync_pinned_unrelated,
         api.memcpy_async(copy(f.b, f.hp, MemcpyKind::kHostToDevice), f.t)),
    CALL(cudaMemcpyAsync_pageable_unrelated,
         api.memcpy_async(copy(f.b, f.hv, MemcpyKind::kHostToDevice), f.t)),
    CALL(cudaMemcpyAsync_D2Hpageable_unrelated,
         api.memcpy_async(copy(f.hv, f.b, MemcpyKind::kDeviceToHost), f.t)),
    CALL(cudaMemsetAsync_unrelated, api.memset_async(zero(f.b), f.t)),
    CALL(kernel_unrelated, fill(api, f.t, f.b)),
    CALL(kernel_legacy, fill(api, kLegacyStream, f.b)),
    CALL(kernel_perthread, fill(api, kPerThreadStream, f.b)),
    CALL(cudaLaunchHostFunc_unrelated, api.launch_host_func(f.t, host_count, nullptr)),
    CALL(cudaStreamAddCallback_unrelated, api.stream_add_callback(f.t, host_count, nullptr)),
    CALL(cudaGraphCreate, api.graph_create(&f.graph)),
    CALL(cudaGraphDestroy, api.graph_destroy(f.ge)),
    CALL(cudaGraphAddKernelNode, api.graph_add_node(f.ge, {}, f.fill_node, &f.node)),
    CALL(cudaGraphInstantiate, api.graph_instantiate(f.g0, 0, &f.exec)),
    CALL(cudaGraphLaunch_unrelated, api.graph_launch(f.x0, f.t)),
    CALL(cudaGraphLaunch_legacy, api.graph_launch(f.x0, kLegacyStream)),
    CALL(cudaGraphUpload_unrelated, api.graph_upload(f.x0, f.t)),
    CALL(cudaGraphUpload_capturing, api.graph_upload(f.x0, f.s)),
    CALL(cudaGraphExecUpdate, api.graph_exec_update(f.x0, f.g0, &f.info)),
    CALL(cudaGraphExecDestroy, api.graph_exec_destroy(f.xd)),
    CALL(cudaGraphClone, api.graph_clone(f.g0, &f.graph)),
    CALL(cudaFuncGetAttributes_warm, api.func_get_attributes(&k::fill)),
    CALL(cudaFuncSetAttribute, api.other_call(OtherCall::kFuncSetAttribute)),
    CALL(cudaOccupancy, api.other_call(OtherCall::kOccupancyMaxActiveBlocksPerMultiprocessor)),
    CALL(cudaGetDevice, api.other_call(OtherCall::kGetDevice)),
    CALL(cudaSetDevice, api.other_call(OtherCall::kSetDevice)),
    CALL(cudaDeviceGetAttribute, api.other_call(OtherCall::kDeviceGetAttribute)),
    CALL(cudaGetDeviceProperties, api.other_call(OtherCall::kGetDeviceProperties)),
    CALL(cudaDeviceSetLimit, api.other_call(OtherCall::kDeviceSetLimit)),
    CALL(cudaDeviceGetLimit, api.other_call(OtherCall::kDeviceGetLimit)),
    CALL(cudaGetLastError, api.get_last_error()),
    CALL(cudaStreamGetPriority_capturing, api.stream_get_priority(f.s, &f.priority)),
    CALL(cudaGetSymbolAddress, api.other_call(OtherCall::kGetSymbolAddress)),
    CALL(cudaDeviceGraphMemTrim, api.other_call(OtherCall::kDeviceGraphMemTrim)),
    CALL(cudaCtxResetPersistingL2Cache, api.other_call(OtherCall::kCtxResetPersistingL2Cache)),
    CALL(cudaMemPrefetchAsync_unrelated, api.mem_prefetch_async(f.a, 16, f.t)),
    CALL(cudaStreamBeginCapture_second, api.stream_begin_capture(f.t, CaptureMode::kRelaxed)),
    CALL(cudaStreamEndCapture_unrelated, api.stream_end_capture(f.t, &f.graph)),
};

#undef CALL

/// A fact only where the context stayed unusable. A capture that the call began on t ends first: no
/// device is synchronised while a stream captures, and that says nothing of the context.
void check_clean(Run& run, Fixture& f) {
  DeviceApi& api = run.api();
  const auto check = [&](std::string_view name, DeviceError ret) {
    if (ret != DeviceError::kSuccess) run.fact(name, static_cast<int64_t>(ret));
  };
  api.stream_is_capturing(f.t, &f.status);
  if (f.status != CaptureStatus::kNone) api.stream_end_capture(f.t, &f.graph);
  check("unclean_cudaMalloc", api.malloc(64, &f.p));
  check("unclean_cudaDeviceSynchronize", api.device_synchronize());
}

void matrix(Run& run, const Call& call) {
  DeviceApi& api = run.api();
  Fixture f = make_fixture(run);
  const auto make_call = [&] { run.step(call.id.substr(2), call.make(api, f)); };
  run.begin(f.s);
  run.fill(f.s, f.a, 1);
  run.rec(f.cap, f.s);
  if (run.sub_is("other")) {
    run.on_b(make_call);
  } else {
    make_call();
  }
  run.probe("s", f.s);
  run.add(f.s, f.a, 1);
  const GraphHandle g = run.end(f.s);
  run.probe("s", f.s);
  run.dump("g", g);
  check_clean(run, f);
  for (void* p : {f.pool, f.async}) api.free_async(p, kLegacyStream);
}

template <size_t kIndex>
void body(Run& run) {
  matrix(run, kCalls[kIndex]);
}

template <size_t... kIndex>
constexpr auto make_programs(std::index_sequence<kIndex...>) {
  return std::array{Program{kCalls[kIndex].id, kCalls[kIndex].title, Verdict::kExact, "A",
                            "same other", body<kIndex>}...};
}

constexpr auto kMatrixPrograms = make_programs(std::make_index_sequence<std::size(kCalls)>());

}  // namespace

std::span<const Program> programs_matrix() { return kMatrixPrograms; }

}  // namespace shadowgraph
