// The recurrent kernels, compiled for AVX2.
#include <immintrin.h>

#include "kernels/isa/unit_includes.h"
#include "kernels/recurrent/linear_unit.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx2.h"
#include "kernels/dense/math.inl"
#include "kernels/dense/formats.inl"
#include "kernels/dense/products.inl"
#include "kernels/recurrent/ready.inl"
#include "kernels/recurrent/recur.inl"
#include "kernels/recurrent/chunk.inl"
// clang-format on
}  // namespace

const LinearIsa kAvx2Linear = {recur_values,     recur_keys, vectors,    token_dots, token,
                               load_rows,        save_rows,  finish_out, load_state, save_state,
                               values_to_panels, dots,       triangles,  chunk,      finish_chunk};

}  // namespace shadowgraph
