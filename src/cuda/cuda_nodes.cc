// Nodes: each of CUDA's types has calls of its own to be added, read and changed.
#include <utility>

#include "cuda/cuda_compat.h"
#include "cuda/cuda_device_impl.h"
#include "cuda/cuda_values.h"

namespace shadowgraph::cuda {
namespace {

void remember_node(LaunchedKernels& launched, const KernelLaunch* launch) {
  const CudaKernel* kernel = launch == nullptr ? nullptr : find_kernel(*launch->kernel);
  if (kernel != nullptr) launched.remember(*kernel, *launch);
}

/// CUDA's form of a launch; lives as long as the launch.
struct NodeLaunch {
  explicit NodeLaunch(const KernelLaunch& launch) : args(addresses_of(launch.args)) {
    const CudaKernel* kernel = find_kernel(*launch.kernel);
    if (kernel == nullptr || !kernel->takes(launch.args)) return;  // refused: no function
    const Geometry geometry = kernel->geometry_of(launch);
    params.func = const_cast<void*>(kernel->function);
    params.gridDim = geometry.grid;
    params.blockDim = geometry.block;
    params.sharedMemBytes = geometry.shared_bytes;
    params.kernelParams = args.data();
  }
  std::vector<void*> args;
  cudaKernelNodeParams params = {};
};

bool is_row(const MemcpyParams& c) { return c.height == 1 && c.dst_pitch == 0; }

cudaMemcpy3DParms native(const MemcpyParams& c) {
  cudaMemcpy3DParms p = {};
  p.srcPtr = {const_cast<void*>(c.src), c.src_pitch, c.width, c.height};
  p.dstPtr = {c.dst, c.dst_pitch, c.width, c.height};
  p.extent = {c.width, c.height, 1};
  p.kind = cuda::native(c.kind);
  return p;
}

MemcpyParams copy_of(const cudaMemcpy3DParms& p) {
  MemcpyParams c;
  c.dst = p.dstPtr.ptr, c.src = p.srcPtr.ptr;
  c.width = p.extent.width, c.height = p.extent.height;
  if (c.height != 1) c.dst_pitch = p.dstPtr.pitch, c.src_pitch = p.srcPtr.pitch;
  c.kind = static_cast<MemcpyKind>(p.kind);
  return c;
}

cudaMemsetParams native(const MemsetParams& set) {
  return {set.dst, set.pitch, set.value, set.element_size, set.width, set.height};
}

MemsetParams set_of(const cudaMemsetParams& p) {
  return {.dst = p.dst,
          .value = p.value,
          .element_size = p.elementSize,
          .width = p.width,
          .height = p.height,
          .pitch = p.pitch};
}

/// Adds a node behind the dependencies.
struct Add {
  cudaGraph_t graph;
  std::vector<cudaGraphNode_t> deps;
  cudaGraphNode_t node = nullptr;

  const cudaGraphNode_t* after() { return data_or_null(deps); }

  cudaError_t operator()(const KernelLaunch& launch) {
    const NodeLaunch k(launch);
    return cudaGraphAddKernelNode(&node, graph, after(), deps.size(), &k.params);
  }
  cudaError_t operator()(const MemcpyParams& c) {
    if (is_row(c)) {
      return cudaGraphAddMemcpyNode1D(&node, graph, after(), deps.size(), c.dst, c.src, c.width,
                                      cuda::native(c.kind));
    }
    const cudaMemcpy3DParms p = native(c);
    return cudaGraphAddMemcpyNode(&node, graph, after(), deps.size(), &p);
  }
  cudaError_t operator()(const MemsetParams& set) {
    const cudaMemsetParams p = native(set);
    return cudaGraphAddMemsetNode(&node, graph, after(), deps.size(), &p);
  }
  cudaError_t operator()(const HostParams& host) {
    const cudaHostNodeParams p = {host.fn, host.user_data};
    return cudaGraphAddHostNode(&node, graph, after(), deps.size(), &p);
  }
  cudaError_t operator()(const ChildGraphParams& child) {
    return cudaGraphAddChildGraphNode(&node, graph, after(), deps.size(),
                                      cuda::native(child.graph));
  }
  cudaError_t operator()(const EmptyParams&) {
    return cudaGraphAddEmptyNode(&node, graph, after(), deps.size());
  }
  cudaError_t operator()(const EventRecordParams& record) {
    return cudaGraphAddEventRecordNode(&node, graph, after(), deps.size(),
                                       cuda::native(record.event));
  }
  cudaError_t operator()(const EventWaitParams& wait) {
    return cudaGraphAddEventWaitNode(&node, graph, after(), deps.size(), cuda::native(wait.event));
  }
  cudaError_t operator()(MemAllocParams& alloc) {
    cudaMemAllocNodeParams p = {};
    p.poolProps.allocType = cudaMemAllocationTypePinned;
    p.poolProps.location = {cudaMemLocationTypeDevice, 0};
    p.bytesize = alloc.bytes;
    const cudaError_t error = cudaGraphAddMemAllocNode(&node, graph, after(), deps.size(), &p);
    alloc.address = p.dptr;
    return error;
  }
  cudaError_t operator()(const MemFreeParams& free) {
    return cudaGraphAddMemFreeNode(&node, graph, after(), deps.size(), free.address);
  }
  cudaError_t operator()(ConditionalParams& conditional) {
    cudaGraphNodeParams p = {};
    p.type = cudaGraphNodeTypeConditional;
    p.conditional.handle = conditional.handle.value;
    p.conditional.type = static_cast<cudaGraphConditionalNodeType>(conditional.type);
    p.conditional.size = conditional.size;
    const cudaError_t error = add_node(&node, graph, after(), deps.size(), &p);
    if (error != cudaSuccess) return error;
    for (unsigned i = 0; i < conditional.size; ++i) {
      conditional.bodies.push_back(handle<GraphHandle>(p.conditional.phGraph_out[i]));
    }
    return error;
  }
};

/// Changes a node of a graph.
struct Set {
  cudaGraphNode_t node;

  cudaError_t operator()(const KernelLaunch& launch) const {
    const NodeLaunch k(launch);
    return cudaGraphKernelNodeSetParams(node, &k.params);
  }
  cudaError_t operator()(const MemcpyParams& c) const {
    if (is_row(c)) {
      return cudaGraphMemcpyNodeSetParams1D(node, c.dst, c.src, c.width, cuda::native(c.kind));
    }
    const cudaMemcpy3DParms p = native(c);
    return cudaGraphMemcpyNodeSetParams(node, &p);
  }
  cudaError_t operator()(const MemsetParams& set) const {
    const cudaMemsetParams p = native(set);
    return cudaGraphMemsetNodeSetParams(node, &p);
  }
  cudaError_t operator()(const HostParams& host) const {
    const cudaHostNodeParams p = {host.fn, host.user_data};
    return cudaGraphHostNodeSetParams(node, &p);
  }
  cudaError_t operator()(const EventRecordParams& record) const {
    return cudaGraphEventRecordNodeSetEvent(node, cuda::native(record.event));
  }
  cudaError_t operator()(const EventWaitParams& wait) const {
    return cudaGraphEventWaitNodeSetEvent(node, cuda::native(wait.event));
  }
  // CUDA has no such call.
  template <class Other>
  cudaError_t operator()(const Other&) const {
    return cudaErrorNotSupported;
  }
};

/// Changes a node of an executable graph.
struct SetInExec {
  cudaGraphExec_t exec;
  cudaGraphNode_t node;

  cudaError_t operator()(const KernelLaunch& launch) const {
    const NodeLaunch k(launch);
    return cudaGraphExecKernelNodeSetParams(exec, node, &k.params);
  }
  cudaError_t operator()(const MemcpyParams& c) const {
    if (is_row(c)) {
      return cudaGraphExecMemcpyNodeSetParams1D(exec, node, c.dst, c.src, c.width,
                                                cuda::native(c.kind));
    }
    const cudaMemcpy3DParms p = native(c);
    return cudaGraphExecMemcpyNodeSetParams(exec, node, &p);
  }
  cudaError_t operator()(const MemsetParams& set) const {
    const cudaMemsetParams p = native(set);
    return cudaGraphExecMemsetNodeSetParams(exec, node, &p);
  }
  cudaError_t operator()(const HostParams& host) const {
    const cudaHostNodeParams p = {host.fn, host.user_data};
    return cudaGraphExecHostNodeSetParams(exec, node, &p);
  }
  cudaError_t operator()(const ChildGraphParams& child) const {
    return cudaGraphExecChildGraphNodeSetParams(exec, node, cuda::native(child.graph));
  }
  cudaError_t operator()(const EventRecordParams& record) const {
    return cudaGraphExecEventRecordNodeSetEvent(exec, node, cuda::native(record.event));
  }
  cudaError_t operator()(const EventWaitParams& wait) const {
    return cudaGraphExecEventWaitNodeSetEvent(exec, node, cuda::native(wait.event));
  }
  template <class Other>
  cudaError_t operator()(const Other&) const {
    return cudaErrorNotSupported;
  }
};

/// What a node of that type, neither a kernel's nor a conditional's, says of itself.
cudaError_t read_params(cudaGraphNode_t node, cudaGraphNodeType type, NodeParams* params) {
  cudaError_t error = cudaSuccess;
  switch (type) {
    case cudaGraphNodeTypeMemcpy: {
      cudaMemcpy3DParms p = {};
      error = cudaGraphMemcpyNodeGetParams(node, &p);
      *params = copy_of(p);
      return error;
    }
    case cudaGraphNodeTypeMemset: {
      cudaMemsetParams p = {};
      error = cudaGraphMemsetNodeGetParams(node, &p);
      *params = set_of(p);
      return error;
    }
    case cudaGraphNodeTypeHost: {
      cudaHostNodeParams p = {};
      error = cudaGraphHostNodeGetParams(node, &p);
      *params = HostParams{p.fn, p.userData};
      return error;
    }
    case cudaGraphNodeTypeGraph: {
      cudaGraph_t child = nullptr;
      error = cudaGraphChildGraphNodeGetGraph(node, &child);
      *params = ChildGraphParams{handle<GraphHandle>(child)};
      return error;
    }
    case cudaGraphNodeTypeEventRecord:
    case cudaGraphNodeTypeWaitEvent: {
      cudaEvent_t event = nullptr;
      const bool records = type == cudaGraphNodeTypeEventRecord;
      error = records ? cudaGraphEventRecordNodeGetEvent(node, &event)
                      : cudaGraphEventWaitNodeGetEvent(node, &event);
      const auto e = handle<EventHandle>(event);
      if (records) *params = EventRecordParams{e};
      if (!records) *params = EventWaitParams{e};
      return error;
    }
    case cudaGraphNodeTypeMemAlloc: {
      cudaMemAllocNodeParams p = {};
      error = cudaGraphMemAllocNodeGetParams(node, &p);
      *params = MemAllocParams{p.bytesize, p.dptr};
      return error;
    }
    case cudaGraphNodeTypeMemFree: {
      void* p = nullptr;
      error = cudaGraphMemFreeNodeGetParams(node, static_cast<void*>(&p));
      *params = MemFreeParams{p};
      return error;
    }
    default: *params = EmptyParams{}; return error;
  }
}

}  // namespace

DeviceError CudaDevice::graph_add_node(GraphHandle g, std::span<const NodeHandle> dependencies,
                                       NodeParams& params, NodeHandle* node) {
  Add add{cuda::native(g), cuda::native(dependencies)};
  const auto* launch = std::get_if<KernelLaunch>(&params);
  remember_node(launched_, launch);
  const cudaError_t error = std::visit(add, params);
  if (error != cudaSuccess) return error_of(error);
  *node = handle<NodeHandle>(add.node);
  if (const auto* conditional = std::get_if<ConditionalParams>(&params)) {
    const std::scoped_lock lock(mutex_);
    conditionals_[*node] = *conditional;
  }
  return DeviceError::kSuccess;
}

DeviceError CudaDevice::graph_destroy_node(NodeHandle node) {
  return error_of(cudaGraphDestroyNode(cuda::native(node)));
}

DeviceError CudaDevice::graph_node_get_params(NodeHandle node, NodeParams* params) {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  cudaError_t error = cudaGraphNodeGetType(cuda::native(node), &type);
  if (error != cudaSuccess) return error_of(error);
  if (type == cudaGraphNodeTypeConditional) {
    const std::scoped_lock lock(mutex_);
    const auto it = conditionals_.find(node);
    // A clone's: which handle and bodies it has, CUDA does not say.
    *params = it == conditionals_.end() ? ConditionalParams{} : it->second;
    return DeviceError::kSuccess;
  }
  if (type != cudaGraphNodeTypeKernel)
    return error_of(read_params(cuda::native(node), type, params));
  cudaKernelNodeParams p = {};
  error = cudaGraphKernelNodeGetParams(cuda::native(node), &p);
  if (error != cudaSuccess) return error_of(error);
  KernelLaunch launch = launched_.launch_of(p);
  if (launch.kernel == nullptr) return DeviceError::kInvalidDeviceFunction;  // not of these
  *params = std::move(launch);
  return DeviceError::kSuccess;
}

DeviceError CudaDevice::graph_node_set_params(NodeHandle node, const NodeParams& params) {
  const auto* launch = std::get_if<KernelLaunch>(&params);
  remember_node(launched_, launch);
  return error_of(std::visit(Set{cuda::native(node)}, params));
}

DeviceError CudaDevice::graph_kernel_node_get_priority(NodeHandle node, int32_t* priority) {
  cudaKernelNodeAttrValue value = {};
  const cudaError_t error =
      cudaGraphKernelNodeGetAttribute(cuda::native(node), cudaLaunchAttributePriority, &value);
  if (error == cudaSuccess) *priority = value.priority;
  return error_of(error);
}

DeviceError CudaDevice::graph_exec_node_set_params(ExecHandle exec, NodeHandle node,
                                                   const NodeParams& params) {
  const auto* launch = std::get_if<KernelLaunch>(&params);
  remember_node(launched_, launch);
  return error_of(std::visit(SetInExec{cuda::native(exec), cuda::native(node)}, params));
}

}  // namespace shadowgraph::cuda
