// merge_state: one warp a row and head, in the arithmetic of kernels/merge_states.cc.
#include <algorithm>
#include <type_traits>

#include "cuda/cuda_kernels.h"
#include "cuda/kernels/values.cuh"

namespace shadowgraph::cuda {
namespace {

constexpr int kWarps = 4;

/// A graph may be bound for more.
__device__ int64_t rows_used(const int32_t* cu_seqlens_q, const MergeScalars& s) {
  const int64_t rows = s.out.shape[0];
  const int32_t used = s.num_offsets_q > 0 ? cu_seqlens_q[s.num_offsets_q - 1] : -1;
  return used >= 0 && used < rows ? used : rows;
}

__global__ void merge_state(const void* v_a, const void* s_a, const void* v_b, const void* s_b,
                            void* out, void* lse, const int32_t* cu_seqlens_q, MergeScalars s) {
  const int64_t heads = s.out.shape[1], item = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  const int64_t row = item / heads, head = item % heads;
  if (row >= rows_used(cu_seqlens_q, s)) return;
  const Rows v[2] = {rows_of(v_a, s.v_a), rows_of(v_b, s.v_b)};
  const Rows lses[2] = {rows_of(s_a, s.s_a), rows_of(s_b, s.s_b)};
  State parts[2];
  for (int i = 0; i < 2; ++i) parts[i] = state_of_lse(lses[i].load(row, head, 0));
  float weights[2];
  const State all = merged(parts, static_cast<float>(kLog2EInDouble), weights);
  const Rows to = rows_of(out, s.out), to_lse = rows_of(lse, s.lse);
  for (int64_t d = threadIdx.x; d < s.out.shape[2]; d += 32) {
    float sum = 0;
    for (int i = 0; i < 2; ++i) {
      if (parts[i].has_mass()) sum += weights[i] * v[i].load(row, head, d);
    }
    to.store(row, head, d, all.has_mass() ? sum / all.d : 0);
  }
  if (to_lse.defined() && threadIdx.x == 0) to_lse.store(row, head, 0, natural_lse(all, 1));
}

/// The same bits, eight elements a thread: 16-bit values whose rows are whole groups of eight.
constexpr int kEight = 8, kThreads = 256;

template <DType T>
using Element = std::conditional_t<T == DType::kBF16, __nv_bfloat16, __half>;

template <DType T>
__device__ void load_eight(const Rows& v, int64_t at, float (&x)[kEight]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(v.data + 2 * at);
  Element<T> elements[kEight];
  memcpy(elements, &bits, sizeof elements);
#pragma unroll
  for (int i = 0; i < kEight; ++i) x[i] = load(elements, T, i);
}

template <DType T>
__global__ void __launch_bounds__(kThreads)
    merge_eights(const void* v_a, const void* s_a, const void* v_b, const void* s_b, void* out,
                 void* lse, const int32_t* cu_seqlens_q, MergeScalars s) {
  const int64_t heads = s.out.shape[1], eights = s.out.shape[2] / kEight;
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = item / (heads * eights), head = item / eights % heads;
  const int64_t dim = item % eights * kEight;
  if (row >= rows_used(cu_seqlens_q, s)) return;
  const Rows v[2] = {rows_of(v_a, s.v_a), rows_of(v_b, s.v_b)};
  const Rows lses[2] = {rows_of(s_a, s.s_a), rows_of(s_b, s.s_b)};
  State parts[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) parts[i] = state_of_lse(lses[i].load(row, head, 0));
  float weights[2], sum[kEight] = {};
  const State all = merged(parts, static_cast<float>(kLog2EInDouble), weights);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!parts[i].has_mass()) continue;
    float x[kEight];
    load_eight<T>(v[i], v[i].offset(row, head) + dim, x);
#pragma unroll
    for (int e = 0; e < kEight; ++e) sum[e] += weights[i] * x[e];
  }
  const Rows to = rows_of(out, s.out), to_lse = rows_of(lse, s.lse);
  Element<T> bits[kEight];
#pragma unroll
  for (int e = 0; e < kEight; ++e) store(bits, T, e, all.has_mass() ? sum[e] / all.d : 0);
  uint4 words;
  memcpy(&words, bits, sizeof words);
  *reinterpret_cast<uint4*>(to.data + 2 * (to.offset(row, head) + dim)) = words;
  if (to_lse.defined() && dim == 0) to_lse.store(row, head, 0, natural_lse(all, 1));
}

MergeScalars scalars_of(const KernelLaunch& launch) {
  return launch.args.get<MergeScalars>(launch.args.size() - 1);
}

template <DType T>
bool are_eights(const KernelLaunch& launch) {
  const MergeScalars s = scalars_of(launch);
  const auto whole = [&](const RowsScalars& t, size_t arg) {
    return t.dtype == T && t.stride[0] % kEight == 0 && t.stride[1] % kEight == 0 &&
           reinterpret_cast<uintptr_t>(launch.args.get<void*>(arg)) % 16 == 0;
  };
  return s.out.shape[2] % kEight == 0 && whole(s.v_a, 0) && whole(s.v_b, 2) && whole(s.out, 4);
}

template <DType T>
CudaKernel fast_kernel() {
  CudaKernel k = cuda_kernel("merge_state", merge_eights<T>, [](const KernelLaunch& launch) {
    const MergeScalars s = scalars_of(launch);
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
                  const MergeScalars s = scalars_of(launch);
                  const int64_t items = std::max<int64_t>(1, s.out.shape[0] * s.out.shape[1]);
                  return Geometry{dim3(static_cast<unsigned>((items + kWarps - 1) / kWarps)),
                                  dim3(32, kWarps)};
                }),
    fast_kernel<DType::kBF16>(),
    fast_kernel<DType::kF16>(),
};

}  // namespace
}  // namespace shadowgraph::cuda
