// SimDevice: memory.
#include <algorithm>
#include <cstring>

#include "graph/capture/check_params.h"
#include "graph/sim/sim_impl.h"

namespace shadowgraph {

using enum DeviceError;

bool SimDevice::Impl::is_shared(const void* p) const {
  const DeviceMemory::Allocation* a = memory.find_allocation_of(p);
  return a != nullptr && (a->kind == AllocKind::kPinned || a->kind == AllocKind::kManaged);
}

DeviceError SimDevice::Impl::allocate(size_t bytes, AllocKind kind, void** p, ThreadState& thread) {
  const DeviceError error = captures.enter_unsafe(thread);
  if (error != kSuccess) return error;
  if (p == nullptr) return kInvalidValue;
  *p = nullptr;
  if (bytes == 0) return kSuccess;
  *p = memory.allocate(bytes, kind);
  return *p == nullptr ? kMemoryAllocation : kSuccess;
}

DeviceError SimDevice::Impl::release(void* p, ThreadState& thread, bool host) {
  const DeviceError error = captures.enter_unsafe(thread);
  if (error != kSuccess || p == nullptr) return error;
  const DeviceMemory::Allocation* a = memory.find_allocation(p);
  if (a == nullptr || (a->kind == AllocKind::kPinned) != host) return kInvalidValue;
  // cudaFree waits for the device.
  executor.wait_all();
  if (executor.sticky() != kSuccess) return executor.sticky();
  if (a->kind == AllocKind::kGraph) {
    if (live_graph_allocations.erase(p) == 0) return kInvalidValue;
    enqueue(legacy, MemFreeParams{p});
    executor.wait_all();
    return kSuccess;
  }
  live_pool_allocations.erase(p);
  memory.release(p);
  return kSuccess;
}

DeviceError SimDevice::malloc(size_t bytes, void** p) {
  return impl_->call(
      [&](ThreadState& t) { return impl_->allocate(bytes, AllocKind::kMalloc, p, t); });
}
DeviceError SimDevice::malloc_managed(size_t bytes, void** p) {
  return impl_->call([&](ThreadState& t) {
    return bytes == 0 ? kInvalidValue : impl_->allocate(bytes, AllocKind::kManaged, p, t);
  });
}
DeviceError SimDevice::host_alloc(size_t bytes, uint32_t /*flags*/, void** p) {
  return impl_->call(
      [&](ThreadState& t) { return impl_->allocate(bytes, AllocKind::kPinned, p, t); });
}
DeviceError SimDevice::malloc_host(size_t bytes, void** p) { return host_alloc(bytes, 0, p); }
DeviceError SimDevice::free(void* p) {
  return impl_->call([&](ThreadState& t) { return impl_->release(p, t, false); });
}
DeviceError SimDevice::free_host(void* p) {
  return impl_->call([&](ThreadState& t) { return impl_->release(p, t, true); });
}

DeviceError SimDevice::malloc_async(size_t bytes, StreamHandle handle, void** p) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    if (p == nullptr) return kInvalidValue;
    bool captures = false;
    DeviceError error = impl_->captures.enter_enqueue(*s, &captures);
    if (error == kSuccess && !captures) error = impl_->captures.enter_unsafe(t);
    if (error != kSuccess) return error;
    *p = nullptr;
    if (bytes == 0) return kSuccess;
    if (captures) {
      NodeParams params = MemAllocParams{bytes, nullptr};
      error = impl_->append(*s, params);
      *p = std::get<MemAllocParams>(params).address;
      return error;
    }
    *p = impl_->memory.allocate(bytes, AllocKind::kPool);
    if (*p == nullptr) return kMemoryAllocation;
    impl_->live_pool_allocations.insert(*p);
    impl_->enqueue(*s, MemAllocParams{bytes, *p});
    return kSuccess;
  });
}

DeviceError SimDevice::free_async(void* p, StreamHandle handle) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    bool captures = false;
    DeviceError error = impl_->captures.enter_enqueue(*s, &captures);
    if (error == kSuccess && !captures) error = impl_->captures.enter_unsafe(t);
    if (error != kSuccess || p == nullptr) return error;
    NodeParams params = MemFreeParams{p};
    if (captures) return impl_->append(*s, params);
    const DeviceMemory::Allocation* a = impl_->memory.find_allocation(p);
    const bool live = impl_->live_graph_allocations.erase(p) > 0 ||
                      impl_->live_pool_allocations.erase(p) > 0 ||
                      (a != nullptr && a->kind == AllocKind::kMalloc);
    if (!live) return kInvalidValue;
    impl_->enqueue(*s, std::move(params));
    return kSuccess;
  });
}

DeviceError SimDevice::Impl::copy_async(const MemcpyParams& c, SimStream& s) {
  bool captures_it = false;
  DeviceError error = captures.enter_enqueue(s, &captures_it);
  if (error != kSuccess || c.width == 0 || c.height == 0) return error;
  error = check_copy(memory, c);
  if (error != kSuccess) return error;
  NodeParams params = c;
  if (captures_it) return append(s, params);
  const bool pageable_source = is_host(c.src), pageable_target = is_host(c.dst);
  if (!pageable_source) {
    const Marker done = enqueue(s, std::move(params));
    // A copy to pageable memory returns when it is done.
    if (pageable_target) executor.wait(done);
    return executor.sticky();
  }
  // Pageable bytes are staged before the call returns; the transfer itself may come later.
  const size_t pitch = c.height == 1 ? c.width : c.src_pitch;
  std::vector<std::byte> bytes(pitch * (c.height - 1) + c.width);
  std::memcpy(bytes.data(), c.src, bytes.size());
  std::get<MemcpyParams>(params).src = bytes.data();
  const Marker done = enqueue(s, std::move(params));
  if (pageable_target) {
    executor.wait(done);
  } else {
    staged.emplace_back(done, std::move(bytes));
  }
  std::erase_if(staged, [&](const auto& kept) { return executor.done(kept.first); });
  return kSuccess;
}

DeviceError SimDevice::memcpy(const MemcpyParams& copy) {
  return impl_->call([&](ThreadState&) {
    const DeviceError error = impl_->copy_async(copy, impl_->legacy);
    // Pageable sources return once they are staged, copies on the device once they are enqueued.
    const bool waits =
        !impl_->is_host(copy.src) &&
        (impl_->is_host(copy.dst) || impl_->is_shared(copy.src) || impl_->is_shared(copy.dst));
    if (error == kSuccess && waits) impl_->executor.wait(impl_->legacy.last);
    return error == kSuccess ? impl_->executor.sticky() : error;
  });
}

DeviceError SimDevice::memcpy_async(const MemcpyParams& copy, StreamHandle handle) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    return s == nullptr ? kInvalidResourceHandle : impl_->copy_async(copy, *s);
  });
}

DeviceError SimDevice::memcpy_to_symbol(const void* src, size_t bytes) {
  return impl_->call([&](ThreadState&) {
    if (bytes > 16) return kInvalidValue;
    if (impl_->symbol == nullptr) impl_->symbol = impl_->memory.allocate(16, AllocKind::kMalloc);
    return impl_->copy_async(
        {.dst = impl_->symbol, .src = src, .width = bytes, .kind = MemcpyKind::kHostToDevice},
        impl_->legacy);
  });
}

DeviceError SimDevice::Impl::set_async(const MemsetParams& set, SimStream& s) {
  bool captures_it = false;
  const DeviceError error = captures.enter_enqueue(s, &captures_it);
  if (error != kSuccess || set.width == 0 || set.height == 0) return error;
  NodeParams params = set;
  // The address is not looked at before the set runs (an H200 adds the node, of null even).
  if (captures_it) return append(s, params);
  if (check_set(set) != kSuccess || is_host(set.dst)) return kInvalidValue;
  enqueue(s, std::move(params));
  return kSuccess;
}

DeviceError SimDevice::memset(const MemsetParams& set) {
  return impl_->call([&](ThreadState&) { return impl_->set_async(set, impl_->legacy); });
}

DeviceError SimDevice::memset_async(const MemsetParams& set, StreamHandle handle) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    return s == nullptr ? kInvalidResourceHandle : impl_->set_async(set, *s);
  });
}

DeviceError SimDevice::stream_attach_mem_async(StreamHandle handle, void* managed) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    const DeviceError error = impl_->captures.enter_uncapturable(*s);
    if (error != kSuccess) return error;
    const DeviceMemory::Allocation* a = impl_->memory.find_allocation(managed);
    return a != nullptr && a->kind == AllocKind::kManaged ? kSuccess : kInvalidValue;
  });
}

DeviceError SimDevice::mem_prefetch_async(const void* p, size_t bytes, StreamHandle handle) {
  return impl_->call([&](ThreadState& t) {
    if (impl_->stream(handle, t) == nullptr) return kInvalidResourceHandle;
    const DeviceMemory::Allocation* a = impl_->memory.find_allocation_of(p);
    const bool managed = a != nullptr && a->kind == AllocKind::kManaged && bytes > 0;
    return managed ? kSuccess : kInvalidValue;
  });
}

DeviceError SimDevice::device_graph_mem_used(uint64_t* bytes) {
  return impl_->call([&](ThreadState&) {
    if (bytes == nullptr) return kInvalidValue;
    *bytes = impl_->memory.graph_bytes_backed();
    return kSuccess;
  });
}

}  // namespace shadowgraph
