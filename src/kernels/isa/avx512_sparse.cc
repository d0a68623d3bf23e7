// Attention over chosen keys, compiled for AVX-512.
#include <immintrin.h>

#include "kernels/isa/unit_includes.h"
#include "kernels/sparse/sparse_unit.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/dense/math.inl"
#include "kernels/sparse/tile.inl"
// clang-format on
}  // namespace

const SparseIsa kAvx512Sparse = {load_latent, attend_tile, sum_lanes};

}  // namespace shadowgraph
