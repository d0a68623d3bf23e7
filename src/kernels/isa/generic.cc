// The attention kernels, compiled for any processor.
#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_generic.h"
#include "kernels/dense/math.inl"
#include "kernels/dense/formats.inl"
#include "kernels/dense/products.inl"
#include "kernels/dense/strip.inl"
#include "kernels/dense/panels.inl"
#include "kernels/dense/attend.inl"
#include "kernels/dense/rows.inl"
// clang-format on
}  // namespace

const Isa kGenericIsa = {
    "generic", attend<ExactArithmetic>, attend<ExactArithmetic>, fold, finish, merge, sum};

}  // namespace shadowgraph
