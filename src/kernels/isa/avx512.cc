#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/attend.inl"
// clang-format on
}  // namespace

const Isa kAvx512Isa = {"avx512", attend<F32Products>, attend<F32Products>, fold, finish};

}  // namespace shadowgraph
