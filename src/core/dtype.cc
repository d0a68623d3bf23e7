#include "shadowgraph/dtype.h"

#include <utility>

namespace shadowgraph {
namespace {

constexpr std::pair<DType, std::string_view> kNames[] = {
    {DType::kF32, "f32"},   {DType::kF16, "f16"}, {DType::kBF16, "bf16"}, {DType::kE4M3, "e4m3"},
    {DType::kE5M2, "e5m2"}, {DType::kI8, "i8"},   {DType::kF64, "f64"},   {DType::kI32, "i32"},
    {DType::kI64, "i64"},   {DType::kU8, "u8"},   {DType::kBool, "bool"}};

}  // namespace

std::string_view name_of(DType t) {
  for (const auto& [type, name] : kNames) {
    if (type == t) return name;
  }
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view wanted) {
  for (const auto& [type, name] : kNames) {
    if (name == wanted) return type;
  }
  return std::nullopt;
}

}  // namespace shadowgraph
