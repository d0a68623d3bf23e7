#include "graph/capture/check_params.h"

namespace shadowgraph {

using enum DeviceError;

namespace {

constexpr size_t kMaxExtent = size_t{1} << 47;  // no address space holds more

/// Bytes from the first of height rows to the end of the last; 0: more than there can be.
size_t extent(size_t width, size_t height, size_t pitch) {
  if (height == 1) return width <= kMaxExtent ? width : 0;
  if (width > kMaxExtent || pitch > kMaxExtent || height > kMaxExtent / (pitch + 1)) return 0;
  return (height - 1) * pitch + width;
}

/// Is this a place for so many bytes on the host, or on the device?
bool is_place(const DeviceMemory& memory, const void* p, size_t bytes, bool on_host,
              bool on_device) {
  const DeviceMemory::Allocation* a = memory.find_allocation_of(p);
  if (a == nullptr) return on_host && !memory.mapped(p, 1);
  const bool shared = a->kind == AllocKind::kPinned || a->kind == AllocKind::kManaged;
  const auto inside = static_cast<size_t>(static_cast<const std::byte*>(p) - a->begin);
  return (on_device || shared) && bytes <= a->bytes - inside;
}

}  // namespace

DeviceError check_launch(const KernelLaunch& l) {
  constexpr uint32_t kMaxThreads = 1024, kMaxGridYz = 65535, kMaxSharedBytes = 48 << 10;
  if (l.kernel == nullptr) return kInvalidDeviceFunction;
  const bool fits = l.grid.volume() > 0 && l.block.volume() > 0 && l.grid.y <= kMaxGridYz &&
                    l.grid.z <= kMaxGridYz && l.block.volume() <= kMaxThreads &&
                    l.shared_bytes <= kMaxSharedBytes;
  return fits ? kSuccess : kInvalidValue;
}

DeviceError check_copy(const DeviceMemory& memory, const MemcpyParams& c) {
  using enum MemcpyKind;
  if (c.kind < kHostToHost || c.kind > kDefault) return kInvalidMemcpyDirection;
  if (c.dst == nullptr || c.src == nullptr) return kInvalidValue;
  if (c.height != 1 && (c.dst_pitch < c.width || c.src_pitch < c.width)) return kInvalidValue;
  const size_t to = extent(c.width, c.height, c.dst_pitch);
  const size_t from = extent(c.width, c.height, c.src_pitch);
  if (to == 0 || from == 0) return kInvalidValue;
  const bool any = c.kind == kDefault;
  const bool from_host = c.kind == kHostToHost || c.kind == kHostToDevice;
  const bool to_host = c.kind == kHostToHost || c.kind == kDeviceToHost;
  const bool fits = is_place(memory, c.src, from, any || from_host, any || !from_host) &&
                    is_place(memory, c.dst, to, any || to_host, any || !to_host);
  return fits ? kSuccess : kInvalidValue;
}

DeviceError check_set(const MemsetParams& s) {
  const bool element = s.element_size == 1 || s.element_size == 2 || s.element_size == 4;
  if (!element || s.width > kMaxExtent) return kInvalidValue;
  const size_t row = s.width * s.element_size;
  if (s.height != 1 && s.pitch < row) return kInvalidValue;
  return extent(row, s.height, s.pitch) > 0 ? kSuccess : kInvalidValue;
}

}  // namespace shadowgraph
