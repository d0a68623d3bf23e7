#include <algorithm>
#include <cstdlib>
#include <utility>

#include "cuda/cuda_compat.h"
#include "cuda/cuda_device_impl.h"
#include "cuda/cuda_symbol.h"
#include "cuda/cuda_values.h"

namespace shadowgraph {
namespace cuda {
namespace {

/// Memory that a call is made on, if only to be refused.
struct Fixture {
  void* device = nullptr;
  cudaMemPool_t pool = nullptr;
  alignas(4096) std::byte page[4096] = {};
};

bool has_clusters() {
  static const bool has = [] {
    int value = 0;
    return cudaDeviceGetAttribute(&value, cudaDevAttrClusterLaunch, 0) == cudaSuccess && value != 0;
  }();
  return has;
}

/// More shared memory, and larger clusters, than every GPU has are asked for by function, once.
cudaError_t allow(const void* function, const Geometry& geometry) {
  struct Allowed {
    unsigned shared_bytes = 48 << 10, cluster = 8;
  };
  static std::mutex mutex;
  static std::map<const void*, Allowed> all;
  const std::scoped_lock lock(mutex);
  Allowed& allowed = all[function];
  cudaError_t error = cudaSuccess;
  if (geometry.shared_bytes > allowed.shared_bytes) {
    error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(geometry.shared_bytes));
    // Else clusters get what one block needs, and a multiprocessor has one.
    if (error == cudaSuccess)
      error = cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared);
    if (error == cudaSuccess) allowed.shared_bytes = geometry.shared_bytes;
  }
  if (error == cudaSuccess && geometry.cluster > allowed.cluster) {
    error = cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error == cudaSuccess) allowed.cluster = geometry.cluster;
  }
  return error;
}

cudaError_t call_that_reserves(OtherCall call) {
  static Fixture fixture;
  void* p = nullptr;
  size_t bytes = 0;
  if (call == OtherCall::kMallocPitch) {
    const cudaError_t error = cudaMallocPitch(&p, &bytes, 64, 4);
    if (error == cudaSuccess) cudaFree(p);
    return error;
  }
  if (call == OtherCall::kHostRegister) {
    const cudaError_t error = cudaHostRegister(fixture.page, sizeof fixture.page, 0);
    if (error == cudaSuccess) cudaHostUnregister(fixture.page);
    return error;
  }
  if (call == OtherCall::kMemPoolTrimTo) {
    if (fixture.pool == nullptr) cudaDeviceGetDefaultMemPool(&fixture.pool, 0);
    return cudaMemPoolTrimTo(fixture.pool, 0);
  }
  return cudaDeviceSetLimit(cudaLimitStackSize, 2048);  // as recorded
}

cudaError_t call_that_asks(OtherCall call) {
  const void* function = find_function("fill");
  size_t a = 0, b = 0;
  int number = 0;
  void* symbol = nullptr;
  cudaPointerAttributes attributes;
  cudaDeviceProp properties;
  switch (call) {
    case OtherCall::kMemGetInfo: return cudaMemGetInfo(&a, &b);
    case OtherCall::kPointerGetAttributes:
      return cudaPointerGetAttributes(&attributes, symbol_address());
    case OtherCall::kFuncSetAttribute:
      return cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, -1);
    case OtherCall::kOccupancyMaxActiveBlocksPerMultiprocessor:
      return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&number, function, 32, 0);
    case OtherCall::kGetDevice: return cudaGetDevice(&number);
    case OtherCall::kSetDevice: return cudaSetDevice(0);
    case OtherCall::kDeviceGetAttribute:
      return cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, 0);
    case OtherCall::kGetDeviceProperties: return cudaGetDeviceProperties(&properties, 0);
    case OtherCall::kDeviceGetLimit: return cudaDeviceGetLimit(&a, cudaLimitStackSize);
    case OtherCall::kGetSymbolAddress: return get_symbol_address(&symbol);
    case OtherCall::kDeviceGraphMemTrim: return cudaDeviceGraphMemTrim(0);
    default: return cudaCtxResetPersistingL2Cache();
  }
}

}  // namespace

unsigned most_shared_bytes() {
  static const unsigned bytes = [] {
    int value = 0;
    return cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess
               ? static_cast<unsigned>(value)
               : 227u << 10;
  }();
  return bytes;
}

int64_t most_clusters(const void* function, const Geometry& geometry) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, unsigned>, int64_t> all;
  const std::scoped_lock lock(mutex);
  const auto [it, first] = all.try_emplace({function, geometry.cluster}, 0);
  if (!first) return it->second;
  int device = 0, number = 0, multiprocessors = 0;
  if (cudaGetDevice(&device) != cudaSuccess || allow(function, geometry) != cudaSuccess) return 0;
  if (geometry.cluster == 1) {
    const unsigned threads = geometry.block.x * geometry.block.y * geometry.block.z;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&number, function, static_cast<int>(threads),
                                                  geometry.shared_bytes);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    return it->second = int64_t{number} * multiprocessors;
  }
  if (!has_clusters()) return 0;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {geometry.cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(geometry.cluster);
  config.blockDim = geometry.block;
  config.dynamicSmemBytes = geometry.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  if (cudaOccupancyMaxActiveClusters(&number, function, &config) != cudaSuccess) {
    (void)cudaGetLastError();
    number = 0;
  }
  return it->second = number;
}

DeviceError CudaDevice::get_last_error() { return error_of(cudaGetLastError()); }
DeviceError CudaDevice::peek_at_last_error() { return error_of(cudaPeekAtLastError()); }
DeviceError CudaDevice::device_synchronize() { return error_of(cudaDeviceSynchronize()); }

DeviceError CudaDevice::other_call(OtherCall call) {
  switch (call) {
    case OtherCall::kMallocPitch:
    case OtherCall::kHostRegister:
    case OtherCall::kDeviceSetLimit:
    case OtherCall::kMemPoolTrimTo: return error_of(call_that_reserves(call));
    default: return error_of(call_that_asks(call));
  }
}

// Memory.

DeviceError CudaDevice::malloc(size_t bytes, void** p) { return error_of(cudaMalloc(p, bytes)); }
DeviceError CudaDevice::free(void* p) { return error_of(cudaFree(p)); }
DeviceError CudaDevice::malloc_managed(size_t bytes, void** p) {
  return error_of(cudaMallocManaged(p, bytes, cudaMemAttachGlobal));
}
DeviceError CudaDevice::host_alloc(size_t bytes, uint32_t flags, void** p) {
  return error_of(cudaHostAlloc(p, bytes, flags));
}
DeviceError CudaDevice::malloc_host(size_t bytes, void** p) {
  return error_of(cudaMallocHost(p, bytes));
}
DeviceError CudaDevice::free_host(void* p) { return error_of(cudaFreeHost(p)); }
DeviceError CudaDevice::malloc_async(size_t bytes, StreamHandle s, void** p) {
  return error_of(cudaMallocAsync(p, bytes, native(s)));
}
DeviceError CudaDevice::free_async(void* p, StreamHandle s) {
  return error_of(cudaFreeAsync(p, native(s)));
}

// One row of any width is one-dimensional; no row, or a pitch, is not.
DeviceError CudaDevice::memcpy(const MemcpyParams& c) {
  if (c.height == 1 && c.dst_pitch == 0) {
    return error_of(cudaMemcpy(c.dst, c.src, c.width, native(c.kind)));
  }
  return error_of(
      cudaMemcpy2D(c.dst, c.dst_pitch, c.src, c.src_pitch, c.width, c.height, native(c.kind)));
}
DeviceError CudaDevice::memcpy_async(const MemcpyParams& c, StreamHandle s) {
  if (c.height == 1 && c.dst_pitch == 0) {
    return error_of(cudaMemcpyAsync(c.dst, c.src, c.width, native(c.kind), native(s)));
  }
  return error_of(cudaMemcpy2DAsync(c.dst, c.dst_pitch, c.src, c.src_pitch, c.width, c.height,
                                    native(c.kind), native(s)));
}
DeviceError CudaDevice::memcpy_to_symbol(const void* src, size_t bytes) {
  return error_of(copy_to_symbol(src, bytes));
}
DeviceError CudaDevice::memset(const MemsetParams& set) {
  const auto value = static_cast<int>(set.value);
  if (set.height == 1 && set.pitch == 0) return error_of(cudaMemset(set.dst, value, set.width));
  return error_of(cudaMemset2D(set.dst, set.pitch, value, set.width, set.height));
}
DeviceError CudaDevice::memset_async(const MemsetParams& set, StreamHandle s) {
  const auto value = static_cast<int>(set.value);
  if (set.height == 1 && set.pitch == 0) {
    return error_of(cudaMemsetAsync(set.dst, value, set.width, native(s)));
  }
  return error_of(cudaMemset2DAsync(set.dst, set.pitch, value, set.width, set.height, native(s)));
}
DeviceError CudaDevice::stream_attach_mem_async(StreamHandle s, void* managed) {
  return error_of(cudaStreamAttachMemAsync(native(s), managed));
}
DeviceError CudaDevice::mem_prefetch_async(const void* p, size_t bytes, StreamHandle s) {
  return error_of(prefetch_to_device_0(p, bytes, native(s)));
}
DeviceError CudaDevice::device_graph_mem_used(uint64_t* bytes) {
  return error_of(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, bytes));
}

// Work.

DeviceError CudaDevice::launch_kernel(const KernelLaunch& launch, StreamHandle s) {
  const CudaKernel* kernel = launch.kernel == nullptr ? nullptr : choose_kernel(launch);
  if (kernel == nullptr) return DeviceError::kInvalidDeviceFunction;
  if (!kernel->takes(launch.args)) return DeviceError::kInvalidValue;
  launched_.remember(*kernel, launch);
  Geometry geometry = kernel->geometry_of(launch);
  // Blocks that would share a row's work are one, then.
  if (geometry.cluster > 1 && !has_clusters())
    geometry.grid.x /= geometry.cluster, geometry.cluster = 1;
  // What the launch itself asks for CUDA may refuse, and with it a capture.
  if (kernel->geometry != nullptr) {
    const cudaError_t error = allow(kernel->function, geometry);
    if (error != cudaSuccess) return error_of(error);
  }
  std::vector<void*> args = addresses_of(launch.args);
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (launch.programmatic) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (geometry.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {geometry.cluster, 1, 1};
  }
  if (count == 0) {
    return error_of(cudaLaunchKernel(kernel->function, geometry.grid, geometry.block, args.data(),
                                     geometry.shared_bytes, native(s)));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = geometry.grid;
  config.blockDim = geometry.block;
  config.dynamicSmemBytes = geometry.shared_bytes;
  config.stream = native(s);
  config.attrs = attributes;
  config.numAttrs = count;
  return error_of(cudaLaunchKernelExC(&config, kernel->function, args.data()));
}

DeviceError CudaDevice::func_get_attributes(const Kernel* kernel) {
  cudaFuncAttributes attributes;
  return error_of(cudaFuncGetAttributes(&attributes, find_function(kernel->name)));
}

DeviceError CudaDevice::launch_host_func(StreamHandle s, HostFn fn, void* user_data) {
  return error_of(cudaLaunchHostFunc(native(s), fn, user_data));
}

DeviceError CudaDevice::stream_add_callback(StreamHandle s, HostFn fn, void* user_data) {
  using Call = std::pair<HostFn, void*>;
  auto call = std::make_unique<Call>(fn, user_data);
  const auto run = [](cudaStream_t, cudaError_t, void* data) {
    const std::unique_ptr<Call> mine(static_cast<Call*>(data));
    mine->first(mine->second);
  };
  const cudaError_t error = cudaStreamAddCallback(native(s), run, call.get(), 0);
  if (error == cudaSuccess) (void)call.release();  // it is run's
  return error_of(error);
}

// Streams and events.

DeviceError CudaDevice::device_get_stream_priority_range(int32_t* least, int32_t* greatest) {
  return error_of(cudaDeviceGetStreamPriorityRange(least, greatest));
}
DeviceError CudaDevice::stream_create_with_priority(uint32_t flags, int32_t priority,
                                                    StreamHandle* s) {
  cudaStream_t made = nullptr;
  const cudaError_t error = cudaStreamCreateWithPriority(&made, flags, priority);
  if (error == cudaSuccess) *s = handle<StreamHandle>(made);
  return error_of(error);
}
DeviceError CudaDevice::stream_destroy(StreamHandle s) {
  return error_of(cudaStreamDestroy(native(s)));
}
DeviceError CudaDevice::stream_get_priority(StreamHandle s, int32_t* priority) {
  return error_of(cudaStreamGetPriority(native(s), priority));
}
DeviceError CudaDevice::stream_synchronize(StreamHandle s) {
  return error_of(cudaStreamSynchronize(native(s)));
}
DeviceError CudaDevice::stream_query(StreamHandle s) {
  return error_of(cudaStreamQuery(native(s)));
}
DeviceError CudaDevice::stream_wait_event(StreamHandle s, EventHandle e, uint32_t flags) {
  return error_of(cudaStreamWaitEvent(native(s), native(e), flags));
}

DeviceError CudaDevice::event_create_with_flags(uint32_t flags, EventHandle* e) {
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&made, flags);
  if (error == cudaSuccess) *e = handle<EventHandle>(made);
  return error_of(error);
}
DeviceError CudaDevice::event_destroy(EventHandle e) {
  return error_of(cudaEventDestroy(native(e)));
}
DeviceError CudaDevice::event_record_with_flags(EventHandle e, StreamHandle s, uint32_t flags) {
  return error_of(cudaEventRecordWithFlags(native(e), native(s), flags));
}
DeviceError CudaDevice::event_synchronize(EventHandle e) {
  return error_of(cudaEventSynchronize(native(e)));
}
DeviceError CudaDevice::event_query(EventHandle e) { return error_of(cudaEventQuery(native(e))); }
DeviceError CudaDevice::event_elapsed_time(EventHandle start, EventHandle end, float* ms) {
  return error_of(cudaEventElapsedTime(ms, native(start), native(end)));
}

}  // namespace cuda

std::unique_ptr<DeviceApi> open_cuda_device(std::string* why) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaSetDevice(0);
  if (error == cudaSuccess) error = cudaFree(nullptr);  // a context: some calls want one
  if (error == cudaSuccess) return std::make_unique<cuda::CudaDevice>();
  if (why != nullptr) *why = std::string("no CUDA device: ") + cudaGetErrorString(error);
  return nullptr;
}

}  // namespace shadowgraph
