#include "backends/attention_launch.h"

#include <algorithm>
#include <cstring>

#include "attn/page_table.h"
#include "attn/validate.h"
#include "kernels/attend_blocks.h"
#include "kernels/footprint.h"

namespace shadowgraph {

namespace {

/// Arguments 0 to 14; argument 15 is PagedScalars.
enum Arg : uint8_t {
  kQ,
  kK,
  kV,
  kKScales,
  kVScales,
  kPageTable,  // or kv_indices
  kSeqlens,    // cache_seqlens, or last_page_len
  kKvIndptr,
  kCuSeqlensQ,
  kSinks,
  kMask,
  kMaskIndptr,
  kOut,
  kLse,
  kPlan,
  kScalars
};

/// No padding: launches are compared byte by byte.
struct PagedScalars {
  int64_t batch, total_q, max_pages, num_page_ids, num_pages, mask_bytes, plan_size;
  int64_t q_stride[2], out_stride[2], lse_stride[2];  // token, head
  int64_t k_stride[3], v_stride[3];                   // page, token, head
  int64_t k_scale_stride[3], v_scale_stride[3];       // the same
  int32_t num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, page_size;
  int32_t window_left, window_right, num_threads;
  float sm_scale, logits_soft_cap, k_scale, v_scale;
  DType q_dtype, k_dtype, v_dtype, out_dtype;
  KvOrder k_order, v_order;
  PageTable::Form form;
  CustomMask::Kind mask_kind;
  Arith arith;
  uint8_t lse_sink, causal, has_indptr, has_lse, well_formed, unused[2];
};
static_assert(sizeof(PagedScalars) == 7 * 8 + 6 * 8 + 12 * 8 + 8 * 4 + 4 * 4 + 16);

PagedScalars scalars_of(const PagedAttention& c) {
  PagedScalars s{};
  s.batch = c.pages.batch();
  s.total_q = c.q.shape[0];
  s.max_pages = c.pages.max_pages;
  const bool dense = c.pages.form == PageTable::Form::kDense;
  s.num_page_ids = static_cast<int64_t>((dense ? c.pages.page_table : c.pages.kv_indices).size());
  s.num_pages = c.cache.num_pages;
  s.mask_bytes = static_cast<int64_t>(c.params.custom_mask.data.size());
  s.plan_size = static_cast<int64_t>(c.plan.size());
  for (int i = 0; i < 2; ++i) {
    s.q_stride[i] = c.q.stride[i];
    s.out_stride[i] = c.out.stride[i];
    s.lse_stride[i] = c.lse.tensor.stride[i];
  }
  const auto strides = [](const KvPlane& p, int64_t* of_plane, int64_t* of_scales) {
    of_plane[0] = p.page_stride, of_plane[1] = p.token_stride, of_plane[2] = p.head_stride;
    of_scales[0] = p.scale_page_stride, of_scales[1] = p.scale_token_stride,
    of_scales[2] = p.scale_head_stride;
  };
  strides(c.cache.k, s.k_stride, s.k_scale_stride);
  strides(c.cache.v, s.v_stride, s.v_scale_stride);
  s.num_qo_heads = c.params.num_qo_heads;
  s.num_kv_heads = c.params.num_kv_heads;
  s.head_dim_qk = c.params.head_dim_qk;
  s.head_dim_vo = c.params.head_dim_vo;
  s.page_size = c.cache.page_size;
  s.window_left = c.params.window_left;
  s.window_right = c.params.window_right;
  s.num_threads = c.options.num_threads;
  s.sm_scale = c.params.sm_scale;
  s.logits_soft_cap = c.params.logits_soft_cap;
  s.k_scale = c.cache.k_scale;
  s.v_scale = c.cache.v_scale;
  s.q_dtype = c.q.dtype;
  s.k_dtype = c.cache.k.dtype;
  s.v_dtype = c.cache.v.dtype;
  s.out_dtype = c.out.dtype;
  s.k_order = c.cache.k.order;
  s.v_order = c.cache.v.order;
  s.form = c.pages.form;
  s.mask_kind = c.params.custom_mask.kind;
  s.arith = c.options.arith;
  s.lse_sink = static_cast<uint8_t>(c.options.lse_sink);
  s.causal = c.params.causal;
  s.has_indptr = !c.cu_seqlens_q.empty();
  s.has_lse = c.lse.defined();
  s.well_formed = c.cache.well_formed;
  return s;
}

KvPlane plane_of(std::byte* data, DType dtype, KvOrder order, const int64_t* stride,
                 int32_t head_dim, float* scales, const int64_t* scale_stride) {
  KvPlane p;
  p.data = data;
  p.dtype = dtype;
  p.order = order;
  p.page_stride = stride[0], p.token_stride = stride[1], p.head_stride = stride[2];
  p.head_dim = head_dim;
  p.scales = scales;
  p.scale_page_stride = scale_stride[0], p.scale_token_stride = scale_stride[1],
  p.scale_head_stride = scale_stride[2];
  return p;
}

PageTable pages_of(const LaunchFrame& f, const PagedScalars& s) {
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  const std::span<const int32_t> ids{f.pointer<const int32_t>(kPageTable), size(s.num_page_ids)};
  const std::span<const int32_t> lens{f.pointer<const int32_t>(kSeqlens), size(s.batch)};
  if (s.form == PageTable::Form::kDense) return PageTable::dense(ids, s.max_pages, lens);
  return PageTable::csr({f.pointer<const int32_t>(kKvIndptr), size(s.batch + 1)}, ids, lens);
}

/// The call that the launch stands for, over the device's memory.
PagedAttention call_of(const LaunchFrame& f) {
  const auto s = f.scalar<PagedScalars>(kScalars);
  PagedAttention c;
  c.q = ConstTensorView(f.pointer<const void>(kQ), s.q_dtype,
                        {s.total_q, s.num_qo_heads, s.head_dim_qk},
                        {s.q_stride[0], s.q_stride[1], 1});
  c.out = TensorView(f.pointer<void>(kOut), s.out_dtype, {s.total_q, s.num_qo_heads, s.head_dim_vo},
                     {s.out_stride[0], s.out_stride[1], 1});
  if (s.has_lse != 0) {
    c.lse = NaturalLse(TensorView(f.pointer<void>(kLse), DType::kF32, {s.total_q, s.num_qo_heads},
                                  {s.lse_stride[0], s.lse_stride[1]}));
  }
  c.cache.k = plane_of(f.pointer<std::byte>(kK), s.k_dtype, s.k_order, s.k_stride, s.head_dim_qk,
                       f.pointer<float>(kKScales), s.k_scale_stride);
  c.cache.v = plane_of(f.pointer<std::byte>(kV), s.v_dtype, s.v_order, s.v_stride, s.head_dim_vo,
                       f.pointer<float>(kVScales), s.v_scale_stride);
  c.cache.num_pages = s.num_pages;
  c.cache.page_size = s.page_size;
  c.cache.num_kv_heads = s.num_kv_heads;
  c.cache.k_scale = s.k_scale, c.cache.v_scale = s.v_scale;
  c.cache.well_formed = s.well_formed != 0;
  c.pages = pages_of(f, s);
  const auto batch = static_cast<size_t>(s.batch);
  if (s.has_indptr != 0) c.cu_seqlens_q = {f.pointer<const int32_t>(kCuSeqlensQ), batch + 1};
  c.plan = {f.pointer<const int32_t>(kPlan), static_cast<size_t>(s.plan_size)};
  c.params = {.num_qo_heads = s.num_qo_heads,
              .num_kv_heads = s.num_kv_heads,
              .head_dim_qk = s.head_dim_qk,
              .head_dim_vo = s.head_dim_vo,
              .sm_scale = s.sm_scale,
              .causal = s.causal != 0,
              .window_left = s.window_left,
              .window_right = s.window_right,
              .logits_soft_cap = s.logits_soft_cap};
  if (const auto* sinks = f.pointer<const float>(kSinks); sinks != nullptr)
    c.params.sinks = {sinks, static_cast<size_t>(s.num_qo_heads)};
  if (s.mask_kind != CustomMask::Kind::kNone) {
    c.params.custom_mask = {s.mask_kind,
                            {f.pointer<const uint8_t>(kMask), static_cast<size_t>(s.mask_bytes)},
                            {f.pointer<const int64_t>(kMaskIndptr), batch + 1}};
  }
  c.options.arith = s.arith;
  c.options.num_threads = s.num_threads;
  c.options.lse_sink = static_cast<LseSink>(s.lse_sink);
  return c;
}

/// fn(tensor, first element, elements) for every contiguous run of the outputs.
template <class Fn>
void for_each_output(const PagedAttention& c, Fn fn) {
  for (int64_t row = 0; row < c.out.shape[0]; ++row) {
    for (int64_t head = 0; head < c.out.shape[1]; ++head) {
      fn(c.out, c.out.offset(row, head, 0), c.out.shape[2]);
      if (c.lse.defined()) fn(c.lse.tensor, c.lse.tensor.offset(row, head), int64_t{1});
    }
  }
}

void poison_outputs(const PagedAttention& c) {
  for_each_output(c, [](const TensorView& t, int64_t offset, int64_t count) {
    const auto size = static_cast<int64_t>(size_of(t.dtype));
    std::memset(t.data + offset * size, 0xff, static_cast<size_t>(count * size));
  });
}

Progress body(LaunchFrame& f) {
  const PagedAttention call = call_of(f);
  if (!attention_with_kvcache(call).ok()) poison_outputs(call);
  return Progress::kDone;
}

template <class T>
void add_whole(Footprint* spans, std::span<const T> s, Access access = Access::kRead) {
  if (!s.empty())
    spans->push_back({s.data(), 0, static_cast<int64_t>(s.size()), sizeof(T), access});
}

/// Page ids that a request's length asks for (the table's length, if it is CSR), and those of them
/// that lie in its row.
struct PageIds {
  int64_t first = 0, count = 0;
  std::span<const int32_t> known;
};

PageIds page_ids(const PagedAttention& c, int64_t request) {
  const PageTable& t = c.pages;
  const auto of = [](std::span<const int32_t> ids, int64_t first, int64_t count, int64_t room) {
    const int64_t known = std::clamp<int64_t>(count, 0, room);
    return PageIds{first, count,
                   ids.subspan(static_cast<size_t>(first), static_cast<size_t>(known))};
  };
  if (t.form == PageTable::Form::kCsr)
    return of(t.kv_indices, 0, t.kv_indptr.back(), static_cast<int64_t>(t.kv_indices.size()));
  const int64_t keys = t.cache_seqlens[static_cast<size_t>(request)];
  return of(t.page_table, request * t.max_pages, pages_for(keys, c.cache.page_size), t.max_pages);
}

/// Of a call that is refused: its metadata, also past the table's end, the pages beyond the pool
/// that it names, and the outputs.
void add_corrupt(const PagedAttention& c, Footprint* spans) {
  add_whole(spans, c.cu_seqlens_q);
  add_whole(spans, c.pages.cache_seqlens);
  add_whole(spans, c.pages.kv_indptr);
  add_whole(spans, c.pages.last_page_len);
  add_whole(spans, c.params.sinks);
  add_whole(spans, used_part(c.plan));
  add_whole(spans, c.params.custom_mask.mask_indptr);
  const bool dense = c.pages.form == PageTable::Form::kDense;
  const int64_t rows = dense ? c.pages.batch() : 1;
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t* table = (dense ? c.pages.page_table : c.pages.kv_indices).data();
    const int32_t row = dense ? static_cast<int32_t>(i) : -1;
    const PageIds ids = page_ids(c, i);
    spans->push_back({table, ids.first, ids.count, sizeof(int32_t), Access::kRead, row});
    for (const int32_t id : ids.known) {
      if (id >= 0 && id < c.cache.num_pages) continue;
      for (const KvPlane* p : {&c.cache.k, &c.cache.v}) {
        spans->push_back({p->data, id * p->page_stride, p->head_dim,
                          static_cast<uint32_t>(size_of(p->dtype)), Access::kRead, row});
        if (p->scales != nullptr)
          spans->push_back(
              {p->scales, id * p->scale_page_stride, 1, sizeof(float), Access::kRead, row});
      }
    }
  }
  for_each_output(c, [&](const TensorView& t, int64_t offset, int64_t count) {
    spans->push_back(
        {t.data, offset, count, static_cast<uint32_t>(size_of(t.dtype)), Access::kWrite});
  });
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  const PagedAttention call = call_of(f);
  if (validate(call).ok() && check_plan(call).ok()) {
    *spans = attention_footprint(call);
  } else {
    add_corrupt(call, spans);
  }
}

}  // namespace

constinit const Kernel kPagedAttention{
    .name = "attention_with_kvcache", .body = body, .footprint = footprint};

KernelLaunch attention_launch(const PagedAttention& c) {
  const bool dense = c.pages.form == PageTable::Form::kDense;
  KernelLaunch launch;
  launch.kernel = &kPagedAttention;
  launch.grid.x = static_cast<uint32_t>(std::max<int64_t>(1, c.pages.batch()));
  launch.args.pointer(c.q.data)
      .pointer(c.cache.k.data)
      .pointer(c.cache.v.data)
      .pointer(c.cache.k.scales)
      .pointer(c.cache.v.scales)
      .pointer((dense ? c.pages.page_table : c.pages.kv_indices).data())
      .pointer((dense ? c.pages.cache_seqlens : c.pages.last_page_len).data())
      .pointer(c.pages.kv_indptr.data())
      .pointer(c.cu_seqlens_q.data())
      .pointer(c.params.sinks.empty() ? nullptr : c.params.sinks.data())
      .pointer(c.params.custom_mask.data.data())
      .pointer(c.params.custom_mask.mask_indptr.data())
      .pointer(c.out.data)
      .pointer(c.lse.defined() ? c.lse.tensor.data : nullptr)
      .pointer(c.plan.data())
      .scalar(scalars_of(c));
  return launch;
}

}  // namespace shadowgraph
