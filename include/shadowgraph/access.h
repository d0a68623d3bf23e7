// A footprint: which elements of which buffers a kernel loads and stores, as a list of spans.
#pragma once

#include <cstdint>
#include <vector>

namespace shadowgraph {

enum class Access : uint8_t {
  kRead,   // must be initialised
  kTouch,  // loaded with a whole panel, then masked: must be allocated, may hold anything, must not
           // change a bit
  kWrite,
};

/// count elements from element first on, counted from the view's data pointer.
struct AccessSpan {
  const void* buffer = nullptr;  // the view's data pointer: identifies the buffer
  int64_t first = 0, count = 0;
  uint32_t element_bytes = 0;
  Access access = Access::kRead;
  int32_t row = -1;  // the request on whose behalf; -1: nobody's
  bool operator==(const AccessSpan&) const = default;
};

using Footprint = std::vector<AccessSpan>;

}  // namespace shadowgraph
