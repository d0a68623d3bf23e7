// The kernels that make metadata inside a graph: tables of pages or slots, indptrs, gathered
// latents and scaled keys. As in their CPU bodies, an index that leads outside is not followed.
#include <algorithm>

#include "attn/page_table.h"
#include "cuda/cuda_kernels.h"
#include "cuda/kernels/planes.cuh"
#include "launch/ascend_launch.h"
#include "launch/gather_latents.h"
#include "launch/gather_table.h"
#include "launch/scale_keys.h"

namespace shadowgraph::cuda {
namespace {

constexpr int kThreads = 128;

__device__ int64_t thread_item() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t all_threads() { return int64_t{gridDim.x} * blockDim.x; }

__device__ int64_t columns_of(const int32_t* lens, int64_t request, int32_t unit) {
  return pages_for(lens[request] > 0 ? lens[request] : 0, unit);
}

__global__ void gather_table(const int32_t* req_to_token, const int64_t* full_to_swa,
                             const int32_t* req_pool_indices, const int32_t* lens,
                             const int32_t* offsets, int32_t* page_table, CallOf<GatherTable> of) {
  const GatherTable& s = of.call;
  begin_launch();
  const int64_t i = blockIdx.x;
  if (i >= static_cast<int64_t>(s.lens.size())) return;
  const int64_t width = s.req_to_token.shape[1], tokens = s.req_to_token.shape[0] * width;
  const int64_t columns = s.page_table.shape[1];
  for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
    // A row may run into those behind it, which write after it: a column is the last request's that
    // comes as far, and no two threads write it.
    int64_t request = i, column = j;
    while (request >= 0 && column >= columns_of(lens, request, s.unit))
      --request, column += columns;
    if (request < 0) continue;
    const int64_t offset = !s.offsets.empty() ? offsets[request] : 0;
    const int64_t token = req_pool_indices[request] * width + offset + column * s.unit;
    int64_t page = kNoPage;
    if (token >= 0 && token < tokens) {
      const int64_t slot = req_to_token[token];
      if (s.full_to_swa.rank == 0) {
        page = slot / s.unit;
      } else if (slot >= 0 && slot < s.full_to_swa.shape[0]) {
        page = full_to_swa[slot] / s.unit;
      }
    }
    page_table[i * columns + j] = static_cast<int32_t>(page);
  }
}

__global__ void indptr_of_ends(const int32_t* ends, int32_t* indptr, CallOf<IndptrOfEnds> of) {
  begin_launch();
  const auto count = static_cast<int64_t>(of.call.ends.size());
  for (int64_t i = thread_item(); i <= count; i += all_threads())
    indptr[i] = i == 0 ? 0 : ends[i - 1];
}

__device__ bool are_sound(const int32_t* cu_seqlens, int64_t offsets, int64_t rows) {
  if (offsets == 0 || cu_seqlens[0] != 0 || cu_seqlens[offsets - 1] > rows) return false;
  for (int64_t i = 1; i < offsets; ++i) {
    if (cu_seqlens[i] < cu_seqlens[i - 1]) return false;
  }
  return true;
}

__global__ void gather_latents(const void* k, const void* v, const void* k_scales,
                               const void* v_scales, const int64_t* slots,
                               const int32_t* cu_seqlens, void* out, CallOf<GatherLatents> of) {
  const GatherLatents& s = of.call;
  begin_launch();
  const auto offsets = static_cast<int64_t>(s.cu_seqlens.size());
  const auto most = static_cast<int64_t>(s.slots.size());
  if (!are_sound(cu_seqlens, offsets, min(most, s.out.shape[0]))) return;
  const Planes planes = planes_of(s.cache, k, v, k_scales, v_scales);
  const int64_t tokens = cu_seqlens[offsets - 1];
  for (int64_t t = 0; t < tokens; ++t) {
    if (!planes.has_slot(slots[t])) return;
  }
  const Rows to = rows_of(out, s.out);
  for (int64_t t = blockIdx.x; t < tokens; t += gridDim.x) {
    const Slot slot(slots[t], planes.page_size);
    const float scale = planes.k.scales == nullptr
                            ? 1
                            : planes.k.scales[slot.scale_of(planes.k, planes.page_size, 0)];
    for (int32_t d = static_cast<int32_t>(threadIdx.x); d < planes.k.head_dim; d += kThreads) {
      const int64_t at = slot.element_of(planes.k, planes.page_size, 0, d);
      to.store(t, 0, d, load(planes.k.data, planes.k.dtype, at) * scale);
    }
  }
}

__global__ void scale_keys(const void* k, const int32_t* cu_seqlens, const float* factors,
                           void* out, CallOf<ScaleKeys> of) {
  const ScaleKeys& s = of.call;
  begin_launch();
  const auto offsets = static_cast<int64_t>(s.cu_seqlens.size());
  if (!are_sound(cu_seqlens, offsets, min(s.k.shape[0], s.out.shape[0]))) return;
  const Rows from = rows_of(k, s.k), to = rows_of(out, s.out);
  const int64_t t = blockIdx.x;
  int64_t request = 0;
  while (request + 1 < offsets && cu_seqlens[request + 1] <= t) ++request;
  if (request + 1 >= offsets) return;
  for (int64_t i = threadIdx.x; i < s.k.shape[1] * s.k.shape[2]; i += kThreads) {
    const int64_t head = i / s.k.shape[2], d = i % s.k.shape[2];
    to.store(t, head, d, from.load(t, head, d) * factors[request]);
  }
}

Geometry blocks(int64_t count) {
  return {dim3(static_cast<unsigned>(std::max<int64_t>(1, count))), dim3(kThreads)};
}

const CudaKernels kKernels{
    cuda_kernel("gather_table", gather_table,
                [](const KernelLaunch& l) {
                  return blocks(std::ssize(scalar_of<GatherTable>(l).call.lens));
                }),
    cuda_kernel("indptr_of_ends", indptr_of_ends, [](const KernelLaunch&) { return blocks(1); }),
    cuda_kernel("gather_latents", gather_latents,
                [](const KernelLaunch& l) {
                  return blocks(std::ssize(scalar_of<GatherLatents>(l).call.slots));
                }),
    cuda_kernel(
        "scale_keys", scale_keys,
        [](const KernelLaunch& l) { return blocks(scalar_of<ScaleKeys>(l).call.k.shape[0]); }),
};

}  // namespace
}  // namespace shadowgraph::cuda
