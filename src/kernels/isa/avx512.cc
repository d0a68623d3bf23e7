#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
#include "kernels/simd/vec_avx512.h"

#include "kernels/attend.inl"
}  // namespace

void attend_avx512(const AttendUnit& unit) { attend(unit); }

}  // namespace shadowgraph
