// attention_with_kvcache and attention_varlen: one warp a row and head. Where the metadata of a
// row's request leads outside, the row is filled with 0xff (the CPU's body refuses the whole call).
#include <algorithm>

#include "cuda/cuda_kernels.h"
#include "cuda/kernels/attention_row.cuh"

namespace shadowgraph::cuda {
namespace {

constexpr int kMostWarps = 4;
constexpr int64_t kSharedBytes = 48 << 10;

/// A request of either call.
struct Request {
  int64_t q_begin, first_token;  // its first rows
  int32_t q_len, kv_len, rows;
  const int32_t* page_ids;
  bool sound;
};

/// The request whose row this is: the last whose first row is no later; -1: padding.
__device__ int64_t request_of(const int32_t* cu_seqlens_q, int64_t batch, int64_t row) {
  if (row >= cu_seqlens_q[batch]) return -1;
  int64_t low = 0, high = batch;  // cu[low] <= row < cu[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (cu_seqlens_q[middle] <= row ? low : high) = middle;
  }
  return low;
}

__device__ void set_rows(Request* r, const int32_t* cu_seqlens_q, int64_t i, int32_t most) {
  r->q_begin = cu_seqlens_q[i];
  r->q_len = cu_seqlens_q[i + 1] - cu_seqlens_q[i];
  r->rows = most > 0 ? min(r->q_len, most) : r->q_len;
}

__device__ AttentionRow row_of(const AttentionParams& p, LseSink lse_sink, float k_scale,
                               const float* sinks, const uint8_t* mask, const int64_t* mask_indptr,
                               const Request& r, int64_t request, int32_t q, int32_t head) {
  AttentionRow row{};
  const MaskShape shape{r.q_len, r.kv_len, p.causal, p.window_left, p.window_right};
  row.keys = kv_range(shape, q);
  row.page_ids = r.page_ids;
  row.mask_kind = p.custom_mask.kind;
  row.mask = mask;
  if (p.custom_mask.kind != CustomMask::Kind::kNone) {
    row.first_pair =
        mask_indptr[request] * (p.custom_mask.kind == CustomMask::Kind::kPacked ? 8 : 1) +
        (p.custom_mask.heads > 1 ? int64_t{head} * r.q_len + q : int64_t{q}) * r.kv_len;
  }
  const LogitScale logits = logit_scale_of(p, k_scale);
  row.scale = logits.scale, row.soft_cap = logits.cap;
  row.sink = !p.sinks.empty() ? sinks + head : nullptr;
  row.lse_sink = lse_sink == LseSink::kIncluded;
  return row;
}

__device__ void set_tensors(AttentionRow* row, const Rows& q, const Rows& out, const Rows& lse,
                            int64_t at, int32_t head) {
  const auto place = [&](const Rows& t) {
    return t.data + t.offset(at, head) * static_cast<int64_t>(size_of(t.dtype));
  };
  row->q = place(q), row->q_dtype = q.dtype;
  row->out = place(out), row->out_dtype = out.dtype;
  row->lse = lse.defined() ? reinterpret_cast<float*>(place(lse)) : nullptr;
}

/// The warp's row and head; false: there is none.
__device__ bool take_row(int64_t rows, int32_t heads, int64_t* row, int32_t* head) {
  const int64_t item = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  *row = item / heads, *head = static_cast<int32_t>(item % heads);
  return *row < rows;
}

__device__ RowRoom room_of(const AttentionParams& p) {
  return {shared_memory() + threadIdx.y * RowRoom::bytes(p.head_dim_qk, p.head_dim_vo),
          p.head_dim_qk};
}

__device__ Request paged_request(const PagedAttention& s, const int32_t* pages,
                                 const int32_t* seqlens, const int32_t* kv_indptr,
                                 const int32_t* cu_seqlens_q, int64_t i) {
  Request r{i, 0, 1, 0, 1, pages, true};
  if (!s.cu_seqlens_q.empty()) set_rows(&r, cu_seqlens_q, i, s.max_seqlen_q);
  const RequestKeys keys = keys_of_request(s, pages, kv_indptr, i, seqlens[i]);
  r.page_ids = keys.page_ids, r.kv_len = keys.kv_len, r.sound = keys.sound;
  return r;
}

/// Are the pages of the keys in the pool?
__device__ bool are_in_pool(const AttentionRow& row, int64_t num_pages, int lane) {
  bool outside = false;
  const int32_t end = row.keys.size() > 0 ? (row.keys.end - 1) / row.page_size + 1 : 0;
  for (int32_t i = row.keys.begin / row.page_size + lane; i < end; i += 32)
    outside = outside || row.page_ids[i] < 0 || row.page_ids[i] >= num_pages;
  return !__any_sync(kWholeWarp, outside);
}

__global__ void attention_with_kvcache(const void* q, const void* k, const void* v,
                                       const void* k_scales, const void* v_scales,
                                       const int32_t* pages, const int32_t* seqlens,
                                       const int32_t* kv_indptr, const int32_t* cu_seqlens_q,
                                       const float* sinks, const uint8_t* mask,
                                       const int64_t* mask_indptr, void* out, void* lse,
                                       const int32_t* /*plan*/, CallOf<PagedAttention> of) {
  const PagedAttention& s = of.call;
  begin_launch();
  int64_t at;
  int32_t head;
  if (!take_row(s.q.shape[0], s.params.num_qo_heads, &at, &head)) return;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t i = !s.cu_seqlens_q.empty() ? request_of(cu_seqlens_q, batch_of(s.pages), at) : at;
  if (i < 0) return;
  const Request r = paged_request(s, pages, seqlens, kv_indptr, cu_seqlens_q, i);
  const auto query = static_cast<int32_t>(at - r.q_begin);
  if (query >= r.rows) return;
  AttentionRow row = row_of(s.params, s.options.lse_sink, s.cache.k_scale, sinks, mask, mask_indptr,
                            r, i, query, head);
  const Rows outs = rows_of(out, s.out), lses = rows_of(lse, s.lse.tensor);
  set_tensors(&row, rows_of(q, s.q), outs, lses, at, head);
  const Planes planes = planes_of(s.cache, k, v, k_scales, v_scales);
  const int64_t kv_head = kv_head_of(s.params, head);
  row.k = at_head(planes.k, kv_head), row.v = at_head(planes.v, kv_head);
  row.page_size = s.cache.page_size;
  row.v_scale = s.cache.v_scale;
  row.tile = !s.cu_seqlens_q.empty() ? kPrefillTile : kDecodeTile;
  if (!r.sound || !are_in_pool(row, s.cache.num_pages, lane)) {
    outs.poison(at, head, lane), lses.poison(at, head, lane);
    return;
  }
  attend_row(row, room_of(s.params), lane);
}

__global__ void attention_varlen(const void* q, const void* k, const void* v,
                                 const int32_t* cu_seqlens_q, const int32_t* cu_seqlens_k,
                                 const float* sinks, const uint8_t* mask,
                                 const int64_t* mask_indptr, void* out, void* lse,
                                 CallOf<RaggedAttention> of) {
  const RaggedAttention& s = of.call;
  begin_launch();
  int64_t at;
  int32_t head;
  if (!take_row(s.q.shape[0], s.params.num_qo_heads, &at, &head)) return;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t i = request_of(cu_seqlens_q, batch_of(s), at);
  if (i < 0) return;
  Request r{0, cu_seqlens_k[i], 0, cu_seqlens_k[i + 1] - cu_seqlens_k[i], 0, nullptr, true};
  set_rows(&r, cu_seqlens_q, i, s.max_seqlen_q);
  r.sound = r.first_token >= 0 && r.kv_len >= 0 && cu_seqlens_k[i + 1] <= s.k.shape[0];
  const auto query = static_cast<int32_t>(at - r.q_begin);
  if (query >= r.rows) return;
  AttentionRow row =
      row_of(s.params, s.options.lse_sink, s.k_scale, sinks, mask, mask_indptr, r, i, query, head);
  const Rows outs = rows_of(out, s.out), lses = rows_of(lse, s.lse.tensor);
  set_tensors(&row, rows_of(q, s.q), outs, lses, at, head);
  const int64_t kv_head = kv_head_of(s.params, head);
  const auto tokens = [&](const void* data, const ConstTensorView& t, int32_t dim) {
    KvTokens kv{};
    kv.dtype = t.dtype, kv.token_stride = t.stride[0], kv.head_stride = t.stride[1];
    kv.head_dim = dim;
    kv.data = static_cast<const std::byte*>(data) +
              r.first_token * t.stride[0] * static_cast<int64_t>(size_of(t.dtype));
    return at_head(kv, kv_head);
  };
  row.k = tokens(k, s.k, s.params.head_dim_qk), row.v = tokens(v, s.v, s.params.head_dim_vo);
  row.page_size = 1;
  row.v_scale = s.v_scale;
  row.tile = kPrefillTile;
  if (!r.sound) {
    outs.poison(at, head, lane), lses.poison(at, head, lane);
    return;
  }
  attend_row(row, room_of(s.params), lane);
}

/// A warp takes one row and head.
Geometry geometry_of(int64_t rows, const AttentionParams& p) {
  const int64_t bytes = RowRoom::bytes(p.head_dim_qk, p.head_dim_vo);
  const int64_t warps = std::clamp<int64_t>(kSharedBytes / bytes, 1, kMostWarps);
  const int64_t items = std::max<int64_t>(1, rows * p.num_qo_heads);
  return {dim3(static_cast<unsigned>((items + warps - 1) / warps)),
          dim3(32, static_cast<unsigned>(warps)), static_cast<unsigned>(warps * bytes)};
}

const CudaKernels kKernels{
    cuda_kernel("attention_with_kvcache", attention_with_kvcache,
                [](const KernelLaunch& launch) {
                  const PagedAttention s = scalar_of<PagedAttention>(launch).call;
                  return geometry_of(s.q.shape[0], s.params);
                }),
    cuda_kernel("attention_varlen", attention_varlen,
                [](const KernelLaunch& launch) {
                  const RaggedAttention s = scalar_of<RaggedAttention>(launch).call;
                  return geometry_of(s.q.shape[0], s.params);
                }),
};

}  // namespace
}  // namespace shadowgraph::cuda
