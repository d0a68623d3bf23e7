#include "graph/executor/node_work.h"

#include <algorithm>
#include <cstring>

namespace shadowgraph {

namespace {

bool is_pinned(const DeviceMemory& memory, const void* p) {
  const DeviceMemory::Allocation* a = memory.find_allocation_of(p);
  return a != nullptr && a->kind == AllocKind::kPinned;
}

size_t row_bytes(const MemsetParams& s) { return s.width * s.element_size; }
size_t row_pitch(const MemsetParams& s) { return s.height == 1 ? row_bytes(s) : s.pitch; }

void add_rows(const void* p, size_t width, size_t height, size_t pitch, Access access,
              Footprint* spans) {
  for (size_t row = 0; row < height; ++row)
    spans->push_back({.buffer = p,
                      .first = static_cast<int64_t>(row * pitch),
                      .count = static_cast<int64_t>(width),
                      .element_bytes = 1,
                      .access = access});
}

}  // namespace

bool reads_device(const DeviceMemory& memory, const MemcpyParams& c) {
  return c.kind == MemcpyKind::kDeviceToHost || c.kind == MemcpyKind::kDeviceToDevice ||
         memory.mapped(c.src, 1);
}

bool writes_device(const DeviceMemory& memory, const MemcpyParams& c) {
  return c.kind == MemcpyKind::kHostToDevice || c.kind == MemcpyKind::kDeviceToDevice ||
         memory.mapped(c.dst, 1);
}

bool is_transfer(const DeviceMemory& memory, const MemcpyParams& c) {
  return !reads_device(memory, c) || !writes_device(memory, c) || is_pinned(memory, c.src) ||
         is_pinned(memory, c.dst);
}

bool is_staged(const DeviceMemory& memory, const MemcpyParams& c) {
  return writes_device(memory, c) && (!reads_device(memory, c) || is_pinned(memory, c.src));
}

void add_spans(const DeviceMemory& memory, const MemcpyParams& c, Footprint* spans) {
  if (reads_device(memory, c))
    add_rows(c.src, c.width, c.height, src_pitch(c), Access::kRead, spans);
  if (writes_device(memory, c))
    add_rows(c.dst, c.width, c.height, dst_pitch(c), Access::kWrite, spans);
}

void add_spans(const MemsetParams& s, Footprint* spans) {
  add_rows(s.dst, row_bytes(s), s.height, row_pitch(s), Access::kWrite, spans);
}

bool is_mapped(const DeviceMemory& memory, const MemcpyParams& c) {
  return (!reads_device(memory, c) || memory.mapped(c.src, extent(c, src_pitch(c)))) &&
         (!writes_device(memory, c) || memory.mapped(c.dst, extent(c, dst_pitch(c))));
}

bool is_mapped(const DeviceMemory& memory, const MemsetParams& s) {
  return s.height == 0 || memory.mapped(s.dst, row_pitch(s) * (s.height - 1) + row_bytes(s));
}

const void* overlap(const MemcpyParams& c) {
  if (c.width == 0) return nullptr;
  const uintptr_t src = reinterpret_cast<uintptr_t>(c.src),
                  dst = reinterpret_cast<uintptr_t>(c.dst);
  // Rows ascend on both sides: walk them together.
  for (size_t i = 0, j = 0; i < c.height && j < c.height;) {
    const uintptr_t from = src + i * src_pitch(c), to = dst + j * dst_pitch(c);
    if (from < to + c.width && to < from + c.width) {
      return from > to ? static_cast<const std::byte*>(c.src) + i * src_pitch(c)
                       : static_cast<const std::byte*>(c.dst) + j * dst_pitch(c);
    }
    from < to ? ++i : ++j;
  }
  return nullptr;
}

void perform(const MemcpyParams& c) {
  for (size_t row = 0; row < c.height; ++row)
    std::memmove(static_cast<std::byte*>(c.dst) + row * dst_pitch(c),
                 static_cast<const std::byte*>(c.src) + row * src_pitch(c), c.width);
}

void perform(const MemsetParams& s) {
  for (size_t row = 0; row < s.height; ++row) {
    std::byte* p = static_cast<std::byte*>(s.dst) + row * row_pitch(s);
    switch (s.element_size) {
      case 1: std::memset(p, static_cast<int>(s.value & 0xff), s.width); break;
      case 2:
        std::fill_n(reinterpret_cast<uint16_t*>(p), s.width, static_cast<uint16_t>(s.value));
        break;
      default: std::fill_n(reinterpret_cast<uint32_t*>(p), s.width, s.value);
    }
  }
}

void Conditionals::assign_defaults(const std::vector<ConditionalInfo>& handles) {
  for (const ConditionalInfo& info : handles)
    if (info.assign_default) set(info.handle, info.default_value);
}

std::optional<uint32_t> Conditionals::value(ConditionalHandle h) const {
  const auto it = values_.find(h);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace shadowgraph
