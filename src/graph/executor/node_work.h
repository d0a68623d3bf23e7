// What running one copy, set or conditional means: the bytes it touches and what it does to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "graph/capture/graph_store.h"
#include "graph/memory/memory.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

inline size_t src_pitch(const MemcpyParams& c) { return c.height == 1 ? c.width : c.src_pitch; }
inline size_t dst_pitch(const MemcpyParams& c) { return c.height == 1 ? c.width : c.dst_pitch; }
/// Bytes from the first row's begin to the last row's end.
inline size_t extent(const MemcpyParams& c, size_t pitch) {
  return c.height == 0 ? 0 : pitch * (c.height - 1) + c.width;
}

/// Does the copy read (write) device memory? An address counts as the host's if it is not mapped
/// and the copy's kind does not say that this side is the device's.
bool reads_device(const DeviceMemory& memory, const MemcpyParams& copy);
bool writes_device(const DeviceMemory& memory, const MemcpyParams& copy);
/// Does the copy go to or come from memory of the host, pinned memory included?
bool is_transfer(const DeviceMemory& memory, const MemcpyParams& copy);
/// Is the source the host's to change until the copy ran?
bool is_staged(const DeviceMemory& memory, const MemcpyParams& copy);

/// What the device reads and writes.
void add_spans(const DeviceMemory& memory, const MemcpyParams& copy, Footprint* spans);
void add_spans(const MemsetParams& set, Footprint* spans);
/// Is all of it inside mapped memory?
bool is_mapped(const DeviceMemory& memory, const MemcpyParams& copy);
bool is_mapped(const DeviceMemory& memory, const MemsetParams& set);

/// A byte that the copy both reads and writes, or nullptr.
const void* overlap(const MemcpyParams& copy);
void perform(const MemcpyParams& copy);
void perform(const MemsetParams& set);

/// The conditional handles' values in one launch.
class Conditionals {
 public:
  void assign_defaults(const std::vector<ConditionalInfo>& handles);
  void set(ConditionalHandle h, uint32_t value) { values_[h] = value; }
  std::optional<uint32_t> value(ConditionalHandle h) const;

 private:
  std::map<ConditionalHandle, uint32_t> values_;
};

}  // namespace shadowgraph
