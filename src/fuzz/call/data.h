// LogicalTensor: values of a Case as bytes in their type, in logical order, before anything is laid
// out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "attn/cases/case.h"
#include "core/choices.h"

namespace shadowgraph {

/// Dense [tokens, heads, dim]; in i8 the elements of a token and head times its scale.
struct LogicalTensor {
  DType dtype = DType::kF32;
  int64_t heads = 0, dim = 0;
  std::vector<std::byte> bytes;
  std::vector<float> scales;  // i8: [tokens, heads]

  LogicalTensor() = default;
  LogicalTensor(DType type, int64_t tokens, int64_t num_heads, int64_t head_dim)
      : dtype(type),
        heads(num_heads),
        dim(head_dim),
        bytes(static_cast<size_t>(tokens * heads * dim) * size_of(type)),
        scales(type == DType::kI8 ? static_cast<size_t>(tokens * heads) : 0) {}
  int64_t tokens() const { return static_cast<int64_t>(bytes.size()) / (heads * row_bytes()); }
  int64_t count() const { return static_cast<int64_t>(bytes.size() / size_of(dtype)); }
  int64_t row_bytes() const { return dim * static_cast<int64_t>(size_of(dtype)); }
  std::byte* row(int64_t token, int64_t head) {
    return bytes.data() + (token * heads + head) * row_bytes();
  }
  const std::byte* row(int64_t token, int64_t head) const {
    return bytes.data() + (token * heads + head) * row_bytes();
  }
  float& scale(int64_t token, int64_t head) {
    return scales[static_cast<size_t>(token * heads + head)];
  }
  float scale(int64_t token, int64_t head) const {
    return scales.empty() ? 1 : scales[static_cast<size_t>(token * heads + head)];
  }
  float value(int64_t token, int64_t head, int64_t d) const;
};

/// Element after element.
void fill(LogicalTensor& t, const std::function<float()>& next);
/// A power of two of either sign. Times 2^exponent_of_one it is beyond 2^10, a number of shifted
/// data: its size is uniform as an exponent, as far as the type and `data` let it. That is beyond
/// each finite number that some kernel takes for -inf.
float far_factor(CaseData data, DType type, int exponent_of_one, Rng& rng);
/// Uniform in [-factor, factor), with as many bits as the type can hold.
void fill_random(LogicalTensor& t, float factor, Rng& rng);

}  // namespace shadowgraph
