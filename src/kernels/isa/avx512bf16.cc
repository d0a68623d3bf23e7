// The attention kernels, compiled for AVX-512 with bf16 dot products.
#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/attend/math.inl"
#include "kernels/attend/formats.inl"
#include "kernels/attend/products.inl"
#include "kernels/attend/strip.inl"
#include "kernels/attend/panels.inl"
#include "kernels/attend/attend.inl"
#include "kernels/attend/rows.inl"
#include "kernels/attend/dot_bf16.inl"
// clang-format on

void attend_fast(const AttendUnit& unit) {
  const bool all_bf16 =
      unit.q_dtype == DType::kBF16 && unit.k.dtype == DType::kBF16 && unit.v.dtype == DType::kBF16;
  all_bf16 ? attend<DotArithmetic>(unit) : kAvx512Isa.attend(unit);
}

}  // namespace

const Isa kAvx512Bf16Isa = {"avx512bf16", attend<ExactArithmetic>, attend_fast, fold, finish, sum};

}  // namespace shadowgraph
