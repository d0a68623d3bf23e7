// The element types of safetensors, and what we call them.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "shadowgraph/dtype.h"

namespace shadowgraph {

struct SafetensorsDType {
  std::string_view name;
  size_t size;                 // bytes of one element
  std::optional<DType> dtype;  // none: part of the format, of no use here
};

inline constexpr SafetensorsDType kSafetensorsDTypes[] = {
    {"BOOL", 1, DType::kBool},
    {"U8", 1, DType::kU8},
    {"I8", 1, DType::kI8},
    {"U16", 2, {}},
    {"I16", 2, {}},
    {"U32", 4, {}},
    {"I32", 4, DType::kI32},
    {"U64", 8, {}},
    {"I64", 8, DType::kI64},
    {"F16", 2, DType::kF16},
    {"BF16", 2, DType::kBF16},
    {"F32", 4, DType::kF32},
    {"F64", 8, DType::kF64},
    {"F8_E4M3", 1, DType::kE4M3},
    {"F8_E5M2", 1, DType::kE5M2},
};

constexpr const SafetensorsDType* find_safetensors_dtype(std::string_view name) {
  for (const SafetensorsDType& t : kSafetensorsDTypes) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

constexpr std::string_view safetensors_name_of(DType dtype) {
  for (const SafetensorsDType& t : kSafetensorsDTypes) {
    if (t.dtype == dtype) return t.name;
  }
  return {};
}

}  // namespace shadowgraph
