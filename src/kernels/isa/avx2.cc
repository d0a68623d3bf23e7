#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx2.h"
#include "kernels/attend.inl"
// clang-format on
}  // namespace

const Isa kAvx2Isa = {"avx2", attend<F32Products>, attend<F32Products>, fold, finish};

}  // namespace shadowgraph
