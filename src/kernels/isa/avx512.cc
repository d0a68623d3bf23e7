// The attention kernels, compiled for AVX-512.
#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/dense/attend_unit.inl"
#include "kernels/dense/rows.inl"
// clang-format on
}  // namespace

const Isa kAvx512Isa = {
    "avx512", attend<ExactArithmetic>, attend<ExactArithmetic>, fold, finish, merge, sum};

}  // namespace shadowgraph
