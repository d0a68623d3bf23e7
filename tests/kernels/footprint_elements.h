// Which elements of a buffer a footprint has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "shadowgraph/access.h"

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

}  // namespace shadowgraph
