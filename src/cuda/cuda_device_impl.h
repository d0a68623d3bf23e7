// CudaDevice: every call of DeviceApi as the runtime's own, made as it is made: what CUDA refuses,
// it refuses itself. Memory, streams and events: cuda_device.cc; captures and graphs:
// cuda_graphs.cc; nodes: cuda_nodes.cc.
#pragma once

#include <map>
#include <mutex>

#include "cuda/cuda_kernels.h"
#include "shadowgraph/device/cuda_device.h"

namespace shadowgraph::cuda {

class CudaDevice final : public DeviceApi {
 public:
  DeviceError get_last_error() override;
  DeviceError peek_at_last_error() override;
  DeviceError device_synchronize() override;
  DeviceError other_call(OtherCall call) override;

  DeviceError malloc(size_t bytes, void** p) override;
  DeviceError free(void* p) override;
  DeviceError malloc_managed(size_t bytes, void** p) override;
  DeviceError host_alloc(size_t bytes, uint32_t flags, void** p) override;
  DeviceError malloc_host(size_t bytes, void** p) override;
  DeviceError free_host(void* p) override;
  DeviceError malloc_async(size_t bytes, StreamHandle s, void** p) override;
  DeviceError free_async(void* p, StreamHandle s) override;
  DeviceError memcpy(const MemcpyParams& copy) override;
  DeviceError memcpy_async(const MemcpyParams& copy, StreamHandle s) override;
  DeviceError memcpy_to_symbol(const void* src, size_t bytes) override;
  DeviceError memset(const MemsetParams& set) override;
  DeviceError memset_async(const MemsetParams& set, StreamHandle s) override;
  DeviceError stream_attach_mem_async(StreamHandle s, void* managed) override;
  DeviceError mem_prefetch_async(const void* p, size_t bytes, StreamHandle s) override;
  DeviceError device_graph_mem_used(uint64_t* bytes) override;

  DeviceError launch_kernel(const KernelLaunch& launch, StreamHandle s) override;
  DeviceError func_get_attributes(const Kernel* kernel) override;
  DeviceError launch_host_func(StreamHandle s, HostFn fn, void* user_data) override;
  DeviceError stream_add_callback(StreamHandle s, HostFn fn, void* user_data) override;

  DeviceError device_get_stream_priority_range(int32_t* least, int32_t* greatest) override;
  DeviceError stream_create_with_priority(uint32_t flags, int32_t priority,
                                          StreamHandle* s) override;
  DeviceError stream_destroy(StreamHandle s) override;
  DeviceError stream_get_priority(StreamHandle s, int32_t* priority) override;
  DeviceError stream_synchronize(StreamHandle s) override;
  DeviceError stream_query(StreamHandle s) override;
  DeviceError stream_wait_event(StreamHandle s, EventHandle e, uint32_t flags) override;

  DeviceError event_create_with_flags(uint32_t flags, EventHandle* e) override;
  DeviceError event_destroy(EventHandle e) override;
  DeviceError event_record_with_flags(EventHandle e, StreamHandle s, uint32_t flags) override;
  DeviceError event_synchronize(EventHandle e) override;
  DeviceError event_query(EventHandle e) override;
  DeviceError event_elapsed_time(EventHandle start, EventHandle end, float* ms) override;

  DeviceError thread_exchange_stream_capture_mode(CaptureMode* mode) override;
  DeviceError stream_begin_capture(StreamHandle s, CaptureMode mode) override;
  DeviceError stream_begin_capture_to_graph(StreamHandle s, GraphHandle g,
                                            std::span<const NodeHandle> dependencies,
                                            std::span<const EdgeData> edge_data,
                                            CaptureMode mode) override;
  DeviceError stream_end_capture(StreamHandle s, GraphHandle* g) override;
  DeviceError stream_is_capturing(StreamHandle s, CaptureStatus* status) override;
  DeviceError stream_get_capture_info(StreamHandle s, CaptureInfo* info) override;
  DeviceError stream_update_capture_dependencies(StreamHandle s,
                                                 std::span<const NodeHandle> dependencies,
                                                 std::span<const EdgeData> edge_data,
                                                 uint32_t flags) override;

  DeviceError graph_create(GraphHandle* g) override;
  DeviceError graph_destroy(GraphHandle g) override;
  DeviceError graph_clone(GraphHandle g, GraphHandle* clone) override;
  DeviceError graph_node_find_in_clone(NodeHandle original, GraphHandle clone,
                                       NodeHandle* node) override;
  DeviceError graph_add_node(GraphHandle g, std::span<const NodeHandle> dependencies,
                             NodeParams& params, NodeHandle* node) override;
  DeviceError graph_destroy_node(NodeHandle node) override;
  DeviceError graph_add_dependencies(GraphHandle g, std::span<const GraphEdge> edges) override;
  DeviceError graph_remove_dependencies(GraphHandle g, std::span<const GraphEdge> edges) override;
  DeviceError graph_get_nodes(GraphHandle g, std::vector<NodeHandle>* nodes) override;
  DeviceError graph_get_edges(GraphHandle g, std::vector<GraphEdge>* edges) override;
  DeviceError graph_node_get_params(NodeHandle node, NodeParams* params) override;
  DeviceError graph_node_set_params(NodeHandle node, const NodeParams& params) override;
  DeviceError graph_kernel_node_get_priority(NodeHandle node, int32_t* priority) override;
  DeviceError graph_conditional_handle_create(GraphHandle g, uint32_t default_value, uint32_t flags,
                                              ConditionalHandle* h) override;

  DeviceError graph_instantiate(GraphHandle g, uint64_t flags, ExecHandle* exec) override;
  DeviceError graph_instantiate_with_params(GraphHandle g, InstantiateParams* params,
                                            ExecHandle* exec) override;
  DeviceError graph_exec_destroy(ExecHandle exec) override;
  DeviceError graph_exec_get_flags(ExecHandle exec, uint64_t* flags) override;
  DeviceError graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) override;
  DeviceError graph_exec_node_set_params(ExecHandle exec, NodeHandle node,
                                         const NodeParams& params) override;
  DeviceError graph_node_set_enabled(ExecHandle exec, NodeHandle node, bool enabled) override;
  DeviceError graph_node_get_enabled(ExecHandle exec, NodeHandle node, bool* enabled) override;
  DeviceError graph_upload(ExecHandle exec, StreamHandle s) override;
  DeviceError graph_launch(ExecHandle exec, StreamHandle s) override;

 private:
  LaunchedKernels launched_;
  // What the runtime does not tell of a node that it made
  std::mutex mutex_;
  std::map<NodeHandle, ConditionalParams> conditionals_;
};

}  // namespace shadowgraph::cuda
