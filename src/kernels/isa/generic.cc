#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_generic.h"
#include "kernels/attend.inl"
// clang-format on
}  // namespace

const Isa kGenericIsa = {"generic", attend<F32Products>, attend<F32Products>, fold, finish};

}  // namespace shadowgraph
