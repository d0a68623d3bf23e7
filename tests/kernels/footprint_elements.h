// Which elements of a buffer a footprint has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// Those with that access.
inline std::set<int64_t> elements(const Footprint& spans, const std::vector<std::byte>& buffer,
                                  Access access) {
  std::set<int64_t> all;
  for (const AccessSpan& s : spans) {
    if (s.buffer != buffer.data() || s.access != access) continue;
    for (int64_t i = 0; i < s.count; ++i) all.insert(s.first + i);
  }
  return all;
}

/// Bytes of a buffer, of which those that the footprint has with that access are kept, and all
/// others are 0xff: NaN of every type.
inline void poison_others(const Footprint& spans, std::vector<std::byte>* buffer, Access access) {
  std::vector<bool> kept(buffer->size(), false);
  for (const AccessSpan& s : spans) {
    if (s.buffer != buffer->data() || s.access != access) continue;
    const int64_t size = s.element_bytes;
    for (int64_t i = s.first * size; i < (s.first + s.count) * size; ++i)
      kept.at(static_cast<size_t>(i)) = true;
  }
  for (size_t i = 0; i < kept.size(); ++i)
    if (!kept[i]) (*buffer)[i] = std::byte{0xff};
}

/// Places of bytes that the footprint writes: 1.
inline std::vector<uint8_t> written_bytes(const Footprint& spans,
                                          const std::vector<std::byte>& buffer) {
  std::vector<uint8_t> written(buffer.size(), 0);
  for (const AccessSpan& s : spans) {
    if (s.buffer != buffer.data() || s.access != Access::kWrite) continue;
    const int64_t size = s.element_bytes;
    for (int64_t i = s.first * size; i < (s.first + s.count) * size; ++i)
      written.at(static_cast<size_t>(i)) = 1;
  }
  return written;
}

/// Places of bytes that differ: 1.
inline std::vector<uint8_t> changed_bytes(const std::vector<std::byte>& before,
                                          const std::vector<std::byte>& after) {
  std::vector<uint8_t> changed(before.size(), 0);
  for (size_t i = 0; i < before.size(); ++i) changed[i] = before[i] != after[i];
  return changed;
}

}  // namespace shadowgraph
