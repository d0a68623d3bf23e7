// Attention over chosen keys, compiled for AVX2.
#include <immintrin.h>

#include "kernels/isa/unit_includes.h"
#include "kernels/sparse/sparse_unit.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx2.h"
#include "kernels/dense/math.inl"
#include "kernels/sparse/tile.inl"
// clang-format on
}  // namespace

const SparseIsa kAvx2Sparse = {load_latent, attend_tile, sum_lanes};

}  // namespace shadowgraph
