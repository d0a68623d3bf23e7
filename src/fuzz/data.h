// CaseData made real: the values of a Case as bytes in their types, in logical order, before
// anything is laid out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "attn/case.h"
#include "attn/mask.h"
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

struct RequestData {
  LogicalTensor q, k, v;         // [q_len | kv_len, heads, dim]
  std::vector<uint8_t> mask;     // [q_len * kv_len] or empty
  std::vector<uint8_t> hot;      // [kv_len]: the keys that score far above the rest (kSelector)
  std::vector<uint8_t> visible;  // [kv_len]: does any query see the key?
  // [kv_len]: the same without the custom mask; its page must exist
  std::vector<uint8_t> reachable;
};

struct LogicalData {
  std::vector<RequestData> requests;
  std::vector<float> sinks;
};

/// Element after element.
void fill(LogicalTensor& t, const std::function<float()>& next);
/// Uniform in [-factor, factor), with as many bits as the type can hold.
void fill_random(LogicalTensor& t, float factor, Rng& rng);

/// The mask of one request, without the custom one.
inline MaskShape mask_of(const Case& x, const RequestExtent& r) {
  return {r.q_len, r.kv_len, x.causal, x.window_left, x.window_right};
}

/// The Case's own mask arithmetic: asks the predicate, pair by pair.
bool sees(const Case& x, const RequestData& data, const RequestExtent& r, int64_t q, int64_t key);

LogicalData make_data(const Case& x);

}  // namespace shadowgraph
