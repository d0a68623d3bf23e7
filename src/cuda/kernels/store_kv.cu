// store_kv and copy_slots: one warp a token and head. A token whose slot is not in the pool is left
// out (the CPU's body refuses the whole call).
#include <algorithm>

#include "cuda/cuda_kernels.h"
#include "cuda/kernels/planes.cuh"
#include "launch/copy_slots_launch.h"
#include "launch/store_launch.h"

namespace shadowgraph::cuda {
namespace {

constexpr int kWarps = 4;

__device__ int64_t warp_item() { return int64_t{blockIdx.x} * kWarps + threadIdx.y; }

Geometry geometry_of(int64_t items) {
  return {dim3(static_cast<unsigned>(std::max<int64_t>(1, (items + kWarps - 1) / kWarps))),
          dim3(32, kWarps)};
}

/// The scale of an i8 token and head.
__device__ float scale_of_token(const Rows& from, int64_t token, int64_t head, int32_t dims,
                                float scale, int lane) {
  float largest = 0;
  bool finite = true;
  for (int32_t d = lane; d < dims; d += 32) {
    const float x = fabsf(from.load(token, head, d) / scale);
    finite = finite && isfinite(x);
    largest = fmaxf(largest, x);
  }
  if (!__all_sync(kWholeWarp, finite)) return std::numeric_limits<float>::quiet_NaN();
  for (int step = 16; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, step));
  return largest / 127;
}

/// Bits of one element, whatever it is.
__device__ void copy_element(void* to, int64_t at, const void* from, int64_t source, size_t size) {
  switch (size) {
    case 1: static_cast<uint8_t*>(to)[at] = static_cast<const uint8_t*>(from)[source]; return;
    case 2: static_cast<uint16_t*>(to)[at] = static_cast<const uint16_t*>(from)[source]; return;
    default: static_cast<uint32_t*>(to)[at] = static_cast<const uint32_t*>(from)[source];
  }
}

__device__ void store_token(const Rows& from, int64_t token, int64_t head, const KvTokens& plane,
                            const Slot& slot, int32_t page_size, float scale, int lane) {
  auto* const to = const_cast<std::byte*>(plane.data);
  const bool as_is = from.dtype == plane.dtype && scale == 1;
  float own = 1;
  if (plane.scales != nullptr) {
    own = scale_of_token(from, token, head, plane.head_dim, scale, lane);
    if (lane == 0) const_cast<float*>(plane.scales)[slot.scale_of(plane, page_size, head)] = own;
  }
  for (int32_t d = lane; d < plane.head_dim; d += 32) {
    const int64_t at = slot.element_of(plane, page_size, head, d);
    if (as_is) {
      copy_element(to, at, from.data, from.offset(token, head) + d, size_of(plane.dtype));
    } else {
      const float x = from.load(token, head, d) / scale;
      store(to, plane.dtype, at, own > 0 ? x / own : 0);
    }
  }
}

__global__ void store_kv(const void* k, const void* v, const int64_t* slots, const void* k_cache,
                         const void* v_cache, const void* k_scales, const void* v_scales,
                         CallOf<StoreKv> of) {
  const StoreKv& s = of.call;
  begin_launch();
  const Planes planes = planes_of(s.cache, k_cache, v_cache, k_scales, v_scales);
  const int64_t token = warp_item() / planes.num_kv_heads, head = warp_item() % planes.num_kv_heads;
  if (token >= static_cast<int64_t>(s.out_cache_loc.size())) return;
  const int64_t slot = slots[token];
  if (slot < s.first_slot || !planes.has_slot(slot)) return;
  const int lane = static_cast<int>(threadIdx.x);
  const Rows from_k = rows_of(k, s.k), from_v = rows_of(v, s.v);
  const bool beginning = v == k && s.v.dtype == s.k.dtype && s.v.stride[0] == s.k.stride[0] &&
                         s.v.stride[1] == s.k.stride[1];
  const bool latent = planes.is_latent() && (!from_v.defined() || beginning);
  const Slot at(slot, planes.page_size);
  store_token(from_k, token, head, planes.k, at, planes.page_size, planes.k_scale, lane);
  if (!latent)
    store_token(from_v, token, head, planes.v, at, planes.page_size, planes.v_scale, lane);
}

__device__ void copy_plane(const KvTokens& p, const Slot& from, const Slot& to, int32_t page_size,
                           int64_t head, int lane) {
  auto* const data = const_cast<std::byte*>(p.data);
  for (int32_t d = lane; d < p.head_dim; d += 32)
    copy_element(data, to.element_of(p, page_size, head, d), data,
                 from.element_of(p, page_size, head, d), size_of(p.dtype));
  if (p.scales == nullptr || lane != 0) return;
  auto* const scales = const_cast<float*>(p.scales);
  scales[to.scale_of(p, page_size, head)] = scales[from.scale_of(p, page_size, head)];
}

__global__ void copy_slots(const int64_t* sources, const int64_t* targets, const void* k,
                           const void* v, const void* k_scales, const void* v_scales,
                           CallOf<CopySlots> of) {
  const CopySlots& s = of.call;
  begin_launch();
  const Planes planes = planes_of(s.cache, k, v, k_scales, v_scales);
  const int64_t pair = warp_item() / planes.num_kv_heads, head = warp_item() % planes.num_kv_heads;
  if (pair >= static_cast<int64_t>(s.target_slots.size()) ||
      s.source_slots.size() != s.target_slots.size())
    return;
  const int64_t from = sources[pair], to = targets[pair];
  if (to < planes.page_size || !planes.has_slot(to) || !planes.has_slot(from)) return;
  const int lane = static_cast<int>(threadIdx.x);
  const Slot source(from, planes.page_size), target(to, planes.page_size);
  copy_plane(planes.k, source, target, planes.page_size, head, lane);
  if (!planes.is_latent()) copy_plane(planes.v, source, target, planes.page_size, head, lane);
}

const CudaKernels kKernels{
    cuda_kernel("store_kv", store_kv,
                [](const KernelLaunch& launch) {
                  const StoreKv s = scalar_of<StoreKv>(launch).call;
                  return geometry_of(std::ssize(s.out_cache_loc) * s.cache.num_kv_heads);
                }),
    cuda_kernel("copy_slots", copy_slots,
                [](const KernelLaunch& launch) {
                  const CopySlots s = scalar_of<CopySlots>(launch).call;
                  return geometry_of(std::ssize(s.target_slots) * s.cache.num_kv_heads);
                }),
};

}  // namespace
}  // namespace shadowgraph::cuda
