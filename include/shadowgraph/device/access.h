// A footprint: which elements of which buffers a kernel loads and stores, as a list of spans.
#pragma once

#include <cstdint>
#include <vector>

namespace shadowgraph {

enum class Access : uint8_t {
  kRead,   // the element must be initialised
  kTouch,  // loaded with a whole panel and then masked: the element must be allocated, may hold
           // any value, and must not change a bit of the result
  kWrite,
};

/// A run of `count` elements. `first` counts elements from the view's data pointer.
struct AccessSpan {
  const void* buffer = nullptr;  // the view's data pointer: identifies the buffer
  int64_t first = 0, count = 0;
  uint32_t element_bytes = 0;
  Access access = Access::kRead;
  int32_t row = -1;  // the request that the access serves; -1: no request
  bool operator==(const AccessSpan&) const = default;
};

using Footprint = std::vector<AccessSpan>;

}  // namespace shadowgraph
