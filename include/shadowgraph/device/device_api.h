// DeviceApi: the part of the CUDA runtime that attention backends and their graphs stand on, call
// for call. One program over it runs on the simulated device (sim_device.h) and on a GPU. Names,
// arguments and error numbers are CUDA 13's; what a call does is CUDA's documentation, and where
// that is silent, what an H200 answered (docs/graphs.md, tests/data/cuda_graph).
//
// The form differs from CUDA's, the meaning does not: handles are 64-bit values; out parameters
// come last; one call adds, one reads and one changes a node of any type (cudaGraphAddNode), whose
// parameters are a variant; launch arguments mark which of them are device addresses. Any thread
// may make calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shadowgraph/device/annotations.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// cudaError_t, by CUDA's numbers.
enum class DeviceError : int32_t {
#define SG_DEVICE_ERROR(name, number) k##name = (number),
#include "shadowgraph/device/device_errors.inc"
#undef SG_DEVICE_ERROR
};
/// "cudaErrorInvalidValue"; "cudaErrorUnknown" if the number is not in the list.
std::string_view name_of(DeviceError error);

template <class Tag>
struct Handle {
  uint64_t value = 0;
  bool operator==(const Handle&) const = default;
  bool operator<(const Handle& other) const { return value < other.value; }
  explicit operator bool() const { return value != 0; }
};
using StreamHandle = Handle<struct StreamTag>;
using EventHandle = Handle<struct EventTag>;
using GraphHandle = Handle<struct GraphTag>;
using ExecHandle = Handle<struct ExecTag>;
using NodeHandle = Handle<struct NodeTag>;
using ConditionalHandle = Handle<struct ConditionalTag>;

inline constexpr StreamHandle kNullStream{0};       // the legacy stream, as these calls see it
inline constexpr StreamHandle kLegacyStream{1};     // cudaStreamLegacy
inline constexpr StreamHandle kPerThreadStream{2};  // cudaStreamPerThread: a blocking stream

enum class CaptureMode : int32_t { kGlobal, kThreadLocal, kRelaxed };
enum class CaptureStatus : int32_t { kNone, kActive, kInvalidated };
enum class MemcpyKind : int32_t {
  kHostToHost,
  kHostToDevice,
  kDeviceToHost,
  kDeviceToDevice,
  kDefault
};

// Flags, by CUDA's values.
inline constexpr uint32_t kStreamDefault = 0, kStreamNonBlocking = 1;
inline constexpr uint32_t kEventDefault = 0, kEventBlockingSync = 1, kEventDisableTiming = 2;
inline constexpr uint32_t kEventRecordDefault = 0, kEventRecordExternal = 1;
inline constexpr uint32_t kEventWaitDefault = 0, kEventWaitExternal = 1;
inline constexpr uint32_t kAddCaptureDependencies = 0, kSetCaptureDependencies = 1;
inline constexpr uint64_t kAutoFreeOnLaunch = 1, kInstantiateUpload = 2, kDeviceLaunch = 4,
                          kUseNodePriority = 8;
inline constexpr uint32_t kCondAssignDefault = 1;

/// cudaGraphEdgeData; all zero: a full dependency.
struct EdgeData {
  uint8_t from_port = 0, to_port = 0, type = 0;
  bool operator==(const EdgeData&) const = default;
};

struct GraphEdge {
  NodeHandle from, to;
  EdgeData data;
};

using HostFn = void (*)(void* user_data);

// Parameters of a node, by its type.
struct EmptyParams {
  bool operator==(const EmptyParams&) const = default;
};
/// A copy of `height` rows of `width` bytes. height 1: a one-dimensional copy, which uses no pitch.
struct MemcpyParams {
  void* dst = nullptr;
  const void* src = nullptr;
  size_t width = 0, height = 1, dst_pitch = 0, src_pitch = 0;
  MemcpyKind kind = MemcpyKind::kDefault;
  bool operator==(const MemcpyParams&) const = default;
};
/// Sets `height` rows of `width` elements of element_size (1, 2 or 4) bytes. height 1 uses no
/// pitch.
struct MemsetParams {
  void* dst = nullptr;
  uint32_t value = 0, element_size = 1;
  size_t width = 0, height = 1, pitch = 0;
  bool operator==(const MemsetParams&) const = default;
};
struct HostParams {
  HostFn fn = nullptr;
  void* user_data = nullptr;
  bool operator==(const HostParams&) const = default;
};
struct ChildGraphParams {
  GraphHandle graph;  // the call that adds the node clones it; reading the node gives the clone
  bool operator==(const ChildGraphParams&) const = default;
};
struct EventRecordParams {
  EventHandle event;
  bool operator==(const EventRecordParams&) const = default;
};
struct EventWaitParams {
  EventHandle event;
  bool operator==(const EventWaitParams&) const = default;
};
struct MemAllocParams {
  size_t bytes = 0;
  void* address = nullptr;  // set by the call that adds the node
  bool operator==(const MemAllocParams&) const = default;
};
struct MemFreeParams {
  void* address = nullptr;
  bool operator==(const MemFreeParams&) const = default;
};
enum class ConditionalType : uint8_t { kIf, kWhile, kSwitch };
struct ConditionalParams {
  ConditionalHandle handle;
  ConditionalType type = ConditionalType::kIf;
  uint32_t size = 1;
  std::vector<GraphHandle> bodies;  // set by the call that adds the node
  bool operator==(const ConditionalParams&) const = default;
};

using NodeParams = std::variant<KernelLaunch, MemcpyParams, MemsetParams, HostParams,
                                ChildGraphParams, EmptyParams, EventRecordParams, EventWaitParams,
                                MemAllocParams, MemFreeParams, ConditionalParams>;
/// "kernel", "memcpy", "memset", "host", "graph", "empty", "event_record", "wait_event",
/// "mem_alloc", "mem_free", "conditional".
std::string_view type_name(const NodeParams& params);

struct CaptureInfo {
  CaptureStatus status = CaptureStatus::kNone;
  uint64_t id = 0;
  GraphHandle graph;
  std::vector<NodeHandle> dependencies;
  std::vector<EdgeData> edge_data;
};

/// cudaGraphInstantiateResult.
enum class InstantiateResult : int32_t {
  kSuccess,
  kError,
  kInvalidStructure,
  kNodeOperationNotSupported,
  kMultipleDevicesNotSupported,
  kConditionalHandleUnused
};
struct InstantiateParams {
  uint64_t flags = 0;
  StreamHandle upload_stream;
  NodeHandle error_node;  // out
  InstantiateResult result = InstantiateResult::kSuccess;
};

/// cudaGraphExecUpdateResult.
enum class UpdateResult : int32_t {
  kSuccess,
  kError,
  kTopologyChanged,
  kNodeTypeChanged,
  kFunctionChanged,
  kParametersChanged,
  kNotSupported,
  kUnsupportedFunctionChange,
  kAttributesChanged
};
struct UpdateInfo {
  UpdateResult result = UpdateResult::kSuccess;
  NodeHandle error_node, error_from_node;
};

/// Calls that matter here only because some states forbid them (cudaMallocPitch, cudaHostRegister,
/// ...: device_calls.inc). They have no effect that a program over this interface can see.
enum class OtherCall : uint8_t {
#define SG_OTHER_CALL(name, when) k##name,
#include "shadowgraph/device/device_calls.inc"
#undef SG_OTHER_CALL
};
std::string_view name_of(OtherCall call);  // "cudaMallocPitch"

class DeviceApi : public Annotations {
 public:
  /// An annotation: the next launches of exec are meant to be those of graph. Use it where a runner
  /// shares one exec among graphs; if exec then holds another graph's parameters, that is the
  /// finding stale_generation. The call does nothing else.
  virtual void expect_graph(ExecHandle /*exec*/, GraphHandle /*graph*/) {}

  // Errors. Errors of a capture are not sticky; errors at execution are.
  virtual DeviceError get_last_error() = 0;
  virtual DeviceError peek_at_last_error() = 0;
  virtual DeviceError device_synchronize() = 0;
  /// Lets the device go on with its work while the host polls memory that the device writes. CUDA
  /// needs no such call.
  virtual void poll() {}
  virtual DeviceError other_call(OtherCall call) = 0;

  // Memory.
  virtual DeviceError malloc(size_t bytes, void** p) = 0;
  virtual DeviceError free(void* p) = 0;
  virtual DeviceError malloc_managed(size_t bytes, void** p) = 0;
  virtual DeviceError host_alloc(size_t bytes, uint32_t flags, void** p) = 0;  // pinned, mapped
  virtual DeviceError malloc_host(size_t bytes, void** p) = 0;
  virtual DeviceError free_host(void* p) = 0;
  virtual DeviceError malloc_async(size_t bytes, StreamHandle s, void** p) = 0;
  virtual DeviceError free_async(void* p, StreamHandle s) = 0;
  virtual DeviceError memcpy(const MemcpyParams& copy) = 0;  // cudaMemcpy, cudaMemcpy2D
  virtual DeviceError memcpy_async(const MemcpyParams& copy, StreamHandle s) = 0;
  virtual DeviceError memcpy_to_symbol(const void* src, size_t bytes) = 0;  // a symbol of 16 bytes
  virtual DeviceError memset(const MemsetParams& set) = 0;
  virtual DeviceError memset_async(const MemsetParams& set, StreamHandle s) = 0;
  virtual DeviceError stream_attach_mem_async(StreamHandle s, void* managed) = 0;
  /// cudaMemPrefetchAsync to device 0.
  virtual DeviceError mem_prefetch_async(const void* p, size_t bytes, StreamHandle s) = 0;
  /// cudaGraphMemAttrUsedMemCurrent.
  virtual DeviceError device_graph_mem_used(uint64_t* bytes) = 0;

  // Work.
  virtual DeviceError launch_kernel(const KernelLaunch& launch, StreamHandle s) = 0;
  virtual DeviceError func_get_attributes(const Kernel* kernel) = 0;
  virtual DeviceError launch_host_func(StreamHandle s, HostFn fn, void* user_data) = 0;
  virtual DeviceError stream_add_callback(StreamHandle s, HostFn fn, void* user_data) = 0;

  // Streams.
  virtual DeviceError device_get_stream_priority_range(int32_t* least, int32_t* greatest) = 0;
  virtual DeviceError stream_create_with_priority(uint32_t flags, int32_t priority,
                                                  StreamHandle* s) = 0;
  DeviceError stream_create_with_flags(uint32_t flags, StreamHandle* s) {
    return stream_create_with_priority(flags, 0, s);
  }
  virtual DeviceError stream_destroy(StreamHandle s) = 0;
  virtual DeviceError stream_get_priority(StreamHandle s, int32_t* priority) = 0;
  virtual DeviceError stream_synchronize(StreamHandle s) = 0;
  virtual DeviceError stream_query(StreamHandle s) = 0;
  virtual DeviceError stream_wait_event(StreamHandle s, EventHandle e, uint32_t flags) = 0;

  // Events.
  virtual DeviceError event_create_with_flags(uint32_t flags, EventHandle* e) = 0;
  virtual DeviceError event_destroy(EventHandle e) = 0;
  virtual DeviceError event_record_with_flags(EventHandle e, StreamHandle s, uint32_t flags) = 0;
  DeviceError event_record(EventHandle e, StreamHandle s) {
    return event_record_with_flags(e, s, kEventRecordDefault);
  }
  virtual DeviceError event_synchronize(EventHandle e) = 0;
  virtual DeviceError event_query(EventHandle e) = 0;
  virtual DeviceError event_elapsed_time(EventHandle start, EventHandle end, float* ms) = 0;

  // Capture.
  virtual DeviceError thread_exchange_stream_capture_mode(CaptureMode* mode) = 0;
  virtual DeviceError stream_begin_capture(StreamHandle s, CaptureMode mode) = 0;
  virtual DeviceError stream_begin_capture_to_graph(StreamHandle s, GraphHandle g,
                                                    std::span<const NodeHandle> dependencies,
                                                    std::span<const EdgeData> edge_data,
                                                    CaptureMode mode) = 0;
  /// g may be null; then the captured graph is lost. If the call fails, *g is set to no graph.
  virtual DeviceError stream_end_capture(StreamHandle s, GraphHandle* g) = 0;
  virtual DeviceError stream_is_capturing(StreamHandle s, CaptureStatus* status) = 0;
  virtual DeviceError stream_get_capture_info(StreamHandle s, CaptureInfo* info) = 0;
  virtual DeviceError stream_update_capture_dependencies(StreamHandle s,
                                                         std::span<const NodeHandle> dependencies,
                                                         std::span<const EdgeData> edge_data,
                                                         uint32_t flags) = 0;

  // Graphs.
  virtual DeviceError graph_create(GraphHandle* g) = 0;
  virtual DeviceError graph_destroy(GraphHandle g) = 0;
  virtual DeviceError graph_clone(GraphHandle g, GraphHandle* clone) = 0;
  virtual DeviceError graph_node_find_in_clone(NodeHandle original, GraphHandle clone,
                                               NodeHandle* node) = 0;
  /// Fills in what the new node is given: an allocation's address, a conditional's bodies.
  virtual DeviceError graph_add_node(GraphHandle g, std::span<const NodeHandle> dependencies,
                                     NodeParams& params, NodeHandle* node) = 0;
  virtual DeviceError graph_destroy_node(NodeHandle node) = 0;
  virtual DeviceError graph_add_dependencies(GraphHandle g, std::span<const GraphEdge> edges) = 0;
  virtual DeviceError graph_remove_dependencies(GraphHandle g,
                                                std::span<const GraphEdge> edges) = 0;
  virtual DeviceError graph_get_nodes(GraphHandle g, std::vector<NodeHandle>* nodes) = 0;
  virtual DeviceError graph_get_edges(GraphHandle g, std::vector<GraphEdge>* edges) = 0;
  virtual DeviceError graph_node_get_params(NodeHandle node, NodeParams* params) = 0;
  virtual DeviceError graph_node_set_params(NodeHandle node, const NodeParams& params) = 0;
  /// cudaLaunchAttributePriority of a kernel node.
  virtual DeviceError graph_kernel_node_get_priority(NodeHandle node, int32_t* priority) = 0;
  virtual DeviceError graph_conditional_handle_create(GraphHandle g, uint32_t default_value,
                                                      uint32_t flags, ConditionalHandle* h) = 0;

  // Executable graphs.
  virtual DeviceError graph_instantiate(GraphHandle g, uint64_t flags, ExecHandle* exec) = 0;
  virtual DeviceError graph_instantiate_with_params(GraphHandle g, InstantiateParams* params,
                                                    ExecHandle* exec) = 0;
  virtual DeviceError graph_exec_destroy(ExecHandle exec) = 0;
  virtual DeviceError graph_exec_get_flags(ExecHandle exec, uint64_t* flags) = 0;
  virtual DeviceError graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) = 0;
  /// node must belong to the graph that exec was instantiated from.
  virtual DeviceError graph_exec_node_set_params(ExecHandle exec, NodeHandle node,
                                                 const NodeParams& params) = 0;
  virtual DeviceError graph_node_set_enabled(ExecHandle exec, NodeHandle node, bool enabled) = 0;
  virtual DeviceError graph_node_get_enabled(ExecHandle exec, NodeHandle node, bool* enabled) = 0;
  virtual DeviceError graph_upload(ExecHandle exec, StreamHandle s) = 0;
  virtual DeviceError graph_launch(ExecHandle exec, StreamHandle s) = 0;
};

}  // namespace shadowgraph
