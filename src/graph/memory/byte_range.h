// The addresses that a span holds. Only for spans that judge() let pass: nothing overflows.
#pragma once

#include <cstdint>

#include "shadowgraph/device/access.h"

namespace shadowgraph {

struct ByteRange {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

inline ByteRange byte_range(const AccessSpan& s) {
  const auto begin =
      reinterpret_cast<uintptr_t>(s.buffer) + static_cast<uintptr_t>(s.first) * s.element_bytes;
  return {begin, begin + static_cast<uintptr_t>(s.count) * s.element_bytes};
}

}  // namespace shadowgraph
