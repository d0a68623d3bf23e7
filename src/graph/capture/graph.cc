#include "shadowgraph/device/graph.h"

#include <algorithm>
#include <string>

#include "graph/sim/device_status.h"

namespace shadowgraph {

Stream::Stream(DeviceApi& api) : api_(api) {
  check(api_.stream_create_with_flags(kStreamNonBlocking, &handle_), "cudaStreamCreateWithFlags");
  check(api_.event_create_with_flags(kEventDisableTiming, &event_), "cudaEventCreateWithFlags");
}

Stream::~Stream() {
  api_.event_destroy(event_);
  api_.stream_destroy(handle_);
}

void Stream::check(DeviceError error, const char* call) {
  Status status = device_status(call, error);
  for (Finding& finding : status.findings()) {
    const std::span<const Finding> known = std::as_const(status_).findings();
    const auto same = [&](const Finding& f) {
      return f.where == finding.where && f.got == finding.got;
    };
    if (std::none_of(known.begin(), known.end(), same)) status_.add(std::move(finding));
  }
}

void Stream::write_down(const NodeParams& params) {
  if (const auto record = record_.lock()) record->push_back(params);
}

void Stream::launch(const KernelLaunch& launch) {
  write_down(launch);
  check(api_.launch_kernel(launch, handle_), "cudaLaunchKernel");
}

void Stream::copy(void* dst, const void* src, size_t bytes) {
  const MemcpyParams params{.dst = dst, .src = src, .width = bytes};
  if (bytes > 0) write_down(params);
  check(api_.memcpy_async(params, handle_), "cudaMemcpyAsync");
}

void Stream::fill(void* dst, uint32_t byte, size_t bytes) {
  const MemsetParams params{.dst = dst, .value = byte, .width = bytes};
  if (bytes > 0) write_down(params);
  check(api_.memset_async(params, handle_), "cudaMemsetAsync");
}

void Stream::wait_for(Stream& other) {
  check(api_.event_record(other.event_, other.handle_), "cudaEventRecord");
  check(api_.stream_wait_event(handle_, other.event_, kEventWaitDefault), "cudaStreamWaitEvent");
  if (record_.expired()) record_ = other.record_;
}

void Stream::synchronize() { check(api_.stream_synchronize(handle_), "cudaStreamSynchronize"); }

Graph::~Graph() {
  if (handle_) api_->graph_destroy(handle_);
}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(handle_, other.handle_);
  nodes_.swap(other.nodes_);
  edges_.swap(other.edges_);
  return *this;
}

Status Graph::record(Stream& stream, const std::function<void(Stream&)>& body, Graph* graph) {
  DeviceApi& api = stream.api_;
  Graph recorded;
  recorded.api_ = &api;
  Status status = stream.take_status();
  stream.check(api.stream_begin_capture(stream.handle_, CaptureMode::kThreadLocal),
               "cudaStreamBeginCapture");
  const auto launches = std::make_shared<std::vector<NodeParams>>();
  stream.record_ = launches;
  body(stream);
  stream.record_.reset();
  stream.check(api.stream_end_capture(stream.handle_, &recorded.handle_), "cudaStreamEndCapture");
  status.add(stream.take_status());
  if (!status.ok()) return status;

  recorded.nodes_ = std::move(*launches);
  std::vector<NodeHandle> nodes;
  std::vector<GraphEdge> edges;
  stream.check(api.graph_get_nodes(recorded.handle_, &nodes), "cudaGraphGetNodes");
  stream.check(api.graph_get_edges(recorded.handle_, &edges), "cudaGraphGetEdges");
  const auto ordinal = [&](NodeHandle n) {
    return static_cast<int32_t>(std::find(nodes.begin(), nodes.end(), n) - nodes.begin());
  };
  for (const GraphEdge& e : edges) recorded.edges_.emplace_back(ordinal(e.from), ordinal(e.to));
  std::sort(recorded.edges_.begin(), recorded.edges_.end());
  status = stream.take_status();
  if (status.ok()) *graph = std::move(recorded);
  return status;
}

GraphExec::~GraphExec() {
  if (handle_) api_->graph_exec_destroy(handle_);
}

GraphExec& GraphExec::operator=(GraphExec&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(handle_, other.handle_);
  return *this;
}

Status GraphExec::instantiate(Graph& graph, GraphExec* exec) {
  GraphExec made;
  made.api_ = graph.api_;
  Status status = device_status("cudaGraphInstantiate",
                                graph.api_->graph_instantiate(graph.handle_, 0, &made.handle_));
  if (status.ok()) *exec = std::move(made);
  return status;
}

Status GraphExec::update(Graph& graph) {
  UpdateInfo info;
  return device_status("cudaGraphExecUpdate",
                       api_->graph_exec_update(handle_, graph.handle_, &info));
}

void GraphExec::replay(Stream& stream) {
  stream.check(api_->graph_launch(handle_, stream.handle_), "cudaGraphLaunch");
}

}  // namespace shadowgraph
