// Scales of e4m3 codes. Tested by tests/kernels/act_quant_test.cc and pack_latents_test.cc.
#pragma once

#include <cmath>

namespace shadowgraph {

inline constexpr float kLargestE4M3 = 448;

/// The least e with amax <= 448 2^e: of a power of two for a scale. amax is above 0, and a number.
/// Exact: a quotient that is no power of two is farther from one than double rounds.
inline int e4m3_exponent(float amax) {
  int exponent = 0;
  const double half = std::frexp(static_cast<double>(amax) / kLargestE4M3, &exponent);
  return half == 0.5 ? exponent - 1 : exponent;
}

}  // namespace shadowgraph
