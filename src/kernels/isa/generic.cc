#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
#include "kernels/simd/vec_generic.h"

#include "kernels/attend.inl"
}  // namespace

void attend_generic(const AttendUnit& unit) { attend(unit); }

}  // namespace shadowgraph
