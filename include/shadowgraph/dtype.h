// Element types of tensors. Tested by tests/core/dtype_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shadowgraph {

enum class DType : uint8_t {
  kF32,
  kF16,   // IEEE binary16
  kBF16,  // upper half of binary32
  kE4M3,  // fp8 e4m3fn: no infinities, NaN is 0x7f and 0xff, largest finite 448 (OCP OFP8,
          // arXiv:2209.05433)
  kE5M2,  // fp8 e5m2: IEEE-like, largest finite 57344
  kI8,    // only in a KV cache, with one f32 scale per token and head
  kF64,
  kI32,
  kI64,
  kU8,
  kBool,
};

/// Bytes of one element.
constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool: return 1;
  }
  return 0;
}

/// "f32", "f16", "bf16", "e4m3", "e5m2", "i8", "f64", "i32", "i64", "u8", "bool".
std::string_view name_of(DType t);
std::optional<DType> dtype_from_name(std::string_view name);

/// Types that q, k, v and out may have, except that q and out may not be fp8.
constexpr bool is_fp8(DType t) { return t == DType::kE4M3 || t == DType::kE5M2; }
constexpr bool is_float16_or_32(DType t) {
  return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16;
}
constexpr bool is_attention_dtype(DType t) { return is_float16_or_32(t) || is_fp8(t); }
/// The types that K and V of a paged cache may have.
constexpr bool is_cache_dtype(DType t) { return is_attention_dtype(t) || t == DType::kI8; }

}  // namespace shadowgraph
