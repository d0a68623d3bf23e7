// CUDA's words for a GPU body that is compiled as C++ and run by fibers (gpu_on_cpu.h): included
// before the body's file.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)

namespace shadowgraph::lanes {

struct Place {
  uint3 thread = {}, block = {};
  dim3 block_dim, grid_dim;
};

/// What every lane of the warp gave, once all that live have: value[lane], and who lives.
struct Given {
  const uint32_t* value;
  uint32_t live;
};

/// The place of the fiber that runs.
const Place& here();
int lane();
Given exchange(uint32_t mine);
void wait_for_block();
std::byte* shared_memory();
uint32_t cluster_rank();
uint32_t cluster_size();
void arrive_at_cluster();
void wait_for_cluster();
/// Where another block of the cluster has what this one has at p.
void* of_rank(void* p, uint32_t rank);
template <class T>
void store_to_rank(T* p, T value, uint32_t rank) {
  *static_cast<T*>(of_rank(p, rank)) = value;
}

/// 16-bit rows of four 8 x 8 matrices, and the warp's products, as cuda/kernels/tensor_core.cuh.
void load_matrices(uint32_t (&out)[4], const void* row);
void load_matrices_transposed(uint32_t (&out)[4], const void* row);
void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
              float (*value)(uint16_t));

/// A warpgroup's products, as cuda/kernels/warpgroup.cuh: n columns of c by fragments, matrices as
/// their descriptors say.
uint64_t matrix_at(const void* p, uint32_t leading, uint32_t stride);
void multiply_shared(float* c, int n, uint64_t a, uint64_t b, bool added, float (*value)(uint16_t));
void multiply_rows(float* c, int n, const uint32_t (&a)[4], uint64_t b, float (*value)(uint16_t));

/// Which so many arrivals take on to the next phase.
struct Barrier {
  uint16_t arrivals, arrived;
  uint32_t phase;
};
void begin_barrier(Barrier* b, uint32_t arrivals);
void arrive(Barrier* b);
void wait_for(Barrier* b, uint32_t parity);
void sync_named(int name, int threads);
void arrive_named(int name, int threads);

inline void copy_16_bytes(void* to, const void* from, bool there) {
  if (there) std::memcpy(to, from, 16);
  if (!there) std::memset(to, 0, 16);
}

inline float shuffled(float x, int from) {
  return std::bit_cast<float>(exchange(std::bit_cast<uint32_t>(x)).value[from & 31]);
}

}  // namespace shadowgraph::lanes

#define threadIdx (shadowgraph::lanes::here().thread)
#define blockIdx (shadowgraph::lanes::here().block)
#define blockDim (shadowgraph::lanes::here().block_dim)
#define gridDim (shadowgraph::lanes::here().grid_dim)

using std::isfinite;
using std::isinf;
using std::max;
using std::min;

inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline void __syncwarp(unsigned = 0xffffffffu) { (void)shadowgraph::lanes::exchange(0); }
inline void __syncthreads() { shadowgraph::lanes::wait_for_block(); }
int __syncthreads_or(int x);
inline unsigned __ballot_sync(unsigned, bool x) {
  const shadowgraph::lanes::Given given = shadowgraph::lanes::exchange(x);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i)
    bits |= (given.live >> i & 1) != 0 && given.value[i] != 0 ? 1u << i : 0;
  return bits;
}
inline bool __any_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) != 0; }
inline bool __all_sync(unsigned mask, bool x) { return __ballot_sync(mask, !x) == 0; }
inline float __shfl_sync(unsigned, float x, int from) {
  return shadowgraph::lanes::shuffled(x, from);
}
inline unsigned __shfl_sync(unsigned, unsigned x, int from) {
  return shadowgraph::lanes::exchange(x).value[from & 31];
}
inline long long __shfl_sync(unsigned, long long x, int from) {
  using shadowgraph::lanes::exchange;
  const auto bits = static_cast<uint64_t>(x);
  const uint64_t low = exchange(static_cast<uint32_t>(bits)).value[from & 31];
  const uint64_t high = exchange(static_cast<uint32_t>(bits >> 32)).value[from & 31];
  return static_cast<long long>(high << 32 | low);
}
inline float __shfl_xor_sync(unsigned, float x, int step) {
  return shadowgraph::lanes::shuffled(x, shadowgraph::lanes::lane() ^ step);
}
/// Past the last lane: its own.
inline float __shfl_down_sync(unsigned, float x, int step) {
  const int from = shadowgraph::lanes::lane() + step;
  return shadowgraph::lanes::shuffled(x, from < 32 ? from : shadowgraph::lanes::lane());
}
