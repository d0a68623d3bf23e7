// The attention kernels, compiled for any processor.
#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_generic.h"
#include "kernels/dense/attend_unit.inl"
#include "kernels/dense/rows.inl"
// clang-format on
}  // namespace

const Isa kGenericIsa = {
    "generic", attend<ExactArithmetic>, attend<ExactArithmetic>, fold, finish, merge, sum};

}  // namespace shadowgraph
