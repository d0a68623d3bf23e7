// Attention with the bf16 dot products of AVX-512. All other work goes to the AVX-512 unit.
#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/dense/attend_unit.inl"
#include "kernels/simd/fast_avx512.h"
#include "kernels/dense/dot_bf16.inl"
#include "kernels/isa/rest_of.inl"
// clang-format on

using Rest = RestOf<kAvx512Isa>;

void attend_fast(const AttendUnit& unit) {
  all_bf16(unit) ? attend<DotArithmetic>(unit) : Rest::attend(unit);
}

}  // namespace

const Isa kAvx512Bf16Isa = {"avx512bf16", Rest::attend, attend_fast, Rest::fold,
                            Rest::finish, Rest::merge,  Rest::sum};

}  // namespace shadowgraph
