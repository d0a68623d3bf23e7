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

void attend_generic(const AttendUnit& unit) { attend<F32Products>(unit); }

}  // namespace shadowgraph
