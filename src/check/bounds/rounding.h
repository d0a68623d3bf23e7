// Unit roundoffs of element types, and what many roundings make: the words of every derived bound.
#pragma once

#include <limits>

#include "shadowgraph/dtype.h"

namespace shadowgraph {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// f32 results below may be flushed to 0.
inline constexpr double kFlushed = 0x1p-126;

/// Unit roundoff, half the smallest subnormal, largest finite; of f64, as nothing is rounded to it
/// by a kernel: {0, 0, infinity}.
struct Rounding {
  double u = 0, half_subnormal = 0, largest = kInfinity;
};
constexpr Rounding rounding_to(DType t) {
  if (t == DType::kF16) return {0x1p-11, 0x1p-25, 65504};
  if (t == DType::kBF16) return {0x1p-8, 0x1p-134, 0x1.fep127};
  if (t == DType::kF32) return {0x1p-24, 0x1p-150, 0x1.fffffep127};
  if (t == DType::kE4M3) return {0x1p-4, 0x1p-10, 448};
  if (t == DType::kE5M2) return {0x1p-3, 0x1p-17, 57344};
  return {};
}

/// g(m, u) = m u / (1 - m u): the relative error of m roundings. Higham, Accuracy and Stability of
/// Numerical Algorithms, ch. 3.
constexpr double gamma_of(double m, double u) {
  return m * u < 1 ? m * u / (1 - m * u) : kInfinity;
}

}  // namespace shadowgraph
