// The recurrent kernels, compiled for any processor.
#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"
#include "kernels/linear_unit.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_generic.h"
#include "kernels/attend/math.inl"
#include "kernels/attend/formats.inl"
#include "kernels/attend/products.inl"
#include "kernels/linear/ready.inl"
#include "kernels/linear/recur.inl"
#include "kernels/linear/chunk.inl"
// clang-format on
}  // namespace

const LinearIsa kGenericLinear = {recur_values, recur_keys, vectors,          token_dots,
                                  token,        load_rows,  save_rows,        finish_out,
                                  load_state,   save_state, values_to_panels, dots,
                                  triangles,    chunk,      finish_chunk};

}  // namespace shadowgraph
