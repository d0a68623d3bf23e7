// CudaDevice's calls on graphs, nodes and executable graphs.
#include <utility>

#include "cuda/cuda_compat.h"
#include "cuda/cuda_device_impl.h"
#include "cuda/cuda_values.h"

namespace shadowgraph::cuda {
namespace {

struct Edges {
  explicit Edges(std::span<const GraphEdge> edges) {
    for (const GraphEdge& e : edges) {
      from.push_back(native(e.from)), to.push_back(native(e.to)), data.push_back(native(e.data));
    }
  }
  std::vector<cudaGraphNode_t> from, to;
  std::vector<cudaGraphEdgeData> data;
};

}  // namespace

// Capture.

DeviceError CudaDevice::thread_exchange_stream_capture_mode(CaptureMode* mode) {
  auto m = static_cast<cudaStreamCaptureMode>(*mode);
  const cudaError_t error = cudaThreadExchangeStreamCaptureMode(&m);
  *mode = static_cast<CaptureMode>(m);
  return error_of(error);
}

DeviceError CudaDevice::stream_begin_capture(StreamHandle s, CaptureMode mode) {
  return error_of(cudaStreamBeginCapture(native(s), static_cast<cudaStreamCaptureMode>(mode)));
}

DeviceError CudaDevice::stream_begin_capture_to_graph(StreamHandle s, GraphHandle g,
                                                      std::span<const NodeHandle> dependencies,
                                                      std::span<const EdgeData> edge_data,
                                                      CaptureMode mode) {
  std::vector<cudaGraphNode_t> deps = native(dependencies);
  std::vector<cudaGraphEdgeData> data = native(edge_data);
  return error_of(cudaStreamBeginCaptureToGraph(native(s), native(g), data_or_null(deps),
                                                data_or_null(data), deps.size(),
                                                static_cast<cudaStreamCaptureMode>(mode)));
}

DeviceError CudaDevice::stream_end_capture(StreamHandle s, GraphHandle* g) {
  if (g == nullptr) return error_of(cudaStreamEndCapture(native(s), nullptr));
  cudaGraph_t made = native(*g);  // it may stay what it is
  const cudaError_t error = cudaStreamEndCapture(native(s), &made);
  *g = handle<GraphHandle>(made);
  return error_of(error);
}

DeviceError CudaDevice::stream_is_capturing(StreamHandle s, CaptureStatus* status) {
  auto is = static_cast<cudaStreamCaptureStatus>(*status);
  const cudaError_t error = cudaStreamIsCapturing(native(s), &is);
  *status = static_cast<CaptureStatus>(is);
  return error_of(error);
}

DeviceError CudaDevice::stream_get_capture_info(StreamHandle s, CaptureInfo* info) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* deps = nullptr;
  const cudaGraphEdgeData* data = nullptr;
  size_t count = 0;
  const cudaError_t error = get_capture_info(native(s), &status, &id, &graph, &deps, &data, &count);
  *info = {};
  info->status = static_cast<CaptureStatus>(status);
  if (error != cudaSuccess || status != cudaStreamCaptureStatusActive) return error_of(error);
  info->id = id;
  info->graph = handle<GraphHandle>(graph);
  for (size_t i = 0; i < count; ++i) {
    info->dependencies.push_back(handle<NodeHandle>(deps[i]));
    info->edge_data.push_back(data == nullptr ? EdgeData{} : edge_of(data[i]));
  }
  return error_of(error);
}

DeviceError CudaDevice::stream_update_capture_dependencies(StreamHandle s,
                                                           std::span<const NodeHandle> dependencies,
                                                           std::span<const EdgeData> edge_data,
                                                           uint32_t flags) {
  std::vector<cudaGraphNode_t> deps = native(dependencies);
  std::vector<cudaGraphEdgeData> data = native(edge_data);
  return error_of(update_capture_dependencies(native(s), data_or_null(deps), data_or_null(data),
                                              deps.size(), flags));
}

// Graphs.

DeviceError CudaDevice::graph_create(GraphHandle* g) {
  cudaGraph_t made = nullptr;
  const cudaError_t error = cudaGraphCreate(&made, 0);
  if (error == cudaSuccess) *g = handle<GraphHandle>(made);
  return error_of(error);
}
DeviceError CudaDevice::graph_destroy(GraphHandle g) {
  return error_of(cudaGraphDestroy(native(g)));
}
DeviceError CudaDevice::graph_clone(GraphHandle g, GraphHandle* clone) {
  cudaGraph_t made = nullptr;
  const cudaError_t error = cudaGraphClone(&made, native(g));
  if (error == cudaSuccess) *clone = handle<GraphHandle>(made);
  return error_of(error);
}
DeviceError CudaDevice::graph_node_find_in_clone(NodeHandle original, GraphHandle clone,
                                                 NodeHandle* node) {
  cudaGraphNode_t found = nullptr;
  const cudaError_t error = cudaGraphNodeFindInClone(&found, native(original), native(clone));
  if (error == cudaSuccess) *node = handle<NodeHandle>(found);
  return error_of(error);
}

DeviceError CudaDevice::graph_add_dependencies(GraphHandle g, std::span<const GraphEdge> edges) {
  Edges e(edges);
  return error_of(add_dependencies(native(g), data_or_null(e.from), data_or_null(e.to),
                                   data_or_null(e.data), edges.size()));
}
DeviceError CudaDevice::graph_remove_dependencies(GraphHandle g, std::span<const GraphEdge> edges) {
  Edges e(edges);
  return error_of(remove_dependencies(native(g), data_or_null(e.from), data_or_null(e.to),
                                      data_or_null(e.data), edges.size()));
}

DeviceError CudaDevice::graph_get_nodes(GraphHandle g, std::vector<NodeHandle>* nodes) {
  size_t count = 0;
  cudaError_t error = cudaGraphGetNodes(native(g), nullptr, &count);
  std::vector<cudaGraphNode_t> all(count);
  if (error == cudaSuccess && count > 0) error = cudaGraphGetNodes(native(g), all.data(), &count);
  if (error != cudaSuccess) return error_of(error);
  nodes->clear();
  for (cudaGraphNode_t n : all) nodes->push_back(handle<NodeHandle>(n));
  return DeviceError::kSuccess;
}

DeviceError CudaDevice::graph_get_edges(GraphHandle g, std::vector<GraphEdge>* edges) {
  size_t count = 0;
  cudaError_t error = get_edges(native(g), nullptr, nullptr, nullptr, &count);
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (error == cudaSuccess && count > 0) {
    error = get_edges(native(g), from.data(), to.data(), data.data(), &count);
  }
  if (error != cudaSuccess) return error_of(error);
  edges->clear();
  for (size_t i = 0; i < count; ++i) {
    edges->push_back({handle<NodeHandle>(from[i]), handle<NodeHandle>(to[i]), edge_of(data[i])});
  }
  return DeviceError::kSuccess;
}

DeviceError CudaDevice::graph_conditional_handle_create(GraphHandle g, uint32_t default_value,
                                                        uint32_t flags, ConditionalHandle* h) {
  cudaGraphConditionalHandle made = 0;
  const cudaError_t error =
      cudaGraphConditionalHandleCreate(&made, native(g), default_value, flags);
  if (error == cudaSuccess) *h = ConditionalHandle{made};
  return error_of(error);
}

// Executable graphs.

DeviceError CudaDevice::graph_instantiate(GraphHandle g, uint64_t flags, ExecHandle* exec) {
  cudaGraphExec_t made = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&made, native(g), flags);
  if (error == cudaSuccess) *exec = handle<ExecHandle>(made);
  return error_of(error);
}

DeviceError CudaDevice::graph_instantiate_with_params(GraphHandle g, InstantiateParams* params,
                                                      ExecHandle* exec) {
  cudaGraphInstantiateParams p = {};
  p.flags = params->flags;
  p.uploadStream = native(params->upload_stream);
  cudaGraphExec_t made = nullptr;
  const cudaError_t error = cudaGraphInstantiateWithParams(&made, native(g), &p);
  params->error_node = handle<NodeHandle>(p.errNode_out);
  params->result = static_cast<InstantiateResult>(p.result_out);
  if (error == cudaSuccess) *exec = handle<ExecHandle>(made);
  return error_of(error);
}

DeviceError CudaDevice::graph_exec_destroy(ExecHandle exec) {
  return error_of(cudaGraphExecDestroy(native(exec)));
}
DeviceError CudaDevice::graph_exec_get_flags(ExecHandle exec, uint64_t* flags) {
  unsigned long long f = 0;
  const cudaError_t error = cudaGraphExecGetFlags(native(exec), &f);
  if (error == cudaSuccess) *flags = f;
  return error_of(error);
}
DeviceError CudaDevice::graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) {
  cudaGraphExecUpdateResultInfo result = {};
  const cudaError_t error = cudaGraphExecUpdate(native(exec), native(g), &result);
  info->result = static_cast<UpdateResult>(result.result);
  info->error_node = handle<NodeHandle>(result.errorNode);
  info->error_from_node = handle<NodeHandle>(result.errorFromNode);
  return error_of(error);
}
DeviceError CudaDevice::graph_node_set_enabled(ExecHandle exec, NodeHandle node, bool enabled) {
  return error_of(cudaGraphNodeSetEnabled(native(exec), native(node), enabled ? 1 : 0));
}
DeviceError CudaDevice::graph_node_get_enabled(ExecHandle exec, NodeHandle node, bool* enabled) {
  unsigned is = 0;
  const cudaError_t error = cudaGraphNodeGetEnabled(native(exec), native(node), &is);
  if (error == cudaSuccess) *enabled = is != 0;
  return error_of(error);
}
DeviceError CudaDevice::graph_upload(ExecHandle exec, StreamHandle s) {
  return error_of(cudaGraphUpload(native(exec), native(s)));
}
DeviceError CudaDevice::graph_launch(ExecHandle exec, StreamHandle s) {
  return error_of(cudaGraphLaunch(native(exec), native(s)));
}

}  // namespace shadowgraph::cuda
