// attention_with_kvcache for decode batches of 16-bit rows over strided pages, by tensor cores. A
// team of warps has the query heads of one KV head of one request after another, padded to 16 rows;
// its warps take tiles of 16 keys in turn, each with a softmax of its own, while the next tiles, of
// the next request too, are on their way. A block has one team or more; where there are few
// requests, the blocks of a cluster share one's keys, and merge through each other's shared memory.
// Lengths are read when it runs: a graph needs no other capture.
//
// Arithmetic: cuda_fast_decode in check/bounds/arithmetics.inc. How many warps share the keys depends on
// the batch, and so do bits.
#include <algorithm>
#include <bit>

#include "cuda/cuda_kernels.h"
#include "cuda/kernels/decode_tiles.cuh"

namespace shadowgraph::cuda::decoding {
namespace {

/// One warp's rows: FragmentC of all dims, and the state of rows lane / 4 and lane / 4 + 8.
template <int D>
struct WarpState {
  FragmentC o[D / 8] = {};
  float m[2] = {-kInfinity, -kInfinity}, d[2] = {0, 0};
};

template <int D>
__device__ void load_q(const Rows& q, int64_t row, int64_t first_head, int32_t group, int lane,
                       FragmentA (&a)[D / 16]) {
  const int g = lane / 4, pair = 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int head = g + i % 2 * 8;
    const bool there = head < group;
    const std::byte* const data =
        q.data + 2 * (q.offset(row, first_head + (there ? head : 0)) + pair + i / 2 * 8);
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      a[k].pair[i] = there ? *reinterpret_cast<const uint32_t*>(data + 32 * k) : 0;
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

template <bool kCapped>
struct Softmax {
  float scale, cap;  // base 2

  __device__ float logit(float x) const {
    if constexpr (kCapped) return tanhf(x * scale) * cap;
    return x * scale;
  }
};

/// Logits become weights, and the state follows; keys from `seen` on are hidden.
template <bool kCapped, int D>
__device__ void weigh(const Softmax<kCapped>& softmax, int seen, int lane, FragmentC (&s)[2],
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
    factor[r] = w->m[r] == -kInfinity ? 0 : fast_exp2(w->m[r] - largest[r]);
    w->m[r] = largest[r];
    w->d[r] *= factor[r];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float& x = s[i / 4].at[i % 4];
    x = x == -kInfinity ? 0 : fast_exp2(x - largest[i % 4 / 2]);
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

/// The warp's state; o into the slot of the tile that it weighed last.
template <int D, int kStages>
__device__ void leave_state(const WarpState<D>& w, const Member& me, uint32_t slot, int32_t group,
                            bool unsound) {
  using R = Room<D, kStages>;
  Left& left = R::left(me.warp);
  unsound = __any_sync(kWholeWarp, unsound);
  if (me.lane == 0) left.slot = slot, left.unsound = unsound ? 1 : 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = me.lane / 4 + 8 * r;
    float sum = w.d[r];
    sum += __shfl_xor_sync(kWholeWarp, sum, 1);
    sum += __shfl_xor_sync(kWholeWarp, sum, 2);
    if (row >= group) continue;
    if (me.lane % 4 == 0) left.m[row] = w.m[r], left.d[row] = sum;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      float* const o = R::o(me.warp, slot, row, 8 * i + 2 * (me.lane % 4));
      o[0] = w.o[i].at[2 * r], o[1] = w.o[i].at[2 * r + 1];
    }
  }
}

/// By a warp: merges up to 32 states of a row: part.m, part.d and part.o(i, row) are of the i-th;
/// put gets each dim of o, and m and d.
template <int D, class Part, class Put>
__device__ void merge_row(int lane, int row, int parts, const Part& part, const Put& put) {
  const float m_of_part = lane < parts ? part.m(lane, row) : -kInfinity;
  float d = lane < parts ? part.d(lane, row) : 0;
  float m = m_of_part;
#pragma unroll
  for (int n = 16; n > 0; n /= 2) m = fmaxf(m, __shfl_xor_sync(kWholeWarp, m, n));
  const float factor_of_part = m_of_part == -kInfinity ? 0 : fast_exp2(m_of_part - m);
  d *= factor_of_part;
#pragma unroll
  for (int n = 16; n > 0; n /= 2) d += __shfl_xor_sync(kWholeWarp, d, n);
  float o[D / 32] = {};
#pragma unroll 4
  for (int n = 0; n < parts; ++n) {
    const float factor = __shfl_sync(kWholeWarp, factor_of_part, n);
#pragma unroll
    for (int i = 0; i < D / 32; ++i) o[i] = fmaf(factor, part.o(n, row, lane + 32 * i), o[i]);
  }
#pragma unroll
  for (int i = 0; i < D / 32; ++i) put(row, lane + 32 * i, o[i], m, d);
}

/// What the warps of a team left.
template <int D, int kStages>
struct OfWarps {
  using R = Room<D, kStages>;
  int first;

  __device__ float m(int rank, int row) const { return R::left(first + rank).m[row]; }
  __device__ float d(int rank, int row) const { return R::left(first + rank).d[row]; }
  __device__ float o(int rank, int row, int dim) const {
    return *R::o(first + rank, R::left(first + rank).slot, row, dim);
  }
};

/// What the blocks of the cluster sent.
template <int D, int kStages>
struct OfBlocks {
  using R = Room<D, kStages>;
  int ranks;

  __device__ float m(int rank, int row) const { return R::sent(row, rank, ranks).m; }
  __device__ float d(int rank, int row) const { return R::sent(row, rank, ranks).d; }
  __device__ float o(int rank, int row, int dim) const { return R::sent(row, rank, ranks).o[dim]; }
};

/// What rows become.
struct Target {
  Rows out, lse;
  const float* sinks;
  bool lse_sink;
  float v_scale;
  int64_t row, first_head;

  __device__ void put(int head, int dim, float o, float m, float d) const {
    if (d != d) m = d;  // the largest of numbers and NaNs is a number
    const bool has_mass = m != -kInfinity;
    float weight = 1, divisor = d, top = m;
    if (sinks != nullptr) {
      const float sink = sinks[first_head + head] * static_cast<float>(kLog2EInDouble);
      top = fmaxf(m, sink);
      weight = has_mass ? fast_exp2(m - top) : 0;
      divisor = d * weight + (sink == -kInfinity ? 0 : fast_exp2(sink - top));
    }
    out.store(row, first_head + head, dim, has_mass ? o * weight / divisor * v_scale : 0);
    if (dim != 0 || !lse.defined()) return;
    const State told = lse_sink ? State{top, divisor} : State{m, d};
    lse.store(row, first_head + head, 0, natural_lse(told, kLn2InDouble));
  }
  __device__ void poison(int head, int lane) const {
    out.poison(row, first_head + head, lane);
    lse.poison(row, first_head + head, lane);
  }
};

/// All warps of the team have left their states: the rows, one a warp. last: no item follows.
template <int D, int kStages>
__device__ void merge_item(const Target& to, const Member& me, int group, bool last) {
  using R = Room<D, kStages>;
  const auto ranks = static_cast<int>(cluster_size()), rank = static_cast<int>(cluster_rank());
  const OfWarps<D, kStages> warps{me.first_warp()};
  const OfBlocks<D, kStages> blocks{ranks};
  const auto put = [&](int row, int dim, float o, float m, float d) { to.put(row, dim, o, m, d); };
  const bool unsound =
      __any_sync(kWholeWarp, me.lane < me.warps && R::left(me.first_warp() + me.lane).unsound != 0);
  if (ranks == 1) {
    for (int row = me.rank; row < group; row += me.warps) {
      if (unsound) to.poison(row, me.lane);
      if (!unsound) merge_row<D>(me.lane, row, me.warps, warps, put);
    }
    return;
  }
  wait_for_cluster();  // all have begun, and have read what was sent of the last item
  for (int row = me.rank; row < group; row += me.warps) {
    const auto owner = static_cast<uint32_t>(row % ranks);
    Sent<D>& sent = R::sent(row, rank, ranks);
    merge_row<D>(me.lane, row, me.warps, warps, [&](int, int dim, float o, float m, float d) {
      store_to_rank(&sent.o[dim], o, owner);
      if (dim == 0) store_to_rank(&sent.m, m, owner), store_to_rank(&sent.d, d, owner);
    });
    if (me.lane == 0) store_to_rank(&sent.unsound, unsound ? 1u : 0u, owner);
  }
  arrive_at_cluster();
  wait_for_cluster();
  for (int row = rank + me.rank * ranks; row < group; row += me.warps * ranks) {
    const bool lost = me.lane < ranks && R::sent(row, me.lane, ranks).unsound != 0;
    if (__any_sync(kWholeWarp, lost))
      to.poison(row, me.lane);
    else
      merge_row<D>(me.lane, row, ranks, blocks, put);
  }
  if (!last) arrive_at_cluster();
}

/// The items of this warp's team, one at least where it is a cluster's. kCapped: logits are.
template <bool kCapped, DType T, int D, int kStages>
__device__ void decode_items(const Call& call, const PagedAttention& s, const Rows& q, Target to,
                             const Member& me, int32_t first) {
  using R = Room<D, kStages>;
  const int lane = me.lane, warp = me.warp;
  const Softmax<kCapped> softmax{call.scale, call.cap};
  if (cluster_size() > 1) arrive_at_cluster();
  Ahead<D, kStages> ahead(call, s, q, first, me);
#pragma unroll 1  // in only one place: two would cost registers
  for (int i = 0; i < kStages - 1; ++i) ahead.ask();
  int slot = 0;  // of the next tile
  for (int32_t number = first; number < call.items; number += call.step) {
    const Item item = item_of(call, s, number, call.seqlens[number / call.kv_heads]);
    FragmentA rows[D / 16];
    load_q<D>(q, item.request, int64_t{item.head} * call.group, call.group, lane, rows);
    WarpState<D> w;
    bool unsound = !item.sound;
    const int tiles = item.tiles(me);
    for (int i = 0; i < tiles; ++i) {
      wait_for_copies<kStages - 2>();
      __syncwarp();
      ahead.ask();
      FragmentC logits[2] = {};
      logits_of_tile<T, D>(rows, R::tile(warp, slot, false), lane, logits);
      weigh(softmax, item.end - item.first_key(me, i), lane, logits, &w);
      add_values<T, D>(logits, R::tile(warp, slot, true), lane, &w);
      unsound = unsound || ahead.is_unsound(slot);
      __syncwarp();
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    leave_state<D, kStages>(w, me, slot == 0 ? kStages - 1 : slot - 1, call.group, unsound);
    me.sync();
    to.row = item.request, to.first_head = int64_t{item.head} * call.group;
    merge_item<D, kStages>(to, me, call.group, number + call.step >= call.items);
    me.sync();
  }
  wait_for_copies<0>();
}

template <DType T, int D, int kStages>
__global__ void __launch_bounds__(kThreads, 1)
    decode(const void* q, const void* k, const void* v, const void* k_scales, const void* v_scales,
           const int32_t* pages, const int32_t* seqlens, const int32_t* kv_indptr,
           const int32_t* /*cu_seqlens_q*/, const float* sinks, const uint8_t* /*mask*/,
           const int64_t* /*mask_indptr*/, void* out, void* lse, const int32_t* /*plan*/,
           CallOf<PagedAttention> of) {
  const PagedAttention& s = of.call;
  begin_launch();
  const Planes planes = planes_of(s.cache, k, v, k_scales, v_scales);
  const LogitScale logits = logit_scale_of(s.params, s.cache.k_scale);
  const uint32_t ranks = cluster_size();
  const Member me;
  const int teams = kWarps / me.warps;
  const Call call{planes.k.data,
                  planes.v.data,
                  strides_of(planes.k),
                  strides_of(planes.v),
                  pages,
                  seqlens,
                  kv_indptr,
                  __ffs(s.cache.page_size) - 1,
                  static_cast<int32_t>(s.cache.num_pages),
                  s.params.num_kv_heads,
                  s.params.num_qo_heads / s.params.num_kv_heads,
                  static_cast<int32_t>(batch_of(s.pages)) * s.params.num_kv_heads,
                  static_cast<int32_t>(gridDim.x / ranks) * teams,
                  logits.scale,
                  logits.cap};
  const Target to{rows_of(out, s.out),
                  rows_of(lse, s.lse.tensor),
                  !s.params.sinks.empty() ? sinks : nullptr,
                  s.options.lse_sink == LseSink::kIncluded,
                  s.cache.v_scale,
                  0,
                  0};
  const auto first = static_cast<int32_t>(blockIdx.x / ranks) * teams + me.team;
  if (logits.cap == 0) decode_items<false, T, D, kStages>(call, s, rows_of(q, s.q), to, me, first);
  if (logits.cap != 0) decode_items<true, T, D, kStages>(call, s, rows_of(q, s.q), to, me, first);
}

template <DType T, int D, int kStages>
bool fits(const KernelLaunch& launch) {
  const PagedAttention s = scalar_of<PagedAttention>(launch).call;
  const AttentionParams& p = s.params;
  const auto is_aligned = [&](size_t arg, uintptr_t to) {
    return reinterpret_cast<uintptr_t>(launch.args.get<void*>(arg)) % to == 0;
  };
  const auto are_rows = [&](const KvPlane& p) {
    return p.dtype == T && p.order == KvOrder::kStrided && have_few_columns(s.cache, p);
  };
  return most_shared_bytes() >= Room<D, kStages>::kBytes && s.cu_seqlens_q.empty() &&
         batch_of(s.pages) > 0 && batch_of(s.pages) <= s.q.shape[0] &&
         batch_of(s.pages) * p.num_kv_heads <= INT32_MAX / 2 && s.max_seqlen_q == 0 &&
         p.head_dim_qk == D && p.head_dim_vo == D && p.num_qo_heads <= kRows * p.num_kv_heads &&
         p.custom_mask.kind == CustomMask::Kind::kNone && s.q.dtype == T &&
         (s.q.stride[0] | s.q.stride[1]) % 2 == 0 && is_aligned(0, 4) && are_rows(s.cache.k) &&
         are_rows(s.cache.v) && std::has_single_bit(static_cast<uint32_t>(s.cache.page_size)) &&
         is_aligned(1, 16) && is_aligned(2, 16);
}

/// As many warps share a request's keys as make the machine ready soonest, in keys that one of them
/// takes after the other; the merge of a team takes as long as some keys, one of blocks as some
/// more.
template <DType T, int D, int kStages>
Geometry geometry(const KernelLaunch& launch) {
  constexpr int64_t kOfWarp = 4, kOfBlocks = 16;
  const PagedAttention s = scalar_of<PagedAttention>(launch).call;
  const int64_t items = batch_of(s.pages) * s.params.num_kv_heads;
  const int64_t pages = s.pages.form == PageTable::Form::kDense
                            ? s.pages.max_pages
                            : static_cast<int64_t>(s.pages.kv_indices.size());
  const int64_t keys = pages * s.cache.page_size;
  Geometry best{dim3(1), dim3(kThreads), Room<D, kStages>::kBytes};
  int64_t least = INT64_MAX;
  const auto consider = [&](unsigned team, unsigned blocks) {
    Geometry g{dim3(1), dim3(32 * team, kWarps / team), Room<D, kStages>::kBytes, blocks};
    const int64_t clusters = most_clusters(reinterpret_cast<const void*>(decode<T, D, kStages>), g);
    if (clusters == 0) return;
    const int64_t teams = clusters * (kWarps / team);
    const int64_t rounds = (items + teams - 1) / teams;
    const int64_t time =
        rounds * (keys / (team * blocks) + kOfWarp * team + (blocks > 1 ? kOfBlocks : 0));
    if (time >= least) return;
    least = time, best = g;
    best.grid = dim3(
        blocks * static_cast<unsigned>(std::min((items * team + kWarps - 1) / kWarps, clusters)));
  };
  for (unsigned team = 1; team <= kWarps; team *= 2) consider(team, 1);
  for (unsigned blocks = 2; blocks <= kMostBlocks; ++blocks) consider(kWarps, blocks);
  return best;
}

template <DType T, int D, int kStages>
CudaKernel kernel() {
  CudaKernel k =
      cuda_kernel("attention_with_kvcache", decode<T, D, kStages>, geometry<T, D, kStages>);
  k.fits = fits<T, D, kStages>;
  k.preference = Room<D, kStages>::kBytes > 160 << 10 ? 5 : 4;  // only Hopper has room for it
  return k;
}

const CudaKernels kKernels{kernel<DType::kBF16, 128, 3>(), kernel<DType::kF16, 128, 3>(),
                           kernel<DType::kBF16, 64, 3>(),  kernel<DType::kF16, 64, 3>(),
                           kernel<DType::kBF16, 128, 2>(), kernel<DType::kF16, 128, 2>()};

}  // namespace
}  // namespace shadowgraph::cuda::decoding
