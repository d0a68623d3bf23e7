// Footprints of strided blocks, in as few spans as their layout allows.
#pragma once

#include <cstdint>
#include <utility>

#include "shadowgraph/device/access.h"
#include "shadowgraph/dtype.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

inline uint32_t element_bytes(DType t) { return static_cast<uint32_t>(size_of(t)); }

/// At the end of the list, or as more of its last span where it goes on right behind that.
inline void append(Footprint* spans, const AccessSpan& span) {
  if (!spans->empty()) {
    AccessSpan& last = spans->back();
    AccessSpan before = span;  // what could grow to hold it
    before.first = last.first, before.count = last.count;
    if (last == before && last.first + last.count == span.first) {
      last.count += span.count;
      return;
    }
  }
  spans->push_back(span);
}

struct SpanAxis {
  int64_t size = 1, stride = 0;  // elements
};

/// unit.count elements from unit.first, repeated along inner and then along outer.
inline void add_block(Footprint* spans, AccessSpan unit, SpanAxis outer, SpanAxis inner) {
  for (SpanAxis* axis : {&outer, &inner})
    if (axis->size == 1) axis->stride = 0;
  if (outer.stride < inner.stride) std::swap(outer, inner);
  if (inner.stride == unit.count || inner.size == 1) {
    unit.count *= inner.size;
    inner = {};
  }
  if (inner.size == 1 && outer.stride == unit.count) {
    unit.count *= outer.size;
    outer = {};
  }
  const int64_t first = unit.first;
  for (int64_t i = 0; i < outer.size; ++i) {
    for (int64_t j = 0; j < inner.size; ++j) {
      unit.first = first + i * outer.stride + j * inner.stride;
      append(spans, unit);
    }
  }
}

/// count elements of t[row, ...] from its element `first` on, which lie side by side.
inline void add_line(Footprint* spans, const ConstTensorView& t, int64_t row, int64_t first,
                     int64_t count, Access access) {
  if (count > 0)
    append(spans, {t.data, t.offset(row) + first, count, element_bytes(t.dtype), access,
                   static_cast<int32_t>(row)});
}
/// All of the matrix's row.
inline void add_line(Footprint* spans, const ConstTensorView& t, int64_t row, Access access) {
  add_line(spans, t, row, 0, t.shape[1], access);
}

}  // namespace shadowgraph
