// f16, bf16, fp8, i8 <-> f32, in software: exact one way, round to nearest even the other.
// Tested by tests/core/dtype_test.cc. The ISA units have their own loads;
// tests/kernels/isa_test.cc holds the two against each other, exhaustively.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "shadowgraph/dtype.h"

namespace shadowgraph {

/// A binary format: 1 sign, exponent and mantissa bits, bias; finite_only = no infinities (e4m3fn).
struct FloatFormat {
  int exponent_bits, mantissa_bits, bias;
  bool finite_only;
};
inline constexpr FloatFormat kF16Format{5, 10, 15, false};
inline constexpr FloatFormat kBF16Format{8, 7, 127, false};
inline constexpr FloatFormat kE4M3Format{4, 3, 7, true};
inline constexpr FloatFormat kE5M2Format{5, 2, 15, false};

/// bits of the format as a float; exact.
constexpr float decode_float(uint32_t bits, FloatFormat f) {
  const uint32_t sign = bits >> (f.exponent_bits + f.mantissa_bits) & 1;
  const uint32_t max_exponent = (1u << f.exponent_bits) - 1;
  const uint32_t exponent = bits >> f.mantissa_bits & max_exponent;
  const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const uint32_t sign32 = sign << 31;
  const bool all_ones = mantissa == (1u << f.mantissa_bits) - 1;
  if (exponent == max_exponent && (!f.finite_only || all_ones)) {
    if (mantissa == 0 && !f.finite_only) return std::bit_cast<float>(sign32 | 0x7f800000u);
    return std::bit_cast<float>(sign32 | 0x7fc00000u | mantissa << (23 - f.mantissa_bits));
  }
  if (exponent == 0) {
    // mantissa * 2^(1 - bias - mantissa_bits), built exactly; bf16 subnormals are f32 subnormals.
    if (f.bias == 127) return std::bit_cast<float>(sign32 | mantissa << (23 - f.mantissa_bits));
    float scale = std::bit_cast<float>(static_cast<uint32_t>(128 - f.bias - f.mantissa_bits) << 23);
    const float magnitude = static_cast<float>(mantissa) * scale;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t exponent32 = exponent + 127 - static_cast<uint32_t>(f.bias);
  return std::bit_cast<float>(sign32 | exponent32 << 23 | mantissa << (23 - f.mantissa_bits));
}

/// The nearest value of the format, ties to even. Past the largest finite: infinity, or NaN in a
/// finite-only format, as the hardware's non-saturating conversion does.
constexpr uint32_t encode_float(float value, FloatFormat f) {
  const uint32_t in = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (in >> 31) << (f.exponent_bits + f.mantissa_bits);
  const uint32_t magnitude = in & 0x7fffffffu;
  const uint32_t max_exponent = (1u << f.exponent_bits) - 1;
  const uint32_t nan = sign | max_exponent << f.mantissa_bits |
                       (f.finite_only ? (1u << f.mantissa_bits) - 1 : 1u << (f.mantissa_bits - 1));
  if (magnitude > 0x7f800000u) return nan;
  const uint32_t overflow = f.finite_only ? nan : sign | max_exponent << f.mantissa_bits;
  if (magnitude == 0x7f800000u) return overflow;
  const int smallest = 1 - f.bias;  // exponent of the smallest normal
  uint32_t result = 0;
  if (static_cast<int>(magnitude >> 23) - 127 >= smallest) {
    // Round off the low bits; a carry runs into the exponent, as it should.
    const int drop = 23 - f.mantissa_bits;
    const uint32_t odd = magnitude >> drop & 1;
    const uint32_t rounded = (magnitude + (1u << (drop - 1)) - 1 + odd) >> drop;
    result = rounded - (static_cast<uint32_t>(127 - f.bias) << f.mantissa_bits);
  } else {
    // Subnormals are multiples of 2^(smallest - mantissa_bits), the last bit of this float: adding
    // it rounds.
    const auto step =
        std::bit_cast<float>(static_cast<uint32_t>(127 + 23 + smallest - f.mantissa_bits) << 23);
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + step) -
             std::bit_cast<uint32_t>(step);
  }
  const uint32_t largest = f.finite_only
                               ? (max_exponent << f.mantissa_bits | ((1u << f.mantissa_bits) - 2))
                               : (max_exponent << f.mantissa_bits) - 1;
  return result > largest ? overflow : sign | result;
}

constexpr FloatFormat format_of(DType t) {
  switch (t) {
    case DType::kF16: return kF16Format;
    case DType::kBF16: return kBF16Format;
    case DType::kE4M3: return kE4M3Format;
    default: return kE5M2Format;
  }
}

/// The nearest integer, ties to even, saturated to +-127; NaN becomes 0.
constexpr int8_t encode_i8(float value) {
  if (value != value) return 0;
  const float clamped = value > 127 ? 127 : value < -127 ? -127 : value;
  return static_cast<int8_t>(clamped + 0x1.8p23f - 0x1.8p23f);  // adding it rounds
}

/// Element index of a f32, f16, bf16, fp8, i8 or f64 array, as f32. Addresses need no alignment.
inline float load_float(const std::byte* data, DType t, int64_t index) {
  const std::byte* p = data + index * static_cast<int64_t>(size_of(t));
  if (t == DType::kF32) {
    float value;
    std::memcpy(&value, p, 4);
    return value;
  }
  if (t == DType::kF64) {
    double value;
    std::memcpy(&value, p, 8);
    return static_cast<float>(value);
  }
  if (size_of(t) == 2) {
    uint16_t bits;
    std::memcpy(&bits, p, 2);
    return decode_float(bits, format_of(t));
  }
  if (t == DType::kI8) return std::to_integer<int8_t>(*p);
  return decode_float(std::to_integer<uint32_t>(*p), format_of(t));
}

/// The nearest value of type t; fp8 saturates to its largest finite (NaN stays NaN), i8 as
/// encode_i8 says.
inline void store_float(std::byte* data, DType t, int64_t index, float value) {
  std::byte* p = data + index * static_cast<int64_t>(size_of(t));
  if (t == DType::kF32) {
    std::memcpy(p, &value, 4);
    return;
  }
  if (size_of(t) == 2) {
    const auto bits = static_cast<uint16_t>(encode_float(value, format_of(t)));
    std::memcpy(p, &bits, 2);
    return;
  }
  if (t == DType::kI8) {
    *p = static_cast<std::byte>(encode_i8(value));
    return;
  }
  const float largest = t == DType::kE4M3 ? 448.f : 57344.f;
  if (value > largest) value = largest;
  if (value < -largest) value = -largest;
  *p = static_cast<std::byte>(encode_float(value, format_of(t)));
}

}  // namespace shadowgraph
