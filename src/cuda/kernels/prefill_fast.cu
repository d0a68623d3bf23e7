// attention_with_kvcache and attention_varlen for 16-bit queries of any length, by tensor cores. A
// block has 128 queries of one head, 32 a warp; tiles of 64 keys are copied while the last one is
// multiplied. Which queries a block has follows from cu_seqlens_q when it runs.
//
// Arithmetic: cuda_fast_prefill in check/arithmetics.inc.
#include <algorithm>
#include <bit>

#include "attn/mask.h"
#include "cuda/cuda_kernels.h"
#include "cuda/kernels/planes.cuh"
#include "cuda/kernels/tensor_core.cuh"

namespace shadowgraph::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kQueries = 128, kOfWarp = kQueries / kWarps, kKeys = 64;
constexpr int kRowTiles = kOfWarp / 16;  // products of 16 rows that a warp makes

template <int D>
struct Shared {
  static constexpr int kQueryBytes = kQueries * D * 2, kKeyBytes = kKeys * D * 2;
  static constexpr int kBytes = kQueryBytes + 2 * kKeyBytes;
  __device__ static std::byte* q() { return shared_memory(); }
  __device__ static std::byte* k() { return shared_memory() + kQueryBytes; }
  __device__ static std::byte* v() { return shared_memory() + kQueryBytes + kKeyBytes; }
};

/// As in decode_fast.cu.
template <int D>
__device__ int place(int row, int column) {
  return row * D * 2 + (column ^ (row & 7)) * 16;
}

/// One block's queries of one request, and its keys.
struct Job {
  int64_t first_row;       // of q and out: of the block's first query
  int32_t first, queries;  // the request's queries from `first` on
  int64_t request;
  MaskShape mask;
  KvTokens k, v;            // at the KV head, ragged: and at the request's first token
  const int32_t* page_ids;  // nullptr: ragged
  int32_t page_shift, page_size;
  int64_t num_pages;
  int32_t head;
  float scale, cap;

  __device__ int64_t start(const KvTokens& plane, int32_t key) const {
    if (page_ids == nullptr) return key * plane.token_stride;
    const int32_t page = page_ids[key >> page_shift];
    if (page < 0 || page >= num_pages) return -1;
    return page * plane.page_stride + (key & (page_size - 1)) * plane.token_stride;
  }
};

/// What a thread has of its warp's rows, by row_of.
template <int D>
struct Accumulated {
  FragmentC o[kRowTiles][D / 8] = {};
  float m[2 * kRowTiles], d[2 * kRowTiles] = {};
};

/// The i-th row of a thread, of its warp's.
__device__ int row_of(int i, int lane) { return 16 * (i / 2) + 8 * (i % 2) + lane / 4; }

template <int D>
__device__ void ask_for_queries(const Rows& q, const Job& job) {
  constexpr int kColumns = D / 8;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kQueries * kColumns / kThreads; ++i) {
    const int row = (kThreads * i + thread) / kColumns, column = (kThreads * i + thread) % kColumns;
    const bool there = row < job.queries;
    const int64_t at = q.offset(job.first_row + (there ? row : 0), job.head) + 8 * column;
    copy_16_bytes(Shared<D>::q() + place<D>(row, column), q.data + 2 * at, there);
  }
}

/// Keys, or values, from `first` on; past the end zeros. False: a page is not in the pool.
template <int D>
__device__ bool ask_for_keys(const Job& job, const KvTokens& plane, int32_t first, int32_t end,
                             std::byte* to) {
  constexpr int kColumns = D / 8;
  const int thread = static_cast<int>(threadIdx.x);
  bool sound = true;
#pragma unroll
  for (int i = 0; i < kKeys * kColumns / kThreads; ++i) {
    const int row = (kThreads * i + thread) / kColumns, column = (kThreads * i + thread) % kColumns;
    const bool wanted = first + row < end;
    const int64_t start = wanted ? job.start(plane, first + row) : -1;
    sound = sound && (start >= 0 || !wanted);
    copy_16_bytes(to + place<D>(row, column),
                  plane.data + 2 * ((start >= 0 ? start : 0) + 8 * column), start >= 0);
  }
  return sound;
}

template <DType T, int D>
__device__ void multiply_keys(int warp, int lane, FragmentC (&s)[kRowTiles][kKeys / 8]) {
  const int key = lane / 16 * 8 + lane % 8, row = lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    FragmentA a[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
      load_matrices(a[r].pair,
                    Shared<D>::q() + place<D>(kOfWarp * warp + 16 * r + row, 2 * i + lane / 16));
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      uint32_t b[4];
      load_matrices(b, Shared<D>::k() + place<D>(16 * n + key, 2 * i + lane / 8 % 2));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply<T>(s[r][2 * n], a[r], {{b[0], b[1]}});
        multiply<T>(s[r][2 * n + 1], a[r], {{b[2], b[3]}});
      }
    }
  }
}

/// Capped logits are in base 2, others up to the scale, which weigh() multiplies with. all_seen:
/// every row sees the whole tile.
template <int D>
__device__ void cap_and_mask(const Job& job, int32_t first, bool all_seen, int warp, int lane,
                             FragmentC (&s)[kRowTiles][kKeys / 8]) {
  if (job.cap == 0 && all_seen) return;
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int query = kOfWarp * warp + row_of(i, lane);
    const KvRange seen = query < job.queries ? kv_range(job.mask, job.first + query) : KvRange{};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[i / 2][n].at[2 * (i % 2) + e];
        if (job.cap != 0) x = tanhf(x * job.scale) * job.cap;
        const int32_t key = first + 8 * n + 2 * (lane % 4) + e;
        if (key < seen.begin || key >= seen.end) x = -kInfinity;
      }
    }
  }
}

/// Logits become weights, and the states follow.
template <int D>
__device__ void weigh(float scale, FragmentC (&s)[kRowTiles][kKeys / 8], Accumulated<D>* w) {
  bool same = true;
  float factor[2 * kRowTiles];
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    float largest = w->m[i];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      largest = fmaxf(largest, s[i / 2][n].at[2 * (i % 2)]);
      largest = fmaxf(largest, s[i / 2][n].at[2 * (i % 2) + 1]);
    }
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 2));
    // Of a row that has seen nothing every weight is exp2(-inf - 0).
    const float scaled = largest == -kInfinity ? 0 : largest * scale;
    factor[i] = w->m[i] == -kInfinity ? 0 : fast_exp2(fmaf(w->m[i], scale, -scaled));
    same = same && (factor[i] == 1 || w->m[i] == -kInfinity);
    w->m[i] = largest;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[i / 2][n].at[2 * (i % 2) + e];
        x = fast_exp2(fmaf(x, scale, -scaled));
        sum += x;
      }
    }
    w->d[i] = fmaf(w->d[i], factor[i], sum);
  }
  if (__all_sync(kWholeWarp, same)) return;  // o is 0 where m was -inf
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) w->o[r][n].at[e] *= factor[2 * r + e / 2];
    }
  }
}

template <DType T, int D>
__device__ void add_values(const FragmentC (&p)[kRowTiles][kKeys / 8], int lane,
                           Accumulated<D>* w) {
  const int key = lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
  for (int n = 0; n < kKeys / 16; ++n) {
    FragmentA a[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const FragmentC& of = p[r][2 * n + i / 2];
        a[r].pair[i] = pair_of<T>(of.at[2 * (i % 2)], of.at[2 * (i % 2) + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
      uint32_t b[4];
      load_matrices_transposed(b, Shared<D>::v() + place<D>(16 * n + key, 2 * i + lane / 16));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply<T>(w->o[r][2 * i], a[r], {{b[0], b[1]}});
        multiply<T>(w->o[r][2 * i + 1], a[r], {{b[2], b[3]}});
      }
    }
  }
}

/// Returns whether every page was in the pool, for this thread.
template <DType T, int D>
__device__ bool attend(const Job& job, KvRange keys, int warp, int lane, Accumulated<D>* w) {
  const KvRange of_all = {kv_range(job.mask, job.first + job.queries - 1).begin,
                          kv_range(job.mask, job.first).end};
  const float scale = job.cap == 0 ? job.scale : 1;
  bool sound = ask_for_keys<D>(job, job.k, keys.begin, keys.end, Shared<D>::k());
  end_copies();
  for (int32_t first = keys.begin; first < keys.end; first += kKeys) {
    wait_for_copies<0>();
    __syncthreads();
    sound = ask_for_keys<D>(job, job.v, first, keys.end, Shared<D>::v()) && sound;
    end_copies();
    FragmentC s[kRowTiles][kKeys / 8] = {};
    multiply_keys<T, D>(warp, lane, s);
    wait_for_copies<0>();
    __syncthreads();
    if (first + kKeys < keys.end)
      sound = ask_for_keys<D>(job, job.k, first + kKeys, keys.end, Shared<D>::k()) && sound;
    end_copies();
    const bool all_seen = job.queries == kQueries && first >= of_all.begin &&
                          first + kKeys <= of_all.end && of_all.size() > 0;
    cap_and_mask<D>(job, first, all_seen, warp, lane, s);
    weigh<D>(scale, s, w);
    add_values<T, D>(s, lane, w);
  }
  return sound;
}

struct Target {
  Rows out, lse;
  const float* sinks;
  bool lse_sink;
  float v_scale, scale;  // of m
};

template <int D>
__device__ void finish(const Target& to, const Job& job, int warp, int lane, bool sound,
                       const Accumulated<D>& w) {
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    float d = w.d[i];
    d += __shfl_xor_sync(kWholeWarp, d, 1);
    d += __shfl_xor_sync(kWholeWarp, d, 2);
    const int query = kOfWarp * warp + row_of(i, lane);
    const int64_t row = job.first_row + query;
    const bool has_mass = w.m[i] != -kInfinity;
    const float m = has_mass ? w.m[i] * to.scale : -kInfinity;
    float weight = 1, divisor = d, top = m;
    if (to.sinks != nullptr) {
      const float sink = to.sinks[job.head] * static_cast<float>(kLog2EInDouble);
      top = fmaxf(m, sink);
      weight = has_mass ? exp2f(m - top) : 0;
      divisor = d * weight + (sink == -kInfinity ? 0 : exp2f(sink - top));
    }
    if (query >= job.queries) continue;
    const float lost = __uint_as_float(0xffffffffu);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float o = w.o[i / 2][n].at[2 * (i % 2) + e];
        const float x = has_mass ? o * weight / divisor * to.v_scale : 0;
        to.out.store(row, job.head, 8 * n + 2 * (lane % 4) + e, sound ? x : lost);
      }
    }
    if (lane % 4 != 0 || !to.lse.defined()) continue;
    const State told = to.lse_sink ? State{top, divisor} : State{m, d};
    to.lse.store(row, job.head, 0, sound ? natural_lse(told, kLn2InDouble) : lost);
  }
}

/// The block's request and its first query: blocks of 128 queries, request by request, the last
/// queries of a request first, as these see most keys. False: there is none.
__device__ bool take_queries(const int32_t* cu_seqlens_q, int64_t batch, int32_t most_rows,
                             Job* job) {
  int64_t left = blockIdx.x;
  for (int64_t i = 0; i < batch; ++i) {
    const int32_t q_len = cu_seqlens_q[i + 1] - cu_seqlens_q[i];
    const int32_t rows = most_rows > 0 ? min(q_len, most_rows) : q_len;
    const int64_t blocks = rows > 0 ? (rows - 1) / kQueries + 1 : 0;
    if (left >= blocks) {
      left -= blocks;
      continue;
    }
    job->request = i;
    job->first = static_cast<int32_t>(blocks - 1 - left) * kQueries;
    job->queries = min(kQueries, rows - job->first);
    job->first_row = int64_t{cu_seqlens_q[i]} + job->first;
    job->mask.q_len = q_len;
    return true;
  }
  return false;
}

__device__ void set_params(const ParamsScalars& p, float k_scale, int32_t kv_len, Job* job) {
  job->mask = {job->mask.q_len, kv_len, p.causal != 0, p.window_left, p.window_right};
  job->head = static_cast<int32_t>(blockIdx.y);
  const double scale = static_cast<double>(p.sm_scale) * k_scale, cap = p.logits_soft_cap;
  job->scale = static_cast<float>(cap == 0 ? scale * kLog2EInDouble : scale / cap);
  job->cap = static_cast<float>(cap * kLog2EInDouble);
}

template <DType T, int D>
__device__ void run(const Job& job, const Rows& q, const Target& to, bool sound) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Accumulated<D> w;
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    w.m[i] = -kInfinity;
  }
  ask_for_queries<D>(q, job);
  end_copies();
  const KvRange keys = kv_range(job.mask, job.first, job.first + job.queries);
  if (sound && keys.size() > 0) sound = attend<T, D>(job, keys, warp, lane, &w);
  wait_for_copies<0>();
  sound = __syncthreads_or(sound ? 0 : 1) == 0;
  finish<D>(to, job, warp, lane, sound, w);
}

template <DType T, int D>
__global__ void __launch_bounds__(kThreads, 2)
    prefill_paged(const void* q, const void* k, const void* v, const void* k_scales,
                  const void* v_scales, const int32_t* pages, const int32_t* seqlens,
                  const int32_t* kv_indptr, const int32_t* cu_seqlens_q, const float* sinks,
                  const uint8_t* /*mask*/, const int64_t* /*mask_indptr*/, void* out, void* lse,
                  const int32_t* /*plan*/, PagedScalars s) {
  Job job{};
  if (!take_queries(cu_seqlens_q, s.batch, s.params.max_seqlen_q, &job)) return;
  int32_t kv_len = seqlens[job.request];
  bool sound = true;
  job.page_ids = pages;
  if (s.form == PageTable::Form::kDense) {
    job.page_ids += job.request * s.max_pages;
    sound = kv_len >= 0 && kv_len <= s.max_pages * s.cache.page_size;
  } else {
    const int32_t first = kv_indptr[job.request], count = kv_indptr[job.request + 1] - first;
    job.page_ids += first;
    sound = first >= 0 && count >= 0 && first + int64_t{count} <= s.num_page_ids &&
            (count == 0 || (kv_len >= 1 && kv_len <= s.cache.page_size));
    kv_len = count > 0 ? (count - 1) * s.cache.page_size + kv_len : 0;
  }
  set_params(s.params, s.cache.k_scale, sound ? kv_len : 0, &job);
  const Planes planes = planes_of(s.cache, k, v, k_scales, v_scales);
  const int64_t kv_head = job.head / (s.params.num_qo_heads / s.params.num_kv_heads);
  job.k = at_head(planes.k, kv_head), job.v = at_head(planes.v, kv_head);
  job.page_size = s.cache.page_size;
  job.page_shift = __ffs(s.cache.page_size) - 1;
  job.num_pages = s.cache.num_pages;
  run<T, D>(job, rows_of(q, s.q),
            {rows_of(out, s.out), rows_of(lse, s.lse), s.params.has_sinks != 0 ? sinks : nullptr,
             s.params.lse_sink != 0, s.cache.v_scale, job.cap == 0 ? job.scale : 1},
            sound);
}

template <DType T, int D>
__global__ void __launch_bounds__(kThreads, 2)
    prefill_ragged(const void* q, const void* k, const void* v, const int32_t* cu_seqlens_q,
                   const int32_t* cu_seqlens_k, const float* sinks, const uint8_t* /*mask*/,
                   const int64_t* /*mask_indptr*/, void* out, void* lse, RaggedScalars s) {
  Job job{};
  if (!take_queries(cu_seqlens_q, s.num_offsets_q - 1, s.params.max_seqlen_q, &job)) return;
  const int32_t first = cu_seqlens_k[job.request], end = cu_seqlens_k[job.request + 1];
  const bool sound = first >= 0 && end >= first && end <= s.k.shape[0];
  set_params(s.params, s.k_scale, sound ? end - first : 0, &job);
  const int64_t kv_head = job.head / (s.params.num_qo_heads / s.params.num_kv_heads);
  const auto tokens = [&](const void* data, const RowsScalars& t) {
    KvTokens kv{};
    kv.dtype = t.dtype, kv.token_stride = t.stride[0], kv.head_stride = t.stride[1];
    kv.data = static_cast<const std::byte*>(data) + 2 * (sound ? first : 0) * t.stride[0];
    return at_head(kv, kv_head);
  };
  job.k = tokens(k, s.k), job.v = tokens(v, s.v);
  run<T, D>(job, rows_of(q, s.q),
            {rows_of(out, s.out), rows_of(lse, s.lse), s.params.has_sinks != 0 ? sinks : nullptr,
             s.params.lse_sink != 0, s.v_scale, job.cap == 0 ? job.scale : 1},
            sound);
}

bool is_aligned(const KernelLaunch& launch, size_t arg) {
  return reinterpret_cast<uintptr_t>(launch.args.get<void*>(arg)) % 16 == 0;
}
bool are_columns(const RowsScalars& t) { return t.stride[0] % 8 == 0 && t.stride[1] % 8 == 0; }
bool are_columns(const int64_t (&strides)[3]) {
  return std::ranges::all_of(strides, [](int64_t stride) { return stride % 8 == 0; });
}

/// Of both kinds of call: the parameters, and q.
template <DType T, int D>
bool fits(const KernelLaunch& launch, const ParamsScalars& p, const RowsScalars& q) {
  return p.head_dim_qk == D && p.head_dim_vo == D && p.mask_kind == CustomMask::Kind::kNone &&
         q.dtype == T && are_columns(q) && is_aligned(launch, 0) && is_aligned(launch, 1) &&
         is_aligned(launch, 2);
}
template <DType T, int D>
bool fits_paged(const KernelLaunch& launch) {
  const auto s = launch.args.get<PagedScalars>(launch.args.size() - 1);
  return s.has_indptr != 0 && fits<T, D>(launch, s.params, s.q) && s.cache.k_dtype == T &&
         s.cache.v_dtype == T && s.cache.k_order == KvOrder::kStrided &&
         s.cache.v_order == KvOrder::kStrided && are_columns(s.cache.k_stride) &&
         are_columns(s.cache.v_stride) && std::has_single_bit(uint32_t(s.cache.page_size));
}
template <DType T, int D>
bool fits_ragged(const KernelLaunch& launch) {
  const auto s = launch.args.get<RaggedScalars>(launch.args.size() - 1);
  return fits<T, D>(launch, s.params, s.q) && s.k.dtype == T && s.v.dtype == T &&
         are_columns(s.k) && are_columns(s.v);
}

/// As many blocks as any lengths of so many rows and requests have.
template <int D>
Geometry geometry(int64_t rows, int64_t batch, int32_t heads) {
  const int64_t blocks = rows / kQueries + batch;
  return {dim3(static_cast<unsigned>(std::max<int64_t>(1, blocks)), static_cast<unsigned>(heads)),
          dim3(kThreads), Shared<D>::kBytes};
}
template <int D>
Geometry paged_geometry(const KernelLaunch& launch) {
  const auto s = launch.args.get<PagedScalars>(launch.args.size() - 1);
  return geometry<D>(s.q.shape[0], s.batch, s.params.num_qo_heads);
}
template <int D>
Geometry ragged_geometry(const KernelLaunch& launch) {
  const auto s = launch.args.get<RaggedScalars>(launch.args.size() - 1);
  return geometry<D>(s.q.shape[0], s.num_offsets_q - 1, s.params.num_qo_heads);
}

template <DType T, int D>
CudaKernel paged() {
  CudaKernel k = cuda_kernel("attention_with_kvcache", prefill_paged<T, D>, paged_geometry<D>);
  k.fits = fits_paged<T, D>;
  return k;
}
template <DType T, int D>
CudaKernel ragged() {
  CudaKernel k = cuda_kernel("attention_varlen", prefill_ragged<T, D>, ragged_geometry<D>);
  k.fits = fits_ragged<T, D>;
  return k;
}

const CudaKernels kKernels{paged<DType::kBF16, 128>(),  paged<DType::kF16, 128>(),
                           paged<DType::kBF16, 64>(),   paged<DType::kF16, 64>(),
                           ragged<DType::kBF16, 128>(), ragged<DType::kF16, 128>(),
                           ragged<DType::kBF16, 64>(),  ragged<DType::kF16, 64>()};

}  // namespace
}  // namespace shadowgraph::cuda
