#include "launch/launch_args.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/spans.h"

namespace shadowgraph {
namespace {

/// fn(first element, elements) for every contiguous run.
template <class Fn>
void for_each_run(const TensorView& t, Fn fn) {
  if (!t.defined()) return;
  for (int64_t row = 0; row < t.shape[0]; ++row) {
    for (int64_t head = 0; head < t.shape[1]; ++head)
      fn(t.offset(row, head), t.rank == 3 ? t.shape[2] : 1);
  }
}

void put_strides(const KvPlane& p, int64_t* of_plane, int64_t* of_scales) {
  of_plane[0] = p.page_stride, of_plane[1] = p.token_stride, of_plane[2] = p.head_stride;
  of_scales[0] = p.scale_page_stride, of_scales[1] = p.scale_token_stride,
  of_scales[2] = p.scale_head_stride;
}

void take_strides(KvPlane* p, const int64_t* of_plane, const int64_t* of_scales) {
  p->page_stride = of_plane[0], p->token_stride = of_plane[1], p->head_stride = of_plane[2];
  p->scale_page_stride = of_scales[0], p->scale_token_stride = of_scales[1],
  p->scale_head_stride = of_scales[2];
}

/// Far outside every memory where it overflows.
int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace

RowsScalars scalars_of(const ConstTensorView& t) {
  assert(t.rank == 0 || t.rank == 2 || t.rank == 3);
  RowsScalars s{};
  s.rank = t.rank;
  s.dtype = t.dtype;
  std::copy_n(t.shape.begin(), t.rank, s.shape);
  std::copy_n(t.stride.begin(), std::min(t.rank, 2), s.stride);
  return s;
}

TensorView view_of(void* data, const RowsScalars& s) {
  TensorView t;
  t.data = static_cast<std::byte*>(data);
  t.dtype = s.dtype;
  t.rank = s.rank;
  std::copy_n(s.shape, 3, t.shape.begin());
  std::copy_n(s.stride, 2, t.stride.begin());
  if (s.rank == 3) t.stride[2] = 1;
  return t;
}

CacheScalars scalars_of(const KvCache& c) {
  CacheScalars s{};
  s.num_pages = c.num_pages;
  put_strides(c.k, s.k_stride, s.k_scale_stride);
  put_strides(c.v, s.v_stride, s.v_scale_stride);
  s.page_size = c.page_size;
  s.num_kv_heads = c.num_kv_heads;
  s.head_dim_qk = c.k.head_dim;
  s.head_dim_vo = c.v.head_dim;
  s.k_scale = c.k_scale;
  s.v_scale = c.v_scale;
  s.k_dtype = c.k.dtype;
  s.v_dtype = c.v.dtype;
  s.k_order = c.k.order;
  s.v_order = c.v.order;
  s.well_formed = c.well_formed;
  return s;
}

KernelArgs& add_cache(KernelArgs& args, const KvCache& c) {
  return args.pointer(c.k.data).pointer(c.v.data).pointer(c.k.scales).pointer(c.v.scales);
}

KvCache cache_of(const LaunchFrame& f, size_t first, const CacheScalars& s) {
  KvCache c;
  c.k.data = f.pointer<std::byte>(first);
  c.v.data = f.pointer<std::byte>(first + 1);
  c.k.scales = f.pointer<float>(first + 2);
  c.v.scales = f.pointer<float>(first + 3);
  take_strides(&c.k, s.k_stride, s.k_scale_stride);
  take_strides(&c.v, s.v_stride, s.v_scale_stride);
  c.k.dtype = s.k_dtype, c.v.dtype = s.v_dtype;
  c.k.order = s.k_order, c.v.order = s.v_order;
  c.k.head_dim = s.head_dim_qk, c.v.head_dim = s.head_dim_vo;
  c.num_pages = s.num_pages;
  c.page_size = s.page_size;
  c.num_kv_heads = s.num_kv_heads;
  c.k_scale = s.k_scale, c.v_scale = s.v_scale;
  c.well_formed = s.well_formed != 0;
  return c;
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
    spans->push_back(
        {p->data, times(page, p->page_stride), p->head_dim, element_bytes(p->dtype), access, row});
    if (p->scales != nullptr)
      spans->push_back(
          {p->scales, times(page, p->scale_page_stride), 1, sizeof(float), access, row});
  }
}

KernelLaunch launch_of(const Kernel& kernel, int64_t blocks) {
  KernelLaunch launch;
  launch.kernel = &kernel;
  launch.grid.x = static_cast<uint32_t>(std::max<int64_t>(1, blocks));
  return launch;
}

void name_requests(const RequestRows& rows, Footprint* spans) {
  for (AccessSpan& span : *spans) {
    if (span.row >= 0) span.row = rows.a_request > 0 ? rows.first + span.row / rows.a_request : -1;
  }
}

}  // namespace shadowgraph
