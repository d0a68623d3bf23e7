// What a program declares and what it looks at: unrecorded calls.
#include <algorithm>
#include <thread>

#include "conformance/program.h"

namespace shadowgraph {
namespace {

MemcpyParams copy_of(void* dst, const void* src, size_t bytes, MemcpyKind kind) {
  return {.dst = dst, .src = src, .width = bytes, .kind = kind};
}

std::string node_label(const NodeParams& params) {
  const auto* launch = std::get_if<KernelLaunch>(&params);
  if (launch == nullptr) return std::string(type_name(params));
  std::string label = "kernel:" + std::string(launch->kernel->name);
  if (const int arg = launch->kernel->label_arg; arg >= 0) {
    label += ':' + std::to_string(launch->args.get<int32_t>(static_cast<size_t>(arg)));
  }
  return label;
}

int32_t index_in(const std::vector<NodeHandle>& nodes, NodeHandle node) {
  const auto it = std::find(nodes.begin(), nodes.end(), node);
  return it == nodes.end() ? -1 : static_cast<int32_t>(it - nodes.begin());
}

}  // namespace

StreamHandle Run::st() {
  StreamHandle s;
  (void)api_.stream_create_with_flags(variant_.blocking ? kStreamDefault : kStreamNonBlocking, &s);
  return s;
}

StreamHandle Run::st_nb() {
  StreamHandle s;
  (void)api_.stream_create_with_flags(kStreamNonBlocking, &s);
  return s;
}

EventHandle Run::ev() {
  EventHandle e;
  (void)api_.event_create_with_flags(kEventDisableTiming, &e);
  return e;
}

int32_t* Run::dev(int64_t n, int32_t fill, std::string_view name) {
  void* p = nullptr;
  const auto count = static_cast<size_t>(n);
  if (api_.malloc(count * sizeof(int32_t), &p) != DeviceError::kSuccess) return nullptr;
  if (!name.empty()) api_.name_buffer(p, name);
  put(static_cast<int32_t*>(p), std::vector<int32_t>(count, fill));
  return static_cast<int32_t*>(p);
}

int32_t* Run::pinned(int64_t n, int32_t fill) {
  constexpr uint32_t kHostAllocMapped = 2;
  void* p = nullptr;
  const auto count = static_cast<size_t>(n);
  if (api_.host_alloc(count * sizeof(int32_t), kHostAllocMapped, &p) != DeviceError::kSuccess) {
    return nullptr;
  }
  std::fill_n(static_cast<int32_t*>(p), count, fill);
  return static_cast<int32_t*>(p);
}

int32_t* Run::host(int64_t n, int32_t fill) {
  host_memory_.push_back({std::vector<int32_t>(static_cast<size_t>(n), fill)});
  std::vector<int32_t>& values = host_memory_.back().values;
  api_.host_block(values.data(), values.size() * sizeof(int32_t), "host");
  return values.data();
}

void Run::end_host(int32_t* p) {
  for (HostMemory& block : host_memory_) {
    if (block.values.data() == p) block.ended = true;
  }
  api_.host_block_ended(p);
}

void Run::put(int32_t* p, std::span<const int32_t> values) {
  // A copy from pageable memory may return before the device has it: wait on both sides.
  (void)api_.device_synchronize();
  (void)api_.memcpy(copy_of(p, values.data(), values.size_bytes(), MemcpyKind::kHostToDevice));
  (void)api_.device_synchronize();
}

void Run::put(int32_t* p, std::initializer_list<int32_t> values) {
  put(p, std::span(values.begin(), values.size()));
}

void Run::probe(std::string_view name, StreamHandle s) {
  CaptureStatus status = CaptureStatus::kNone;
  const DeviceError ret = api_.stream_is_capturing(s, &status);
  const std::string text = ret == DeviceError::kSuccess
                               ? std::string(name_of(status))
                               : "error" + std::to_string(static_cast<int32_t>(ret));
  record_.capture_status.push_back(std::string(name) + '=' + text + '@' +
                                   std::to_string(record_.steps.size()));
}

void Run::dump(std::string_view label, GraphHandle g) {
  GraphDump& dump = record_.graphs.emplace_back();
  dump.label = label;
  dump.null = !g;
  if (!g) return;
  const std::vector<NodeHandle> nodes = nodes_of(g);
  for (const NodeHandle node : nodes) {
    NodeParams params = EmptyParams{};
    (void)api_.graph_node_get_params(node, &params);
    dump.order.push_back(node_label(params));
  }
  std::vector<GraphEdge> edges;
  (void)api_.graph_get_edges(g, &edges);
  const auto ends = [&nodes](const GraphEdge& e) {
    return std::pair(index_in(nodes, e.from), index_in(nodes, e.to));
  };
  std::stable_sort(edges.begin(), edges.end(),
                   [&ends](const GraphEdge& a, const GraphEdge& b) { return ends(a) < ends(b); });
  for (const GraphEdge& edge : edges) {
    const auto [from_port, to_port, type] = edge.data;
    if (edge.data != EdgeData{}) {
      dump.edge_data.push_back({static_cast<int32_t>(dump.edges.size()), from_port, to_port, type});
    }
    dump.edges.push_back(ends(edge));
  }
}

void Run::read(std::string_view name, const int32_t* p, int64_t n) {
  (void)api_.device_synchronize();
  std::vector<int32_t> values(static_cast<size_t>(n));
  const DeviceError ret =
      api_.memcpy(copy_of(values.data(), p, values.size() * sizeof(int32_t), MemcpyKind::kDefault));
  if (ret == DeviceError::kSuccess) {
    record_.buffers[std::string(name)] = std::move(values);
  } else {
    record_.buffer_errors[std::string(name)] = static_cast<int32_t>(ret);
  }
}

void Run::fact(std::string_view name, Fact value) {
  record_.facts[std::string(name)] = std::move(value);
}

bool Run::poll(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    api_.poll();
    std::this_thread::yield();
  }
  return true;
}

bool Run::poll(const int32_t* p, int32_t value) {
  return poll([p, value] { return *static_cast<const volatile int32_t*>(p) == value; });
}

int32_t Run::ordinal(GraphHandle g, NodeHandle node) {
  return node ? index_in(nodes_of(g), node) : -1;
}

std::vector<NodeHandle> Run::nodes_of(GraphHandle g) {
  std::vector<NodeHandle> nodes;
  if (g) (void)api_.graph_get_nodes(g, &nodes);
  return nodes;
}

std::vector<int32_t> Run::peek(const int32_t* p, int64_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  (void)api_.memcpy(
      copy_of(values.data(), p, values.size() * sizeof(int32_t), MemcpyKind::kDeviceToHost));
  return values;
}

}  // namespace shadowgraph
