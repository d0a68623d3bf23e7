// merge_state: one warp a row and head, in the arithmetic of kernels/dense/merge_states.cc.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "cuda/cuda_kernels.h"
#include "cuda/kernels/values.cuh"
#include "launch/merge_launch.h"

namespace shadowgraph::cuda {
namespace {

constexpr int kWarps = 4;

/// A graph may be bound for more.
__device__ int64_t rows_used(const int32_t* cu_seqlens_q, const MergeStateCall& s) {
  const int64_t rows = s.out.shape[0];
  const int32_t used = !s.cu_seqlens_q.empty() ? cu_seqlens_q[s.cu_seqlens_q.size() - 1] : -1;
  return used >= 0 && used < rows ? used : rows;
}

__global__ void merge_state(const void* v_a, const void* s_a, const void* v_b, const void* s_b,
                            void* out, void* lse, const int32_t* cu_seqlens_q,
                            CallOf<MergeStateCall> of) {
  const MergeStateCall& s = of.call;
  begin_launch();
  const int64_t heads = s.out.shape[1], item = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  const int64_t row = item / heads, head = item % heads;
  if (row >= rows_used(cu_seqlens_q, s)) return;
  const Rows v[2] = {rows_of(v_a, s.v_a), rows_of(v_b, s.v_b)};
  const Rows lses[2] = {rows_of(s_a, s.s_a), rows_of(s_b, s.s_b)};
  State parts[2];
  for (int i = 0; i < 2; ++i) parts[i] = state_of_lse(lses[i].load(row, head, 0));
  float weights[2];
  const State all = merged(parts, static_cast<float>(kLog2EInDouble), weights);
  const Rows to = rows_of(out, s.out), to_lse = rows_of(lse, s.lse.tensor);
  for (int64_t d = threadIdx.x; d < s.out.shape[2]; d += 32) {
    float sum = 0;
    for (int i = 0; i < 2; ++i) {
      if (parts[i].has_mass()) sum += weights[i] * v[i].load(row, head, d);
    }
    to.store(row, head, d, all.has_mass() ? sum / all.d : 0);
  }
  if (to_lse.defined() && threadIdx.x == 0) to_lse.store(row, head, 0, natural_lse(all, 1));
}

/// The same bits, eight elements a thread: 16-bit values, f32 LSEs, all of them contiguous.
constexpr int kEight = 8, kThreads = 256;

template <DType T>
using Element = std::conditional_t<T == DType::kBF16, __nv_bfloat16, __half>;

/// Two states, and what becomes of them.
struct Merge {
  State parts[2], all;
  float weights[2];

  __device__ Merge(float lse_a, float lse_b) : parts{state_of_lse(lse_a), state_of_lse(lse_b)} {
    all = merged(parts, static_cast<float>(kLog2EInDouble), weights);
  }
};

template <DType T>
__global__ void __launch_bounds__(kThreads)
    merge_eights(const uint4* v_a, const float* s_a, const uint4* v_b, const float* s_b, uint4* out,
                 float* lse, const int32_t* cu_seqlens_q, CallOf<MergeStateCall> of) {
  const MergeStateCall& s = of.call;
  begin_launch();
  const auto eights = static_cast<uint32_t>(s.out.shape[2]) / kEight;  // a power of two
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  const auto rows = static_cast<uint32_t>(rows_used(cu_seqlens_q, s) * s.out.shape[1]);
  const uint32_t row = item >> (__ffs(static_cast<int>(eights)) - 1);  // and head
  // One thread a row and head: a logarithm in double takes a while.
  if (lse != nullptr && item < rows) lse[item] = natural_lse(Merge(s_a[item], s_b[item]).all, 1);
  if (row >= rows) return;
  const uint4 words[2] = {v_a[item], v_b[item]};
  const Merge m(s_a[row], s_b[row]);
  Element<T> values[2][kEight], bits[kEight];
  memcpy(values, words, sizeof values);
#pragma unroll
  for (int e = 0; e < kEight; ++e) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (m.parts[i].has_mass()) sum += m.weights[i] * load(values[i], T, e);
    store(bits, T, e, m.all.has_mass() ? sum / m.all.d : 0);
  }
  uint4 merged_words;
  memcpy(&merged_words, bits, sizeof merged_words);
  out[item] = merged_words;
}

template <DType T>
bool are_eights(const KernelLaunch& launch) {
  const MergeStateCall s = scalar_of<MergeStateCall>(launch).call;
  const int64_t heads = s.out.shape[1], dim = s.out.shape[2];
  const auto values = [&](const ConstTensorView& t, size_t arg) {
    return t.dtype == T && t.stride[0] == heads * dim && t.stride[1] == dim &&
           reinterpret_cast<uintptr_t>(launch.args.get<void*>(arg)) % 16 == 0;
  };
  const auto lses = [&](const ConstTensorView& t) {
    return t.dtype == DType::kF32 && t.stride[0] == heads && t.stride[1] == 1;
  };
  return dim >= kEight && std::has_single_bit(static_cast<uint64_t>(dim)) &&
         s.out.shape[0] * heads * dim / kEight <= INT32_MAX && values(s.v_a, 0) &&
         values(s.v_b, 2) && values(s.out, 4) && lses(s.s_a) && lses(s.s_b) &&
         (!s.lse.defined() || lses(s.lse.tensor));
}

template <DType T>
CudaKernel fast_kernel() {
  CudaKernel k = cuda_kernel("merge_state", merge_eights<T>, [](const KernelLaunch& launch) {
    const MergeStateCall s = scalar_of<MergeStateCall>(launch).call;
    const int64_t items = s.out.shape[0] * s.out.shape[1] * (s.out.shape[2] / kEight);
    const int64_t blocks = std::max<int64_t>(1, (items + kThreads - 1) / kThreads);
    return Geometry{dim3(static_cast<unsigned>(blocks)), dim3(kThreads)};
  });
  k.fits = are_eights<T>;
  return k;
}

const CudaKernels kKernels{
    cuda_kernel("merge_state", merge_state,
                [](const KernelLaunch& launch) {
                  const MergeStateCall s = scalar_of<MergeStateCall>(launch).call;
                  const int64_t items = std::max<int64_t>(1, s.out.shape[0] * s.out.shape[1]);
                  return Geometry{dim3(static_cast<unsigned>((items + kWarps - 1) / kWarps)),
                                  dim3(32, kWarps)};
                }),
    fast_kernel<DType::kBF16>(),
    fast_kernel<DType::kF16>(),
};

}  // namespace
}  // namespace shadowgraph::cuda
