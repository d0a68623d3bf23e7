// The bf16 dot product's peak: 16 lanes of two products, added to one f32 sum each.
#include <immintrin.h>

#include "bench/units/unit.h"

namespace shadowgraph::bench {
namespace {

template <int kRegisters>
float dot(int64_t iterations) {
  // bf16 1.0 in every half, through memory so that the compiler does not know it.
  int32_t ones = 0x3f803f80;
  __asm__ volatile("" : "+m"(ones));
  const auto a = (__m512bh)_mm512_set1_epi32(ones), b = a;
  __m512 sums[kRegisters];
  for (int i = 0; i < kRegisters; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 32
    for (int i = 0; i < kRegisters; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  __m512 total = _mm512_setzero_ps();
  for (int i = 0; i < kRegisters; ++i) total = _mm512_add_ps(total, sums[i]);
  return _mm512_cvtss_f32(total);
}

template <int kRegisters>
constexpr FlopVariant variant(const char* name) {
  return {name, 4.0 * kRegisters * 16, dot<kRegisters>};
}

}  // namespace

const FlopVariant kBf16Variants[] = {variant<8>("zmm, 8 sums"), variant<12>("zmm, 12 sums"),
                                     variant<16>("zmm, 16 sums"), variant<24>("zmm, 24 sums")};
const int kNumBf16Variants = 4;

}  // namespace shadowgraph::bench
