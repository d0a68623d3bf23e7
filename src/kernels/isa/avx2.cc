#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
#include "kernels/simd/vec_avx2.h"

#include "kernels/attend.inl"
}  // namespace

void attend_avx2(const AttendUnit& unit) { attend(unit); }

}  // namespace shadowgraph
