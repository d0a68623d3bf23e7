// What CUDA 13 changed of the calls that are made here, so that 12.4 and later compile, too.
// Facts: docs/graphs.md "CUDA 13".
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

static_assert(CUDART_VERSION >= 12040, "CUDA 12.4 or later");

namespace shadowgraph::cuda {

inline cudaError_t get_capture_info(cudaStream_t s, cudaStreamCaptureStatus* status,
                                    unsigned long long* id, cudaGraph_t* graph,
                                    const cudaGraphNode_t** deps, const cudaGraphEdgeData** data,
                                    size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(s, status, id, graph, deps, data, count);
#else
  return cudaStreamGetCaptureInfo_v3(s, status, id, graph, deps, data, count);
#endif
}

inline cudaError_t update_capture_dependencies(cudaStream_t s, cudaGraphNode_t* deps,
                                               const cudaGraphEdgeData* data, size_t count,
                                               unsigned flags) {
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(s, deps, data, count, flags);
#else
  return cudaStreamUpdateCaptureDependencies_v2(s, deps, data, count, flags);
#endif
}

inline cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t g, const cudaGraphNode_t* deps,
                            size_t count, cudaGraphNodeParams* params) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddNode(node, g, deps, nullptr, count, params);
#else
  return cudaGraphAddNode(node, g, deps, count, params);
#endif
}

inline cudaError_t add_dependencies(cudaGraph_t g, const cudaGraphNode_t* from,
                                    const cudaGraphNode_t* to, const cudaGraphEdgeData* data,
                                    size_t count) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(g, from, to, data, count);
#else
  return cudaGraphAddDependencies_v2(g, from, to, data, count);
#endif
}

inline cudaError_t remove_dependencies(cudaGraph_t g, const cudaGraphNode_t* from,
                                       const cudaGraphNode_t* to, const cudaGraphEdgeData* data,
                                       size_t count) {
#if CUDART_VERSION >= 13000
  return cudaGraphRemoveDependencies(g, from, to, data, count);
#else
  return cudaGraphRemoveDependencies_v2(g, from, to, data, count);
#endif
}

inline cudaError_t get_edges(cudaGraph_t g, cudaGraphNode_t* from, cudaGraphNode_t* to,
                             cudaGraphEdgeData* data, size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(g, from, to, data, count);
#else
  return cudaGraphGetEdges_v2(g, from, to, data, count);
#endif
}

inline cudaError_t prefetch_to_device_0(const void* p, size_t bytes, cudaStream_t s) {
#if CUDART_VERSION >= 13000
  return cudaMemPrefetchAsync(p, bytes, cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, s);
#else
  return cudaMemPrefetchAsync(p, bytes, 0, s);
#endif
}

}  // namespace shadowgraph::cuda
