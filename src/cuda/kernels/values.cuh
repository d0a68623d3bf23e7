// Elements, weights and logarithms as GPU bodies compute them: the bits that core/float_formats.h
// and attn/lse.h give on a CPU (NaNs aside: a GPU has one).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>

#include "attn/exp2_poly.h"
#include "core/float_formats.h"
#include "launch/launch_args.h"

namespace shadowgraph::cuda {

constexpr double kLn2InDouble = 0.693147180559945309417, kLog2EInDouble = 1.44269504088896340736;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr unsigned kWholeWarp = 0xffffffffu;

/// A launch's dynamic shared memory.
#ifdef __CUDACC__
__device__ inline std::byte* shared_memory() {
  extern __shared__ __align__(1024) std::byte bytes[];
  return bytes;
}
#else
using lanes::shared_memory;  // compiled for a CPU, by a test
#endif

/// What a body does first. A launch may begin before the one before it has ended, if it says so
/// (KernelLaunch::programmatic): from here on memory is as that one leaves it. The launch after
/// this one may begin as well; it waits here.
__device__ inline void begin_launch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

template <DType T>
__device__ float decoded(uint32_t bits) {
  constexpr FloatFormat kFormat = format_of(T);
  return decode_float(bits, kFormat);
}
template <DType T>
__device__ std::byte encoded(float value) {
  constexpr FloatFormat kFormat = format_of(T);
  constexpr float kLargest = T == DType::kE4M3 ? 448.f : 57344.f;
  if (value > kLargest) value = kLargest;
  if (value < -kLargest) value = -kLargest;
  return static_cast<std::byte>(encode_float(value, kFormat));
}

/// load_float, of aligned elements.
__device__ inline float load(const void* data, DType t, int64_t i) {
  switch (t) {
    case DType::kF32: return static_cast<const float*>(data)[i];
    case DType::kF16: return __half2float(static_cast<const __half*>(data)[i]);
    case DType::kBF16: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::kE4M3: return decoded<DType::kE4M3>(static_cast<const uint8_t*>(data)[i]);
    case DType::kE5M2: return decoded<DType::kE5M2>(static_cast<const uint8_t*>(data)[i]);
    default: return static_cast<const int8_t*>(data)[i];
  }
}

/// store_float, of aligned elements.
__device__ inline void store(void* data, DType t, int64_t i, float value) {
  switch (t) {
    case DType::kF32: static_cast<float*>(data)[i] = value; return;
    case DType::kF16: static_cast<__half*>(data)[i] = __float2half_rn(value); return;
    case DType::kBF16: static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value); return;
    case DType::kE4M3: static_cast<std::byte*>(data)[i] = encoded<DType::kE4M3>(value); return;
    case DType::kE5M2: static_cast<std::byte*>(data)[i] = encoded<DType::kE5M2>(value); return;
    default: static_cast<int8_t*>(data)[i] = encode_i8(value);
  }
}

/// exp2_portable.
__device__ inline float exp2_of(float x) {
  constexpr float kPoly[kExp2Terms] = {kExp2Poly[0], kExp2Poly[1], kExp2Poly[2], kExp2Poly[3],
                                       kExp2Poly[4], kExp2Poly[5], kExp2Poly[6]};
  if (x < kExp2Smallest) return 0;
  const float shifted = x + kRoundToInt;
  const float f = x - (shifted - kRoundToInt);
  float p = kPoly[0];
#pragma unroll
  for (int i = 1; i < kExp2Terms; ++i) p = fmaf(p, f, kPoly[i]);
  return p * __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
}

/// tanh as the CPU units compute it.
__device__ inline float tanh_of(float x) {
  const float t = exp2_of(fabsf(x) * -2.885390081777927f);
  return copysignf((1 - t) / (1 + t), x);
}

/// log_portable.
__device__ inline double log_of(float x) {
  int exponent;
  double m = frexp(static_cast<double>(x), &exponent);
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  constexpr double kTerms[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                               1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  double sum = 0;
#pragma unroll
  for (const double term : kTerms) sum = (sum + term) * t2;
  return 2 * t * (1 + sum) + exponent * kLn2InDouble;
}

/// A state as attn/lse.h has it.
struct State {
  float m = -kInfinity, d = 0;
  __device__ bool has_mass() const { return m != -kInfinity; }
};
__device__ inline State state_of_lse(float lse) { return isinf(lse) ? State{} : State{lse, 1}; }
/// merge() of two, to_base_2: what a difference of their maxima is multiplied with.
__device__ inline State merged(const State (&parts)[2], float to_base_2, float (&weights)[2]) {
  State all;
  for (const State& part : parts) {
    if (!(part.m <= all.m) && all.m == all.m) all.m = part.m;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    weights[i] = 0;
    if (!parts[i].has_mass()) continue;
    weights[i] = exp2_of((parts[i].m - all.m) * to_base_2);
    all.d += weights[i] * parts[i].d;
  }
  return all;
}
/// lse_of<kNatural>; factor: of m.
__device__ inline float natural_lse(const State& s, double factor) {
  if (!s.has_mass()) return -kInfinity;
  return static_cast<float>(s.m * factor + log_of(s.d));
}

/// A view [rows, heads] or [rows, heads, dim] of a launch, the last axis of this one contiguous.
struct Rows {
  std::byte* data;
  DType dtype;
  int rank;
  int64_t dim, row_stride, head_stride;

  __device__ bool defined() const { return rank > 0; }
  __device__ int64_t offset(int64_t row, int64_t head) const {
    return row * row_stride + head * head_stride;
  }
  __device__ float load(int64_t row, int64_t head, int64_t d) const {
    return cuda::load(data, dtype, offset(row, head) + d);
  }
  __device__ void store(int64_t row, int64_t head, int64_t d, float value) const {
    cuda::store(data, dtype, offset(row, head) + d, value);
  }
  /// By so many lanes: 0xff, as poison() of a head.
  __device__ void poison(int64_t row, int64_t head, int lane, int lanes = 32) const {
    if (!defined()) return;
    const auto size = static_cast<int64_t>(size_of(dtype));
    const int64_t bytes = (rank == 3 ? dim : 1) * size;
    for (int64_t i = lane; i < bytes; i += lanes)
      data[offset(row, head) * size + i] = std::byte{0xff};
  }
};
template <class Byte>
__device__ Rows rows_of(const void* data, const BasicTensorView<Byte>& t) {
  return {static_cast<std::byte*>(const_cast<void*>(data)),
          t.dtype,
          t.rank,
          t.shape[2],
          t.stride[0],
          t.stride[1]};
}

}  // namespace shadowgraph::cuda
