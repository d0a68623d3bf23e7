// What node parameters are called, and which device addresses they hold.
#include <map>
#include <mutex>
#include <string>

#include "graph/capture/graph_store.h"

namespace shadowgraph {

namespace {

std::string_view kernel_label(const Kernel* kernel) {
  static std::mutex mutex;
  static auto& labels = *new std::map<const Kernel*, std::string>;  // as long-lived as kernels
  const std::lock_guard lock(mutex);
  std::string& label = labels[kernel];
  if (label.empty()) label = "kernel " + std::string(kernel->name);
  return label;
}

std::string_view copy_label(MemcpyKind kind) {
  switch (kind) {
    case MemcpyKind::kHostToHost: return "memcpy H2H";
    case MemcpyKind::kHostToDevice: return "memcpy H2D";
    case MemcpyKind::kDeviceToHost: return "memcpy D2H";
    case MemcpyKind::kDeviceToDevice: return "memcpy D2D";
    case MemcpyKind::kDefault: break;
  }
  return "memcpy";
}

}  // namespace

std::string_view type_name(const NodeParams& params) {
  static constexpr std::string_view kNames[] = {
      "kernel",       "memcpy",     "memset",    "host",     "graph",      "empty",
      "event_record", "wait_event", "mem_alloc", "mem_free", "conditional"};
  static_assert(std::size(kNames) == std::variant_size_v<NodeParams>);
  return kNames[params.index()];
}

std::string_view label_of(const NodeParams& params) {
  if (const auto* launch = std::get_if<KernelLaunch>(&params)) return kernel_label(launch->kernel);
  if (const auto* copy = std::get_if<MemcpyParams>(&params)) return copy_label(copy->kind);
  return type_name(params);
}

std::vector<BakedPointer> bake_pointers(const DeviceMemory& memory, const HostBlockOf& host_block,
                                        const NodeParams& params) {
  std::vector<BakedPointer> pointers;
  const auto bake = [&](const void* p) {
    pointers.push_back(memory.bake(p));
    if (host_block && p != nullptr && !memory.mapped(p, 1)) pointers.back().offset = host_block(p);
  };
  if (const auto* launch = std::get_if<KernelLaunch>(&params)) {
    for (size_t i = 0; i < launch->args.size(); ++i)
      if (launch->args.kind(i) == ArgKind::kPointer) bake(launch->args.get<const void*>(i));
  } else if (const auto* copy = std::get_if<MemcpyParams>(&params)) {
    bake(copy->dst);
    bake(copy->src);
  } else if (const auto* set = std::get_if<MemsetParams>(&params)) {
    bake(set->dst);
  } else if (const auto* allocation = std::get_if<MemAllocParams>(&params)) {
    bake(allocation->address);
  } else if (const auto* release = std::get_if<MemFreeParams>(&params)) {
    bake(release->address);
  }
  return pointers;
}

}  // namespace shadowgraph
