// What the fast bodies of prefill have in common: which queries a block has, where keys lie, how a
// row ends, which launches fit. A body is a type: element type kType, head dim kDim, kThreads a
// block, kBlocks of them on a multiprocessor, kBytes of shared memory, is_there() on this GPU, its
// preference, and run(): a block's work.
#pragma once

#include <algorithm>
#include <bit>

#include "attn/mask.h"
#include "cuda/cuda_kernels.h"
#include "cuda/kernels/planes.cuh"
#include "cuda/kernels/tensor_core.cuh"

namespace shadowgraph::cuda {

constexpr int kQueries = 128;  // of a block

/// One block's queries of one request and head, and its keys.
struct PrefillJob {
  int64_t first_row;       // of q and out: of the block's first query
  int32_t first, queries;  // the request's queries from `first` on
  int64_t request;
  MaskShape mask;
  KvTokens k, v;            // at the KV head, ragged: and at the request's first token
  const int32_t* page_ids;  // nullptr: ragged
  int32_t page_shift, page_size;
  int64_t num_pages;
  int32_t head;
  float scale, cap;  // capped logits are in base 2, others are so times scale
  bool sound;        // the metadata leads nowhere else

  /// Element at which a key's row begins; -1: its page is not in the pool.
  __device__ int64_t start(const KvTokens& plane, int32_t key) const {
    if (page_ids == nullptr) return key * plane.token_stride;
    const int32_t page = page_ids[key >> page_shift];
    if (page < 0 || page >= num_pages) return -1;
    return page * plane.page_stride + (key & (page_size - 1)) * plane.token_stride;
  }
  /// The factor that turns what q.k gave into base 2 logits.
  __device__ float factor() const { return cap == 0 ? scale : 1; }
  /// Keys that every one of so many queries sees.
  __device__ KvRange seen_by_all(int32_t query, int32_t count) const {
    if (query + count > queries) return {};
    return {kv_range(mask, first + query + count - 1).begin, kv_range(mask, first + query).end};
  }
};

/// Where rows go, and how they end.
struct PrefillTarget {
  Rows out, lse;
  const float* sinks;
  bool lse_sink;
  float v_scale;

  /// A row of the block, of which a lane has two of every eight dims: at(n, 0) is of dim 8 n +
  /// 2 (lane % 4). m: the largest logit, up to job.factor(), -inf where the row saw nothing; d:
  /// this lane's part of the sum. unsound: 0xff.
  template <DType T, int kDim, class At>
  __device__ void put(const PrefillJob& job, int query, float m, float d, int lane, bool sound,
                      const At& at) const {
    d += __shfl_xor_sync(kWholeWarp, d, 1);
    d += __shfl_xor_sync(kWholeWarp, d, 2);
    if (query >= job.queries) return;
    if (d != d) m = d;  // the largest of numbers and NaNs is a number
    const bool has_mass = m != -kInfinity;
    if (has_mass) m *= job.factor();
    float weight = 1, divisor = d, top = m;
    if (sinks != nullptr) {
      const float sink = sinks[job.head] * static_cast<float>(kLog2EInDouble);
      top = fmaxf(m, sink);
      weight = has_mass ? exp2f(m - top) : 0;
      divisor = d * weight + (sink == -kInfinity ? 0 : exp2f(sink - top));
    }
    const float factor = weight / divisor * v_scale;
    const int64_t row = job.first_row + query;
    const int64_t start = out.offset(row, job.head) + 2 * (lane % 4);
    const auto each_pair = [&](const auto& put_pair) {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const float x = has_mass ? at(n, 0) * factor : 0, y = has_mass ? at(n, 1) * factor : 0;
        put_pair(start + 8 * n, x, y);
      }
    };
    // A branch a type, so that none lies between the stores of a row.
    const auto store_as = [&](DType type) {
      each_pair([&](int64_t i, float x, float y) {
        cuda::store(out.data, type, i, x), cuda::store(out.data, type, i + 1, y);
      });
    };
    if (!sound) {
      out.poison(row, job.head, lane % 4, 4);
      if (lane % 4 == 0) lse.poison(row, job.head, 0, 1);
      return;
    }
    if (out.dtype == T && start % 2 == 0 && reinterpret_cast<uintptr_t>(out.data) % 4 == 0) {
      each_pair([&](int64_t i, float x, float y) {
        *reinterpret_cast<uint32_t*>(out.data + 2 * i) = pair_of<T>(x, y);
      });
    } else {
      if (out.dtype == DType::kF32) store_as(DType::kF32);
      if (out.dtype == DType::kF16) store_as(DType::kF16);
      if (out.dtype == DType::kBF16) store_as(DType::kBF16);
    }
    if (lane % 4 != 0 || !lse.defined()) return;
    const State told = lse_sink ? State{top, divisor} : State{m, d};
    lse.store(row, job.head, 0, natural_lse(told, kLn2InDouble));
  }
};

__device__ inline int32_t of_lane(int32_t x, int lane) {
  return static_cast<int32_t>(__shfl_sync(kWholeWarp, static_cast<unsigned>(x), lane));
}

/// The block's request and its first query: blocks of 128 queries, request by request, the last
/// queries of a request first, as these see most keys. Found by whole warps, a request a lane.
/// False: there is none.
__device__ inline bool take_queries(const int32_t* cu_seqlens_q, int64_t batch, int32_t most_rows,
                                    PrefillJob* job) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto left = static_cast<int64_t>(blockIdx.x);
  for (int64_t first = 0; first < batch; first += 32) {
    const int64_t mine = first + lane;
    const int32_t start = mine < batch ? cu_seqlens_q[mine] : 0;
    const int32_t q_len = mine < batch ? cu_seqlens_q[mine + 1] - start : 0;
    const int32_t rows = most_rows > 0 ? min(q_len, most_rows) : q_len;
    const int32_t blocks = rows > 0 ? (rows - 1) / kQueries + 1 : 0;
    int32_t end = blocks;  // of all lanes up to this one
#pragma unroll
    for (int n = 1; n < 32; n *= 2) {
      const int32_t before = of_lane(end, max(lane - n, 0));
      if (lane >= n) end += before;
    }
    const unsigned behind = __ballot_sync(kWholeWarp, end > left);
    if (behind == 0) {
      left -= of_lane(end, 31);
      continue;
    }
    const int owner = __ffs(static_cast<int>(behind)) - 1;
    const auto after = of_lane(end, owner) - static_cast<int32_t>(left) - 1;
    job->request = first + owner;
    job->first = after * kQueries;
    job->queries = min(kQueries, of_lane(rows, owner) - job->first);
    job->first_row = int64_t{of_lane(start, owner)} + job->first;
    job->mask.q_len = of_lane(q_len, owner);
    return true;
  }
  return false;
}

__device__ inline void set_params(const AttentionParams& p, float k_scale, int32_t kv_len,
                                  PrefillJob* job) {
  job->mask = {job->mask.q_len, kv_len, p.causal, p.window_left, p.window_right};
  job->head = static_cast<int32_t>(blockIdx.y);
  const LogitScale logits = logit_scale_of(p, k_scale);
  job->scale = logits.scale, job->cap = logits.cap;
}

template <class Body>
__global__ void __launch_bounds__(Body::kThreads, Body::kBlocks)
    prefill_paged(const void* q, const void* k, const void* v, const void* k_scales,
                  const void* v_scales, const int32_t* pages, const int32_t* seqlens,
                  const int32_t* kv_indptr, const int32_t* cu_seqlens_q, const float* sinks,
                  const uint8_t* /*mask*/, const int64_t* /*mask_indptr*/, void* out, void* lse,
                  const int32_t* /*plan*/, CallOf<PagedAttention> of) {
  const PagedAttention& s = of.call;
  begin_launch();
  PrefillJob job{};
  if (!take_queries(cu_seqlens_q, batch_of(s.pages), s.max_seqlen_q, &job)) return;
  const RequestKeys keys = keys_of_request(s, pages, kv_indptr, job.request, seqlens[job.request]);
  job.page_ids = keys.page_ids, job.sound = keys.sound;
  set_params(s.params, s.cache.k_scale, job.sound ? keys.kv_len : 0, &job);
  Planes planes = planes_of(s.cache, k, v, k_scales, v_scales);
  planes.k.dtype = planes.v.dtype = Body::kType;  // as fits() asks
  const int64_t kv_head = kv_head_of(s.params, job.head);
  job.k = at_head(planes.k, kv_head), job.v = at_head(planes.v, kv_head);
  job.page_size = s.cache.page_size;
  job.page_shift = __ffs(s.cache.page_size) - 1;
  job.num_pages = s.cache.num_pages;
  Body::run(
      job, rows_of(q, s.q),
      {rows_of(out, s.out), rows_of(lse, s.lse.tensor), !s.params.sinks.empty() ? sinks : nullptr,
       s.options.lse_sink == LseSink::kIncluded, s.cache.v_scale});
}

template <class Body>
__global__ void __launch_bounds__(Body::kThreads, Body::kBlocks)
    prefill_ragged(const void* q, const void* k, const void* v, const int32_t* cu_seqlens_q,
                   const int32_t* cu_seqlens_k, const float* sinks, const uint8_t* /*mask*/,
                   const int64_t* /*mask_indptr*/, void* out, void* lse,
                   CallOf<RaggedAttention> of) {
  const RaggedAttention& s = of.call;
  begin_launch();
  PrefillJob job{};
  if (!take_queries(cu_seqlens_q, batch_of(s), s.max_seqlen_q, &job)) return;
  const int32_t first = cu_seqlens_k[job.request], end = cu_seqlens_k[job.request + 1];
  job.sound = first >= 0 && end >= first && end <= s.k.shape[0];
  set_params(s.params, s.k_scale, job.sound ? end - first : 0, &job);
  const int64_t kv_head = kv_head_of(s.params, job.head);
  const auto tokens = [&](const void* data, const ConstTensorView& t) {
    KvTokens kv{};
    kv.dtype = Body::kType, kv.token_stride = t.stride[0], kv.head_stride = t.stride[1];
    kv.data = static_cast<const std::byte*>(data) + 2 * (job.sound ? first : 0) * t.stride[0];
    return at_head(kv, kv_head);
  };
  job.k = tokens(k, s.k), job.v = tokens(v, s.v);
  Body::run(
      job, rows_of(q, s.q),
      {rows_of(out, s.out), rows_of(lse, s.lse.tensor), !s.params.sinks.empty() ? sinks : nullptr,
       s.options.lse_sink == LseSink::kIncluded, s.v_scale});
}

inline bool is_aligned(const KernelLaunch& launch, size_t arg) {
  return reinterpret_cast<uintptr_t>(launch.args.get<void*>(arg)) % 16 == 0;
}
inline bool are_columns(const ConstTensorView& t) {
  return t.stride[0] % 8 == 0 && t.stride[1] % 8 == 0;
}

/// Does the body fit the parameters and q? The same for both kinds of call.
template <class Body>
bool fits(const KernelLaunch& launch, const AttentionParams& p, const ConstTensorView& q) {
  return Body::is_there() && p.head_dim_qk == Body::kDim && p.head_dim_vo == Body::kDim &&
         p.custom_mask.kind == CustomMask::Kind::kNone && q.dtype == Body::kType &&
         are_columns(q) && is_aligned(launch, 0) && is_aligned(launch, 1) && is_aligned(launch, 2);
}

/// As many blocks as any lengths of so many rows and requests have.
template <class Body>
Geometry prefill_geometry(int64_t rows, int64_t batch, int32_t heads) {
  const int64_t blocks = rows / kQueries + batch;
  return {dim3(static_cast<unsigned>(std::max<int64_t>(1, blocks)), static_cast<unsigned>(heads)),
          dim3(Body::kThreads), Body::kBytes};
}

template <class Body>
CudaKernel prefill_of_pages() {
  CudaKernel k =
      cuda_kernel("attention_with_kvcache", prefill_paged<Body>, [](const KernelLaunch& launch) {
        const PagedAttention s = scalar_of<PagedAttention>(launch).call;
        return prefill_geometry<Body>(s.q.shape[0], batch_of(s.pages), s.params.num_qo_heads);
      });
  k.preference = Body::kPreference;
  k.fits = [](const KernelLaunch& launch) {
    const PagedAttention s = scalar_of<PagedAttention>(launch).call;
    return !s.cu_seqlens_q.empty() && fits<Body>(launch, s.params, s.q) &&
           s.cache.k.dtype == Body::kType && s.cache.v.dtype == Body::kType &&
           s.cache.k.order == KvOrder::kStrided && s.cache.v.order == KvOrder::kStrided &&
           have_few_columns(s.cache, s.cache.k) && have_few_columns(s.cache, s.cache.v) &&
           std::has_single_bit(static_cast<uint32_t>(s.cache.page_size));
  };
  return k;
}
template <class Body>
CudaKernel ragged_prefill() {
  CudaKernel k =
      cuda_kernel("attention_varlen", prefill_ragged<Body>, [](const KernelLaunch& launch) {
        const RaggedAttention s = scalar_of<RaggedAttention>(launch).call;
        return prefill_geometry<Body>(s.q.shape[0], batch_of(s), s.params.num_qo_heads);
      });
  k.preference = Body::kPreference;
  k.fits = [](const KernelLaunch& launch) {
    const RaggedAttention s = scalar_of<RaggedAttention>(launch).call;
    return fits<Body>(launch, s.params, s.q) && s.k.dtype == Body::kType &&
           s.v.dtype == Body::kType &&
           have_few_columns({s.k.stride[0], s.k.stride[1]}, {s.k.shape[0], s.k.shape[1]}) &&
           have_few_columns({s.v.stride[0], s.v.stride[1]}, {s.v.shape[0], s.v.shape[1]});
  };
  return k;
}

/// Both kinds of call, of both types and head dims.
template <template <DType, int> class Body>
CudaKernels prefills() {
  constexpr DType kBF16 = DType::kBF16, kF16 = DType::kF16;
  return {prefill_of_pages<Body<kBF16, 128>>(), prefill_of_pages<Body<kF16, 128>>(),
          prefill_of_pages<Body<kBF16, 64>>(),  prefill_of_pages<Body<kF16, 64>>(),
          ragged_prefill<Body<kBF16, 128>>(),   ragged_prefill<Body<kF16, 128>>(),
          ragged_prefill<Body<kBF16, 64>>(),    ragged_prefill<Body<kF16, 64>>()};
}

}  // namespace shadowgraph::cuda
