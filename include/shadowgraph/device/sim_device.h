// SimDevice: DeviceApi on the CPU. It answers as CUDA does and runs work in any order that CUDA
// allows. A shadow of its memory sees what a GPU hides: the laws mem.* and graph.* of `shadowgraph
// list laws`.
//
// All work runs under one scheduler without threads of its own. It advances inside API calls, in
// the thread that makes the call; the same seed and the same calls give the same history. A call
// that waits holds the device, so another thread cannot end the wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "shadowgraph/device/device_api.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

struct SimOptions {
  /// 0: work runs as early and in as plain an order as possible, and where CUDA leaves an answer
  /// open the device answers as an H200 did. Any other seed delays, reorders and answers within
  /// what CUDA allows.
  uint64_t seed = 0;
  /// Used instead of a seed: returns r with 0 <= r < bound (bound >= 2). An odometer here walks
  /// through all histories.
  std::function<uint32_t(uint32_t bound)> choose;
  /// false: the device keeps no shadow, finds nothing and poisons nothing; replay is as fast as
  /// possible.
  bool checked = true;
  size_t memory_bytes = size_t{1} << 36;  // address space; a page costs nothing until it is touched
  /// Freed bytes that are held back before their addresses are given out again; 0: none, as on a
  /// GPU.
  size_t quarantine_bytes = 0;
  /// Each launch runs twice, the second time with other values wherever its footprint reads
  /// nothing: mem.footprint. Of a checked device.
  bool proves_footprints = false;
  /// Told of each launch and its footprint, before it runs. Of a checked device.
  std::function<void(const KernelLaunch& launch, const Footprint& accessed)> watch = {};
};

class SimDevice : public DeviceApi {
 public:
  explicit SimDevice(const SimOptions& options = {});
  ~SimDevice() override;
  SimDevice(const SimDevice&) = delete;
  SimDevice& operator=(const SimDevice&) = delete;

  /// The findings since the last call of take_findings.
  virtual Status take_findings();
  /// Adds a finding mem.leak for every stream-ordered allocation that is still live.
  void check_leaks();
  /// Launches exec in every order that its edges allow; orders that differ only in nodes without
  /// common memory count as one. Every order starts from the memory as it is now, and at the end
  /// memory holds what the plain order leaves. Where bytes differ, mem.race names the two nodes
  /// whose order decides. For graphs of kernel, memcpy, memset, host and empty nodes; at most
  /// max_orders orders. Returns how many orders ran, 0 if none could.
  uint64_t launch_every_order(ExecHandle exec, StreamHandle s, uint64_t max_orders = 1 << 16);

  /// Runs all work to its end, for a judge that looks at memory. The host has not seen it: what is
  /// enqueued later is ordered behind it by streams and events alone.
  virtual DeviceError settle();

  /// How much memory the shadow takes of the buffer that holds p.
  struct ShadowCost {
    size_t arena_bytes = 0, shadow_bytes = 0;
  };
  ShadowCost shadow_cost(const void* p) const;

  void expect_graph(ExecHandle exec, GraphHandle graph) override;
  DeviceError get_last_error() override;
  DeviceError peek_at_last_error() override;
  DeviceError device_synchronize() override;
  void poll() override;
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
  void declare_buffer(const BufferDecl& buffer) override;
  void undeclare_buffer(const void* address) override;
  void name_buffer(const void* p, std::string_view name) override;
  void retire(const void* p, size_t bytes) override;
  void set_owner(const void* p, size_t bytes, OwnerId owner) override;
  void add_owner(const void* p, size_t bytes, OwnerId owner) override;
  void set_row_owners(std::span<const OwnerId> owners) override;
  void set_layers(std::span<const LayerBytes> tensors) override;
  void begin_step() override;
  uint64_t output_ticket() override;
  void expect_output(const void* p, size_t bytes, uint64_t ticket) override;
  void host_block(const void* p, size_t bytes, std::string_view name) override;
  void host_block_ended(const void* p) override;
  void host_writes(const void* p, size_t bytes) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shadowgraph
