#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/attend.inl"
// clang-format on
}  // namespace

void attend_avx512(const AttendUnit& unit) { attend<F32Products>(unit); }

}  // namespace shadowgraph
