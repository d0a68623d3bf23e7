#include <immintrin.h>

#include "kernels/isa/unit_includes.h"
#include "kernels/linear_unit.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/linear/recur.inl"
// clang-format on
}  // namespace

const LinearIsa kAvx512Linear = {recur_values, recur_keys};

}  // namespace shadowgraph
