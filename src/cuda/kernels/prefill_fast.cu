// attention_with_kvcache and attention_varlen for 16-bit queries of any length, by tensor cores. A
// block has 128 queries of one head, 32 a warp; tiles of 64 keys are copied while the last one is
// multiplied. Which queries a block has follows from cu_seqlens_q when it runs.
//
// Arithmetic: cuda_fast_prefill in check/bounds/arithmetics.inc.
#include "cuda/kernels/prefill_call.cuh"

namespace shadowgraph::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kOfWarp = kQueries / kWarps, kKeys = 64;
constexpr int kRowTiles = kOfWarp / 16;  // products of 16 rows that a warp makes

template <int D>
struct Shared {
  static constexpr int kQueryBytes = kQueries * D * 2, kKeyBytes = kKeys * D * 2;
  static constexpr int kBytes = kQueryBytes + 2 * kKeyBytes;
  __device__ static std::byte* q() { return shared_memory(); }
  __device__ static std::byte* k() { return shared_memory() + kQueryBytes; }
  __device__ static std::byte* v() { return shared_memory() + kQueryBytes + kKeyBytes; }
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
__device__ void ask_for_queries(const Rows& q, const PrefillJob& job) {
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
__device__ bool ask_for_keys(const PrefillJob& job, const KvTokens& plane, int32_t first,
                             int32_t end, std::byte* to) {
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
__device__ void cap_and_mask(const PrefillJob& job, int32_t first, bool all_seen, int warp,
                             int lane, FragmentC (&s)[kRowTiles][kKeys / 8]) {
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
    // If a row has seen no key, every weight is exp2(-inf - 0).
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
__device__ bool attend(const PrefillJob& job, KvRange keys, int warp, int lane, Accumulated<D>* w) {
  const KvRange of_all = job.seen_by_all(0, kQueries);
  const float scale = job.factor();
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
    const bool all_seen = first >= of_all.begin && first + kKeys <= of_all.end;
    cap_and_mask<D>(job, first, all_seen, warp, lane, s);
    weigh<D>(scale, s, w);
    add_values<T, D>(s, lane, w);
  }
  return sound;
}

template <DType T, int D>
struct TensorCores {
  static constexpr DType kType = T;
  static constexpr int kDim = D, kThreads = 32 * kWarps, kBlocks = 2, kPreference = 0;
  static constexpr unsigned kBytes = Shared<D>::kBytes;
  static bool is_there() { return true; }

  __device__ static void run(const PrefillJob& job, const Rows& q, const PrefillTarget& to) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    Accumulated<D> w;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) w.m[i] = -kInfinity;
    ask_for_queries<D>(q, job);
    end_copies();
    const KvRange keys = kv_range(job.mask, job.first, job.first + job.queries);
    bool sound = job.sound;
    if (sound && keys.size() > 0) sound = attend<T, D>(job, keys, warp, lane, &w);
    wait_for_copies<0>();
    sound = __syncthreads_or(sound ? 0 : 1) == 0;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      to.put<T, D>(job, kOfWarp * warp + row_of(i, lane), w.m[i], w.d[i], lane, sound,
                   [&](int n, int e) { return w.o[i / 2][n].at[2 * (i % 2) + e]; });
    }
  }
};

const CudaKernels kKernels = prefills<TensorCores>();

}  // namespace
}  // namespace shadowgraph::cuda
