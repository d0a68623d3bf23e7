// The attention kernels, compiled for any processor.
#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_generic.h"
#include "kernels/attend/math.inl"
#include "kernels/attend/formats.inl"
#include "kernels/attend/products.inl"
#include "kernels/attend/strip.inl"
#include "kernels/attend/panels.inl"
#include "kernels/attend/attend.inl"
#include "kernels/attend/rows.inl"
// clang-format on
}  // namespace

const Isa kGenericIsa = {"generic", attend<ExactArithmetic>, attend<ExactArithmetic>, fold, finish,
                         sum};

}  // namespace shadowgraph
