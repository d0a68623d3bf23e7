// What both forms of linear_attention share.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/float_formats.h"
#include "kernels/recurrent/linear_unit.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

inline int64_t bytes_of(const ConstTensorView& t, int axis) {
  return t.stride[static_cast<size_t>(axis)] * static_cast<int64_t>(size_of(t.dtype));
}

/// Tokens' vectors of one head as they are: [tokens, heads, dim].
inline VectorUnit plain_unit(const ConstTensorView& x, int64_t token, int32_t tokens, int64_t head,
                             float* to) {
  VectorUnit unit;
  unit.from = x.at(token, head), unit.stride = bytes_of(x, 0), unit.dtype = x.dtype;
  unit.tokens = tokens, unit.dim = static_cast<int32_t>(x.shape[2]), unit.to = to;
  return unit;
}
/// Their q or k, made ready.
inline VectorUnit vector_unit(const LinearAttention& call, const ConstTensorView& x, int64_t token,
                              int32_t tokens, int64_t head, double scale, float* to) {
  VectorUnit unit = plain_unit(x, token, tokens, head, to);
  unit.scale = scale, unit.l2norm = call.l2norm;
  return unit;
}

inline float beta_of(const LinearAttention& call, int64_t token, int64_t head) {
  return call.beta.defined() ? load_float(call.beta.at(token, head), DType::kF32, 0) : 1.F;
}

/// A token's out of one head: read + skip v, times the gate. read, v: padded to 16.
inline void finish_token(const LinearAttention& call, const LinearIsa& isa, int64_t token,
                         int64_t head, const float* read, const float* v) {
  float skip = 0;
  FinishUnit unit;
  unit.read = read, unit.v = v, unit.dim = static_cast<int32_t>(call.v.shape[2]);
  unit.dtype = call.out.dtype, unit.out = call.out.at(token, head);
  if (call.skip.defined()) {
    skip = load_float(call.skip.at(head), DType::kF32, 0);
    unit.skip = &skip;
  }
  if (!call.z.defined()) return isa.finish(unit);
  for (int32_t i = 0; i < unit.dim; ++i) {
    const float y = unit.skip != nullptr ? std::fma(skip, v[i], read[i]) : read[i];
    const double z = load_float(call.z.at(token, head), call.z.dtype, i);
    store_float(unit.out, unit.dtype, i, static_cast<float>(y * (z / (1 + std::exp(-z)))));
  }
}

inline void zero_out(const LinearAttention& call, int64_t row, int64_t head) {
  const int64_t begin = call.rows.begin(row), end = begin + call.rows.tokens(row);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t i = 0; i < call.v.shape[2]; ++i)
      store_float(call.out.at(t, head), call.out.dtype, i, 0);
}

}  // namespace shadowgraph
