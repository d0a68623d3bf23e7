// Handles, flags and numbers of DeviceApi are CUDA's own; here they change their type.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "shadowgraph/device/device_api.h"

namespace shadowgraph::cuda {

inline DeviceError error_of(cudaError_t e) { return static_cast<DeviceError>(e); }

template <class Native, class Tag>
Native native(Handle<Tag> h) {
  return reinterpret_cast<Native>(h.value);
}
inline cudaStream_t native(StreamHandle s) { return native<cudaStream_t>(s); }
inline cudaEvent_t native(EventHandle e) { return native<cudaEvent_t>(e); }
inline cudaGraph_t native(GraphHandle g) { return native<cudaGraph_t>(g); }
inline cudaGraphExec_t native(ExecHandle x) { return native<cudaGraphExec_t>(x); }
inline cudaGraphNode_t native(NodeHandle n) { return native<cudaGraphNode_t>(n); }

/// The handle of what CUDA handed out.
template <class H, class Native>
H handle(Native native) {
  return H{reinterpret_cast<uint64_t>(native)};
}

inline std::vector<cudaGraphNode_t> native(std::span<const NodeHandle> nodes) {
  std::vector<cudaGraphNode_t> all;
  for (const NodeHandle node : nodes) all.push_back(native(node));
  return all;
}

inline cudaGraphEdgeData native(const EdgeData& data) {
  cudaGraphEdgeData d = {};
  d.from_port = data.from_port, d.to_port = data.to_port, d.type = data.type;
  return d;
}
inline EdgeData edge_of(const cudaGraphEdgeData& d) { return {d.from_port, d.to_port, d.type}; }
inline std::vector<cudaGraphEdgeData> native(std::span<const EdgeData> data) {
  std::vector<cudaGraphEdgeData> all;
  for (const EdgeData& d : data) all.push_back(native(d));
  return all;
}

inline cudaMemcpyKind native(MemcpyKind kind) { return static_cast<cudaMemcpyKind>(kind); }

/// nullptr where there is nothing: CUDA distinguishes that from an array of no elements.
template <class T>
T* data_or_null(std::vector<T>& all) {
  return all.empty() ? nullptr : all.data();
}

}  // namespace shadowgraph::cuda
