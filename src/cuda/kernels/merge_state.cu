// merge_state: one warp a row and head, in the arithmetic of kernels/merge_states.cc.
#include <algorithm>

#include "cuda/cuda_kernels.h"
#include "cuda/kernels/values.cuh"

namespace shadowgraph::cuda {
namespace {

constexpr int kWarps = 4;

__global__ void merge_state(const void* v_a, const void* s_a, const void* v_b, const void* s_b,
                            void* out, void* lse, const int32_t* cu_seqlens_q, MergeScalars s) {
  const int64_t heads = s.out.shape[1], item = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  const int64_t row = item / heads, head = item % heads;
  int64_t rows = s.out.shape[0];
  const int32_t used = s.num_offsets_q > 0 ? cu_seqlens_q[s.num_offsets_q - 1] : -1;
  if (used >= 0 && used < rows) rows = used;
  if (row >= rows) return;
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

const CudaKernels kKernels{
    cuda_kernel("merge_state", merge_state,
                [](const KernelLaunch& launch) {
                  const auto s = launch.args.get<MergeScalars>(launch.args.size() - 1);
                  const int64_t items = std::max<int64_t>(1, s.out.shape[0] * s.out.shape[1]);
                  return Geometry{dim3(static_cast<unsigned>((items + kWarps - 1) / kWarps)),
                                  dim3(32, kWarps)};
                }),
};

}  // namespace
}  // namespace shadowgraph::cuda
