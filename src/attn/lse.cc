#include "attn/lse.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attn/exp2_poly.h"

namespace shadowgraph {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

float exp2_portable(float x) {
  if (x < kExp2Smallest) return 0;
  const float shifted = x + kRoundToInt;
  const float f = x - (shifted - kRoundToInt);
  float p = kExp2Poly[0];
  for (int i = 1; i < kExp2Terms; ++i) p = std::fma(p, f, kExp2Poly[i]);
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u;
  return p * std::bit_cast<float>(power);
}

double log_portable(float x) {
  int exponent;
  double m = std::frexp(static_cast<double>(x), &exponent);  // [0.5, 1)
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  // log m = 2 atanh t, |t| < 0.172: terms up to t^21.
  const double t = (m - 1) / (m + 1);
  const double t2 = t * t;
  constexpr double kTerms[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                               1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  double sum = 0;
  for (const double term : kTerms) sum = (sum + term) * t2;
  return 2 * t * (1 + sum) + exponent * kLn2;
}

template <LseBase Base>
SoftmaxState<Base> SoftmaxState<Base>::from_lse(float lse) {
  if (std::isinf(lse)) return {};
  return {lse, 1};
}

template <LseBase Base>
SoftmaxState<Base> merge(std::span<const SoftmaxState<Base>> parts, std::span<float> weights) {
  constexpr float kToBase2 = Base == LseBase::kLog2 ? 1.f : static_cast<float>(kLog2E);
  SoftmaxState<Base> all;
  for (const auto& part : parts) {
    // Also takes a NaN, and keeps it: it must not vanish.
    if (!(part.m <= all.m) && all.m == all.m) all.m = part.m;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    weights[i] = 0;
    if (!parts[i].has_mass()) continue;
    weights[i] = exp2_portable((parts[i].m - all.m) * kToBase2);
    all.d += weights[i] * parts[i].d;
  }
  return all;
}

template <LseBase To, LseBase From>
float lse_of(const SoftmaxState<From>& state) {
  if (!state.has_mass()) return -kInfinity;
  constexpr double kFactor = To == From ? 1 : To == LseBase::kNatural ? kLn2 : kLog2E;
  const double log_d = log_portable(state.d) * (To == LseBase::kNatural ? 1 : kLog2E);
  return static_cast<float>(state.m * kFactor + log_d);
}

template struct SoftmaxState<LseBase::kNatural>;
template struct SoftmaxState<LseBase::kLog2>;
template SoftmaxState<LseBase::kNatural> merge(std::span<const SoftmaxState<LseBase::kNatural>>,
                                               std::span<float>);
template SoftmaxState<LseBase::kLog2> merge(std::span<const SoftmaxState<LseBase::kLog2>>,
                                            std::span<float>);
template float lse_of<LseBase::kNatural>(const SoftmaxState<LseBase::kNatural>&);
template float lse_of<LseBase::kNatural>(const SoftmaxState<LseBase::kLog2>&);
template float lse_of<LseBase::kLog2>(const SoftmaxState<LseBase::kNatural>&);
template float lse_of<LseBase::kLog2>(const SoftmaxState<LseBase::kLog2>&);

}  // namespace shadowgraph
