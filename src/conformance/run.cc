// What a program calls: each method makes one call and records it.
#include <atomic>
#include <thread>
#include <utility>

#include "conformance/kernels.h"
#include "conformance/program.h"

namespace shadowgraph {
namespace {

std::atomic<int32_t> g_host_calls = 0;

/// By NodeParams' alternatives.
constexpr std::string_view kAddNodeCalls[] = {"cudaGraphAddKernelNode",
                                              "cudaGraphAddMemcpyNode1D",
                                              "cudaGraphAddMemsetNode",
                                              "cudaGraphAddHostNode",
                                              "cudaGraphAddChildGraphNode",
                                              "cudaGraphAddEmptyNode",
                                              "cudaGraphAddEventRecordNode",
                                              "cudaGraphAddEventWaitNode",
                                              "cudaGraphAddMemAllocNode",
                                              "cudaGraphAddMemFreeNode",
                                              "cudaGraphAddNode"};
static_assert(std::size(kAddNodeCalls) == std::variant_size_v<NodeParams>);

}  // namespace

int32_t Run::host_calls() { return g_host_calls; }
void Run::count_host_call() { ++g_host_calls; }

void host_count(void*) { Run::count_host_call(); }

void host_see(void* see) {
  Run::count_host_call();
  auto& u = *static_cast<HostSee*>(see);
  u.seen[u.n++] = u.val;
}

void host_inc(void* inc) {
  Run::count_host_call();
  const auto& u = *static_cast<HostInc*>(inc);
  *u.dst = *u.src + 100;
}

Run::Run(DeviceApi& api, std::string id, Variant variant)
    : mode(variant.mode), api_(api), variant_(std::move(variant)) {
  record_.id = std::move(id);
  record_.variant = variant_.to_string();
  g_host_calls = 0;
}

Run::~Run() {
  (void)api_.device_synchronize();  // pending copies may name host memory of this run
  for (const HostMemory& block : host_memory_) {
    if (!block.ended) api_.host_block_ended(block.values.data());
  }
}

Record Run::take() {
  record_.host_calls = g_host_calls;
  return std::move(record_);
}

DeviceError Run::step(std::string_view call, DeviceError ret) {
  record_.steps.push_back({std::string(call), in_b_, static_cast<int32_t>(ret), ""});
  return ret;
}

DeviceError Run::begin(StreamHandle s) {
  return step("cudaStreamBeginCapture", api_.stream_begin_capture(s, mode));
}

GraphHandle Run::end(StreamHandle s) {
  constexpr GraphHandle kUntouched{~uint64_t{0}};
  GraphHandle g = kUntouched;
  step("cudaStreamEndCapture", api_.stream_end_capture(s, &g));
  record_.steps.back().out = g == kUntouched ? "untouched" : g ? "graph=valid" : "graph=null";
  return g == kUntouched ? GraphHandle{} : g;
}

DeviceError Run::launch(const Kernel& kernel, Dim3 grid, Dim3 block, StreamHandle s,
                        KernelArgs args) {
  const KernelLaunch launch{
      .kernel = &kernel, .grid = grid, .block = block, .args = std::move(args)};
  return step("cudaLaunchKernel", api_.launch_kernel(launch, s));
}

DeviceError Run::fill(StreamHandle s, int32_t* p, int32_t v, int32_t n) {
  return launch(k::fill, {1}, {32}, s, k::args(p, v, n));
}

DeviceError Run::add(StreamHandle s, int32_t* p, int32_t v, int32_t n) {
  return launch(k::add, {1}, {32}, s, k::args(p, v, n));
}

ExecHandle Run::inst(GraphHandle g) {
  ExecHandle exec;
  step("cudaGraphInstantiate", api_.graph_instantiate(g, 0, &exec));
  return exec;
}

DeviceError Run::run(ExecHandle e, StreamHandle s) {
  return step("cudaGraphLaunch", api_.graph_launch(e, s));
}

DeviceError Run::sync(StreamHandle s) {
  return step("cudaStreamSynchronize", api_.stream_synchronize(s));
}

DeviceError Run::rec(EventHandle e, StreamHandle s) {
  return step("cudaEventRecord", api_.event_record(e, s));
}

DeviceError Run::wait(StreamHandle s, EventHandle e) {
  return step("cudaStreamWaitEvent", api_.stream_wait_event(s, e, kEventWaitDefault));
}

DeviceError Run::cpy(void* dst, const void* src, size_t bytes, MemcpyKind kind, StreamHandle s) {
  const MemcpyParams copy{.dst = dst, .src = src, .width = bytes, .kind = kind};
  return step("cudaMemcpyAsync", api_.memcpy_async(copy, s));
}

void* Run::malloc(size_t bytes) {
  void* p = nullptr;
  step("cudaMalloc", api_.malloc(bytes, &p));
  return p;
}

int32_t* Run::malloc_async(size_t bytes, StreamHandle s) {
  void* p = nullptr;
  step("cudaMallocAsync", api_.malloc_async(bytes, s, &p));
  return static_cast<int32_t*>(p);
}

DeviceError Run::free_async(void* p, StreamHandle s) {
  return step("cudaFreeAsync", api_.free_async(p, s));
}

DeviceError Run::update(ExecHandle x, GraphHandle g) {
  UpdateInfo info;
  const DeviceError ret = step("cudaGraphExecUpdate", api_.graph_exec_update(x, g, &info));
  const std::string n = ++updates_ == 1 ? "" : std::to_string(updates_);
  fact("update_result" + n, static_cast<int32_t>(info.result));
  fact("error_node" + n, ordinal(g, info.error_node));
  fact("error_from_node" + n, ordinal(g, info.error_from_node));
  return ret;
}

GraphHandle Run::graph_create() {
  GraphHandle g;
  step("cudaGraphCreate", api_.graph_create(&g));
  return g;
}

NodeHandle Run::add_kernel(GraphHandle g, std::span<const NodeHandle> after,
                           const KernelLaunch& k) {
  NodeParams params = k;
  NodeHandle node;
  step("cudaGraphAddKernelNode", api_.graph_add_node(g, after, params, &node));
  return node;
}

NodeHandle Run::add_kernel(GraphHandle g, std::initializer_list<NodeHandle> after,
                           const KernelLaunch& k) {
  return add_kernel(g, std::span(after.begin(), after.size()), k);
}

DeviceError Run::add_node(GraphHandle g, std::initializer_list<NodeHandle> after,
                          NodeParams& params, NodeHandle* node) {
  return step(kAddNodeCalls[params.index()],
              api_.graph_add_node(g, {after.begin(), after.size()}, params, node));
}

std::vector<GraphHandle> Run::add_conditional(GraphHandle g,
                                              std::initializer_list<NodeHandle> after,
                                              ConditionalHandle h, ConditionalType type,
                                              uint32_t size, NodeHandle* node) {
  NodeParams params = ConditionalParams{.handle = h, .type = type, .size = size, .bodies = {}};
  NodeHandle added;
  if (add_node(g, after, params, &added) != DeviceError::kSuccess) return {};
  if (node != nullptr) *node = added;
  return std::get<ConditionalParams>(params).bodies;
}

ConditionalHandle Run::conditional_handle(GraphHandle g, uint32_t default_value, uint32_t flags) {
  ConditionalHandle h;
  step("cudaGraphConditionalHandleCreate",
       api_.graph_conditional_handle_create(g, default_value, flags, &h));
  return h;
}

uint64_t Run::capture_id(StreamHandle s) {
  CaptureInfo info;
  step("cudaStreamGetCaptureInfo", api_.stream_get_capture_info(s, &info));
  return info.id;
}

void Run::on_b(const std::function<void()>& body) {
  in_b_ = true;
  std::thread(body).join();
  in_b_ = false;
}

}  // namespace shadowgraph
