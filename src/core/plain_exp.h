// exp, sigmoid and softplus in double, only by additions, products and one division: the same bits
// on every machine, whatever its libm, and a loop over them becomes vectors. What is rounded to f32
// afterwards is rounded once, but for ties that 2^-50 of the value decides.
// Tested by tests/core/plain_exp_test.cc.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace shadowgraph {

/// sum_i c_i z^i, unrolled.
template <size_t N>
constexpr double plain_polynomial(const std::array<double, N>& c, double z) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    double sum = c[N - 1];
    ((sum = sum * z + c[N - 2 - I]), ...);
    return sum;
  }
  (std::make_index_sequence<N - 1>());
}

/// 1 / i!, past which r^14 / 14! is below 2^-57 for |r| <= ln 2 / 2.
inline constexpr auto kExpSeries = [] {
  std::array<double, 14> c{};
  double factorial = 1;
  for (size_t i = 0; i < c.size(); ++i)
    factorial *= i > 0 ? static_cast<double>(i) : 1, c[i] = 1 / factorial;
  return c;
}();

/// 2 / (2 i + 1): log(1 + y) = s sum_i c_i s^(2 i) with s = y / (2 + y), and s <= 1/3 for y <= 1.
inline constexpr auto kLog1pSeries = [] {
  std::array<double, 17> c{};
  for (size_t i = 0; i < c.size(); ++i) c[i] = 2 / static_cast<double>(2 * i + 1);
  return c;
}();

/// Below -708 that of -708, above 709.4 infinite; relative error below 2^-50 between.
inline double plain_exp(double x) {
  constexpr double kLog2OfE = 0x1.71547652b82fep0;
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;  // n High: exact
  constexpr double kToInteger = 0x1.8p52;  // adding it rounds; the integer stands in the low bits
  x = x < -708 ? -708 : x;
  x = x > 710 ? 710 : x;
  const double shifted = x * kLog2OfE + kToInteger;
  const double n = shifted - kToInteger;
  const double r = x - n * kLn2High - n * kLn2Low;
  const double power = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
  return plain_polynomial(kExpSeries, r) * power;
}

inline double plain_sigmoid(double x) { return 1 / (1 + plain_exp(-x)); }

/// x sigmoid(x); of -infinity NaN, as by its formula.
inline double plain_silu(double x) { return x / (1 + plain_exp(-x)); }

/// log(1 + exp(x)), and x above 20.
inline double plain_softplus(double x) {
  const double y = plain_exp(x > 0 ? -x : x), s = y / (2 + y);
  const double soft = (x > 0 ? x : 0) + s * plain_polynomial(kLog1pSeries, s * s);
  return x > 20 ? x : soft;
}

}  // namespace shadowgraph
