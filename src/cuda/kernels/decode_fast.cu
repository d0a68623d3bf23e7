// attention_with_kvcache for decode batches of 16-bit rows over strided pages, by tensor cores. A
// block has the query heads of one KV head, padded to 16 rows; its warps take tiles of 16 keys in
// turn, each with a softmax of its own and copies of its own under way; the blocks of a cluster
// share a request's keys, and merge through each other's shared memory. Lengths are read when it
// runs: a graph needs no other capture.
//
// Arithmetic: cuda_fast_decode in check/arithmetics.inc. How many blocks share the keys depends on
// the batch, and so do bits.
#include <algorithm>

#include "attn/mask.h"
#include "cuda/cuda_kernels.h"
#include "cuda/kernels/planes.cuh"
#include "cuda/kernels/tensor_core.cuh"

namespace shadowgraph::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kTile = 16;   // keys
constexpr int kRows = 16;   // query heads of a KV head, at most
constexpr int kStages = 3;  // tiles of a warp that are there or on their way
constexpr int kMostBlocks = 16;

template <int D>
struct Shared {
  static constexpr int kTileBytes = kTile * D * 2;                // of K, of V
  static constexpr int kWarpBytes = kStages * 2 * kTileBytes;     // later its o, m, d
  static constexpr int kStateFloats = kRows * D + 2 * kRows + 1;  // o, m, d of the block, a flag
  static constexpr int kBytes = kWarps * kWarpBytes + (kStateFloats + 3) / 4 * 16;
  static_assert((kRows * D + 2 * kRows) * 4 <= kWarpBytes);

  __device__ static std::byte* tile(int warp, int stage, bool values) {
    return shared_memory() + warp * kWarpBytes + (2 * stage + (values ? 1 : 0)) * kTileBytes;
  }
  __device__ static float* warp_state(int warp) {
    return reinterpret_cast<float*>(shared_memory() + warp * kWarpBytes);
  }
  __device__ static float* block_state() {
    return reinterpret_cast<float*>(shared_memory() + kWarps * kWarpBytes);
  }
};

/// Bytes of a tile's row and 16-byte column: columns change places, so that the eight rows that are
/// read together lie in eight banks.
template <int D>
__device__ int place(int row, int column) {
  return row * D * 2 + (column ^ (row & 7)) * 16;
}

/// A block's part of one request's keys.
struct Keys {
  KvTokens k, v;
  const int32_t* page_ids;
  int32_t page_size, begin, end;
  int64_t num_pages;

  /// Element at which a key's row begins; -1: its page is not in the pool, or there is no such key.
  __device__ int64_t start(const KvTokens& plane, int32_t key) const {
    if (key >= end) return -1;
    const int32_t page = page_ids[key / page_size];
    if (page < 0 || page >= num_pages) return -1;
    return token_offset(plane, page_ids, page_size, key);
  }
};

/// One warp's rows: FragmentC of all dims, and the state of rows lane / 4 and lane / 4 + 8.
template <int D>
struct WarpState {
  FragmentC o[D / 8] = {};
  float m[2] = {-kInfinity, -kInfinity}, d[2] = {0, 0};
  bool outside = false;  // a key's page was not in the pool
};

template <DType T, int D>
__device__ void load_q(const Rows& q, int64_t row, int64_t first_head, int32_t group, int lane,
                       FragmentA (&a)[D / 16]) {
  const int g = lane / 4, pair = 2 * (lane % 4);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int head = g + i % 2 * 8, dim = 16 * k + pair + i / 2 * 8;
      const auto* data = reinterpret_cast<const uint16_t*>(q.data);
      const int64_t at = q.offset(row, first_head + head) + dim;
      const uint32_t low = head < group ? data[at] : 0, high = head < group ? data[at + 1] : 0;
      a[k].pair[i] = low | high << 16;
    }
  }
}

/// Asks for the tile that begins at `first`.
template <int D>
__device__ void ask_for_tile(const Keys& keys, int32_t first, int warp, int stage, int lane,
                             bool* outside) {
  const int32_t mine = first + lane % kTile;
  const long long start = keys.start(lane < kTile ? keys.k : keys.v, mine);
  *outside = *outside || (start < 0 && mine < keys.end);
  constexpr int kColumns = D / 8;
#pragma unroll
  for (int i = 0; i < kTile * kColumns / 32; ++i) {
    const int row = (32 * i + lane) / kColumns, column = (32 * i + lane) % kColumns;
    const long long of_k = __shfl_sync(kWholeWarp, start, row);
    const long long of_v = __shfl_sync(kWholeWarp, start, row + kTile);
    const int at = place<D>(row, column);
    copy_16_bytes(Shared<D>::tile(warp, stage, false) + at,
                  keys.k.data + 2 * (max(of_k, 0LL) + 8 * column), of_k >= 0);
    copy_16_bytes(Shared<D>::tile(warp, stage, true) + at,
                  keys.v.data + 2 * (max(of_v, 0LL) + 8 * column), of_v >= 0);
  }
}

/// q.k of a tile: columns are keys 0 to 7, and 8 to 15.
template <DType T, int D>
__device__ void logits_of_tile(const FragmentA (&q)[D / 16], const std::byte* k, int lane,
                               FragmentC (&s)[2]) {
  const int key = lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    uint32_t b[4];
    load_matrices(b, k + place<D>(key, 2 * i + lane / 8 % 2));
    multiply<T>(s[0], q[i], {{b[0], b[1]}});
    multiply<T>(s[1], q[i], {{b[2], b[3]}});
  }
}

struct Softmax {
  float scale, cap;  // base 2

  __device__ float logit(float x) const { return cap == 0 ? x * scale : tanhf(x * scale) * cap; }
};

/// Logits become weights, and the state follows; keys from `seen` on are hidden.
template <int D>
__device__ void weigh(const Softmax& softmax, int seen, int lane, FragmentC (&s)[2],
                      WarpState<D>* w) {
  float largest[2] = {w->m[0], w->m[1]};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int key = i / 4 * 8 + 2 * (lane % 4) + i % 2;
    float& x = s[i / 4].at[i % 4];
    x = key < seen ? softmax.logit(x) : -kInfinity;
    largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], x);
  }
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    largest[r] = fmaxf(largest[r], __shfl_xor_sync(kWholeWarp, largest[r], 1));
    largest[r] = fmaxf(largest[r], __shfl_xor_sync(kWholeWarp, largest[r], 2));
    factor[r] = w->m[r] == -kInfinity ? 0 : exp2f(w->m[r] - largest[r]);
    w->m[r] = largest[r];
    w->d[r] *= factor[r];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float& x = s[i / 4].at[i % 4];
    x = x == -kInfinity ? 0 : exp2f(x - largest[i % 4 / 2]);
    w->d[i % 4 / 2] += x;
  }
  if (__all_sync(kWholeWarp, factor[0] == 1 && factor[1] == 1)) return;
#pragma unroll
  for (int i = 0; i < D / 8; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) w->o[i].at[e] *= factor[e / 2];
  }
}

template <DType T, int D>
__device__ void add_values(const FragmentC (&p)[2], const std::byte* v, int lane, WarpState<D>* w) {
  const FragmentA a = {{pair_of<T>(p[0].at[0], p[0].at[1]), pair_of<T>(p[0].at[2], p[0].at[3]),
                        pair_of<T>(p[1].at[0], p[1].at[1]), pair_of<T>(p[1].at[2], p[1].at[3])}};
  const int key = lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    uint32_t b[4];
    load_matrices_transposed(b, v + place<D>(key, 2 * i + lane / 16));
    multiply<T>(w->o[2 * i], a, {{b[0], b[1]}});
    multiply<T>(w->o[2 * i + 1], a, {{b[2], b[3]}});
  }
}

/// A warp's tiles: every kWarps-th of the block's.
template <DType T, int D>
__device__ void attend_tiles(const Keys& keys, const FragmentA (&q)[D / 16], const Softmax& softmax,
                             int warp, int lane, WarpState<D>* w) {
  const int tiles = (keys.end - keys.begin + kTile - 1) / kTile;
  const int mine = (tiles - warp + kWarps - 1) / kWarps;
  const auto first_of = [&](int i) { return keys.begin + (warp + i * kWarps) * kTile; };
  const auto ask = [&](int i) {
    if (i < mine) ask_for_tile<D>(keys, first_of(i), warp, i % kStages, lane, &w->outside);
    end_copies();
  };
  for (int i = 0; i < kStages - 1; ++i) ask(i);
  for (int i = 0; i < mine; ++i) {
    wait_for_copies<kStages - 2>();
    __syncwarp();
    ask(i + kStages - 1);
    FragmentC s[2] = {};
    logits_of_tile<T, D>(q, Shared<D>::tile(warp, i % kStages, false), lane, s);
    weigh<D>(softmax, keys.end - first_of(i), lane, s, w);
    add_values<T, D>(s, Shared<D>::tile(warp, i % kStages, true), lane, w);
    __syncwarp();
  }
  wait_for_copies<0>();
  __syncwarp();
}

/// Into the memory of the warp's tiles, which it has read.
template <int D>
__device__ void leave_state(const WarpState<D>& w, int warp, int lane) {
  float* const o = Shared<D>::warp_state(warp);
  float *const m = o + kRows * D, *const d = m + kRows;
  for (int r = 0; r < 2; ++r) {
    float sum = w.d[r];
    sum += __shfl_xor_sync(kWholeWarp, sum, 1);
    sum += __shfl_xor_sync(kWholeWarp, sum, 2);
    if (lane % 4 == 0) m[lane / 4 + 8 * r] = w.m[r], d[lane / 4 + 8 * r] = sum;
  }
#pragma unroll
  for (int i = 0; i < D / 8; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      o[(lane / 4 + e / 2 * 8) * D + 8 * i + 2 * (lane % 4) + e % 2] = w.o[i].at[e];
  }
}

/// Merges states, part(i, at) being float `at` of the i-th; writes thread's dims of o, and m, d.
template <int D, class Part, class Put>
__device__ void merge_row(int row, int parts, const Part& part, const Put& put) {
  float m = -kInfinity, d = 0, o[(D + kThreads - 1) / kThreads] = {};
  for (int i = 0; i < parts; ++i) m = fmaxf(m, part(i, kRows * D + row));
  for (int i = 0; i < parts && m != -kInfinity; ++i) {
    const float of_part = part(i, kRows * D + row);
    if (of_part == -kInfinity) continue;
    const float factor = exp2f(of_part - m);
    d = fmaf(factor, part(i, kRows * D + kRows + row), d);
    for (int dim = static_cast<int>(threadIdx.x), n = 0; dim < D; dim += kThreads, ++n)
      o[n] = fmaf(factor, part(i, row * D + dim), o[n]);
  }
  for (int dim = static_cast<int>(threadIdx.x), n = 0; dim < D; dim += kThreads, ++n)
    put(dim, o[n], m, d);
}

template <int D>
__device__ void merge_warps(int32_t group, bool outside) {
  float* const block = Shared<D>::block_state();
  for (int row = 0; row < group; ++row) {
    merge_row<D>(
        row, kWarps, [](int warp, int at) { return Shared<D>::warp_state(warp)[at]; },
        [&](int dim, float o, float m, float d) {
          block[row * D + dim] = o;
          if (dim == 0) block[kRows * D + row] = m, block[kRows * D + kRows + row] = d;
        });
  }
  if (threadIdx.x == 0) block[kRows * D + 2 * kRows] = outside ? 1 : 0;
}

/// What a row becomes.
struct Target {
  Rows out, lse;
  int64_t row, first_head;
  const float* sinks;
  bool lse_sink;
  float v_scale;

  __device__ void put(int head, int dim, float o, float m, float d) const {
    const bool has_mass = m != -kInfinity;
    float weight = 1, divisor = d, top = m;
    if (sinks != nullptr) {
      const float sink = sinks[first_head + head] * static_cast<float>(kLog2EInDouble);
      top = fmaxf(m, sink);
      weight = has_mass ? exp2f(m - top) : 0;
      divisor = d * weight + (sink == -kInfinity ? 0 : exp2f(sink - top));
    }
    out.store(row, first_head + head, dim, has_mass ? o * weight / divisor * v_scale : 0);
    if (dim != 0 || !lse.defined()) return;
    const State told = lse_sink ? State{top, divisor} : State{m, d};
    lse.store(row, first_head + head, 0, natural_lse(told, kLn2InDouble));
  }
};

template <int D>
__device__ void merge_blocks(const Target& to, int32_t group) {
  const auto ranks = static_cast<int>(cluster_size());
  const float* const block = Shared<D>::block_state();
  float outside = 0;
  for (int i = 0; i < ranks; ++i)
    outside += load_from_rank(block + kRows * D + 2 * kRows, static_cast<uint32_t>(i));
  for (int row = static_cast<int>(cluster_rank()); row < group; row += ranks) {
    if (outside != 0) {
      if (threadIdx.x >= 32) continue;
      const int lane = static_cast<int>(threadIdx.x);
      to.out.poison(to.row, to.first_head + row, lane);
      to.lse.poison(to.row, to.first_head + row, lane);
      continue;
    }
    merge_row<D>(
        row, ranks,
        [&](int rank, int at) { return load_from_rank(block + at, static_cast<uint32_t>(rank)); },
        [&](int dim, float o, float m, float d) { to.put(row, dim, o, m, d); });
  }
}

/// Keys of this block: of those that the query sees, its rank's share of whole tiles.
__device__ void take_share(KvRange seen, Keys* keys) {
  const int64_t tiles = (seen.size() + kTile - 1) / kTile;
  const int64_t rank = cluster_rank(), ranks = cluster_size();
  keys->begin = seen.begin + static_cast<int32_t>(tiles * rank / ranks * kTile);
  keys->end = min(seen.end, seen.begin + static_cast<int32_t>(tiles * (rank + 1) / ranks * kTile));
}

template <DType T, int D>
__global__ void __launch_bounds__(kThreads)
    decode(const void* q, const void* k, const void* v, const void* k_scales, const void* v_scales,
           const int32_t* pages, const int32_t* seqlens, const int32_t* kv_indptr,
           const int32_t* /*cu_seqlens_q*/, const float* sinks, const uint8_t* /*mask*/,
           const int64_t* /*mask_indptr*/, void* out, void* lse, const int32_t* /*plan*/,
           PagedScalars s) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t request = blockIdx.z, kv_head = blockIdx.y;
  const int32_t group = s.params.num_qo_heads / s.params.num_kv_heads;
  const Planes planes = planes_of(s.cache, k, v, k_scales, v_scales);
  Keys keys{at_head(planes.k, kv_head), at_head(planes.v, kv_head), pages, s.cache.page_size, 0, 0,
            s.cache.num_pages};
  int32_t kv_len = seqlens[request];
  WarpState<D> state;
  if (s.form == PageTable::Form::kDense) {
    keys.page_ids += request * s.max_pages;
    state.outside = kv_len < 0 || kv_len > s.max_pages * s.cache.page_size;
  } else {
    const int32_t first = kv_indptr[request], count = kv_indptr[request + 1] - first;
    keys.page_ids += first;
    state.outside = first < 0 || count < 0 || first + int64_t{count} > s.num_page_ids ||
                    (count > 0 && (kv_len < 1 || kv_len > s.cache.page_size));
    kv_len = count > 0 ? (count - 1) * s.cache.page_size + kv_len : 0;
  }
  const MaskShape shape{1, state.outside ? 0 : kv_len, s.params.causal != 0, s.params.window_left,
                        s.params.window_right};
  take_share(kv_range(shape, 0), &keys);
  FragmentA rows[D / 16];
  load_q<T, D>(rows_of(q, s.q), request, kv_head * group, group, lane, rows);
  const double scale = static_cast<double>(s.params.sm_scale) * s.cache.k_scale;
  const double cap = s.params.logits_soft_cap;
  const Softmax softmax{static_cast<float>(cap == 0 ? scale * kLog2EInDouble : scale / cap),
                        static_cast<float>(cap * kLog2EInDouble)};
  attend_tiles<T, D>(keys, rows, softmax, warp, lane, &state);
  leave_state<D>(state, warp, lane);
  const bool outside = __syncthreads_or(state.outside) != 0;
  merge_warps<D>(group, outside);
  wait_for_cluster();
  merge_blocks<D>(
      {rows_of(out, s.out), rows_of(lse, s.lse), request, kv_head * group,
       s.params.has_sinks != 0 ? sinks : nullptr, s.params.lse_sink != 0, s.cache.v_scale},
      group);
  wait_for_cluster();  // nobody's memory goes before all have read it
}

PagedScalars scalars_of(const KernelLaunch& launch) {
  return launch.args.get<PagedScalars>(launch.args.size() - 1);
}

bool are_whole_columns(const int64_t (&strides)[3]) {
  return std::ranges::all_of(strides, [](int64_t stride) { return stride % 8 == 0; });
}

template <DType T, int D>
bool fits(const KernelLaunch& launch) {
  constexpr int64_t kMostRequests = 65535;  // along z
  const PagedScalars s = scalars_of(launch);
  const ParamsScalars& p = s.params;
  const auto aligned = [&](size_t arg) {
    return reinterpret_cast<uintptr_t>(launch.args.get<void*>(arg)) % 16 == 0;
  };
  return s.has_indptr == 0 && s.batch > 0 && s.batch <= kMostRequests && s.batch <= s.q.shape[0] &&
         p.max_seqlen_q == 0 && p.head_dim_qk == D && p.head_dim_vo == D &&
         p.num_qo_heads <= kRows * p.num_kv_heads && p.mask_kind == CustomMask::Kind::kNone &&
         s.q.dtype == T && s.cache.k_dtype == T && s.cache.v_dtype == T &&
         s.cache.k_order == KvOrder::kStrided && s.cache.v_order == KvOrder::kStrided &&
         are_whole_columns(s.cache.k_stride) && are_whole_columns(s.cache.v_stride) && aligned(1) &&
         aligned(2);
}

/// As many blocks a request as fill the machine twice, but no more than have some tiles each.
template <int D>
Geometry geometry(const KernelLaunch& launch) {
  constexpr int64_t kWantedBlocks = 2 * 132, kLeastKeys = 4 * kWarps * kTile;
  const PagedScalars s = scalars_of(launch);
  const int64_t groups = s.batch * s.params.num_kv_heads;
  const int64_t pages = s.form == PageTable::Form::kDense ? s.max_pages : s.num_page_ids;
  unsigned blocks = 1;
  while (blocks < kMostBlocks && 2 * blocks * groups <= kWantedBlocks &&
         2 * blocks * kLeastKeys <= pages * s.cache.page_size)
    blocks *= 2;
  return {
      dim3(blocks, static_cast<unsigned>(s.params.num_kv_heads), static_cast<unsigned>(s.batch)),
      dim3(kThreads), Shared<D>::kBytes, blocks};
}

template <DType T, int D>
CudaKernel kernel() {
  CudaKernel k = cuda_kernel("attention_with_kvcache", decode<T, D>, geometry<D>);
  k.fits = fits<T, D>;
  return k;
}

const CudaKernels kKernels{kernel<DType::kBF16, 128>(), kernel<DType::kF16, 128>(),
                           kernel<DType::kBF16, 64>(), kernel<DType::kF16, 64>()};

}  // namespace
}  // namespace shadowgraph::cuda
