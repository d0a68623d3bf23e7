#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"
#include "kernels/linear_unit.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_generic.h"
#include "kernels/linear/recur.inl"
// clang-format on
}  // namespace

const LinearIsa kGenericLinear = {recur_values, recur_keys};

}  // namespace shadowgraph
