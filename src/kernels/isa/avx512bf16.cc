#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/attend.inl"
#include "kernels/products_bf16.inl"
// clang-format on
}  // namespace

void attend_avx512bf16(const AttendUnit& unit) {
  const bool all_bf16 =
      unit.q_dtype == DType::kBF16 && unit.k.dtype == DType::kBF16 && unit.v.dtype == DType::kBF16;
  all_bf16 ? attend<Bf16Products>(unit) : attend_avx512(unit);
}

}  // namespace shadowgraph
