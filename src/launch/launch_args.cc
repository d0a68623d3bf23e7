#include "launch/launch_args.h"

#include <cstring>

#include "kernels/spans.h"

namespace shadowgraph {
namespace {

/// fn(first element, elements) for every contiguous run of a view [rows], [rows, heads] or [rows,
/// heads, dim], this one's last axis contiguous.
template <class Fn>
void for_each_run(const TensorView& t, Fn fn) {
  if (!t.defined()) return;
  const int64_t heads = t.rank > 1 ? t.shape[1] : 1;
  for (int64_t row = 0; row < t.shape[0]; ++row) {
    for (int64_t head = 0; head < heads; ++head)
      fn(t.offset(row, head), t.rank == 3 ? t.shape[2] : 1);
  }
}

}  // namespace

int64_t offset_of_place(int64_t place, int64_t stride) {
  int64_t offset = 0;
  return __builtin_mul_overflow(place, stride, &offset) ? INT64_MAX : offset;
}

void add_missing_place(Footprint* spans, const ConstTensorView& t, int64_t place, int64_t count,
                       Access access, int64_t row) {
  if (place >= 0 && place < t.shape[0]) return;
  spans->push_back({t.data, offset_of_place(place, t.stride[0]), count, element_bytes(t.dtype),
                    access, static_cast<int32_t>(row)});
}

void add_written(Footprint* spans, const TensorView& t) {
  for_each_run(t, [&](int64_t first, int64_t count) {
    append(spans, {t.data, first, count, element_bytes(t.dtype), Access::kWrite});
  });
}

void poison(const TensorView& t) {
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  for_each_run(t, [&](int64_t first, int64_t count) {
    std::memset(t.data + first * size, 0xff, static_cast<size_t>(count * size));
  });
}

void add_beyond_pool(Footprint* spans, const KvCache& c, int64_t page, Access access, int32_t row) {
  for (const KvPlane* p : {&c.k, &c.v}) {
    spans->push_back({p->data, offset_of_place(page, p->page_stride), p->head_dim,
                      element_bytes(p->dtype), access, row});
    if (p->scales != nullptr)
      spans->push_back(
          {p->scales, offset_of_place(page, p->scale_page_stride), 1, sizeof(float), access, row});
  }
}

void name_requests(const RequestRows& rows, Footprint* spans) {
  for (AccessSpan& span : *spans) {
    if (span.row >= 0) span.row = rows.a_request > 0 ? rows.first + span.row / rows.a_request : -1;
  }
}

}  // namespace shadowgraph
