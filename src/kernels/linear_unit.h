// What the driver of linear attention (linear_attention.cc) hands to the instruction-set units
// (kernels/isa/*_linear.cc): plain data, f32, rows padded with zeros to whole vectors.
#pragma once

#include <cstdint>
#include <string_view>

namespace shadowgraph {

/// Tokens of one row, one value head, one after the other. With a = diag(decay) and both dots taken
/// of the state as it was:
///
///   r := S (a k)            of the delta rule, else 0
///   u := beta (v - r)
///   out := S (a q) + u (k.q)
///   S := S a + u k^T
///
/// which is the recurrence, S read once a token. Strides in floats; those of token arrays are the
/// padded dims.
struct RecurUnit {
  bool delta = false;
  int32_t tokens = 0;
  int32_t dim_k = 0, dim_v = 0;      // padded to 16, but for the one that counts the state's rows
  const float* k = nullptr;          // [tokens, dim_k]
  const float* decayed_k = nullptr;  // [tokens, dim_k]: a k
  const float* decayed_q = nullptr;  // [tokens, dim_k]: a q
  const float* v = nullptr;          // [tokens, dim_v]
  const float* decay = nullptr;      // [tokens, decay_step]: one for all channels, or dim_k
  int64_t decay_step = 1;
  const float* beta = nullptr;  // [tokens]
  const float* kq = nullptr;    // [tokens]: k.q
  float* state = nullptr;       // rows of values [dim_v, dim_k], or of keys [dim_k, dim_v]
  int64_t state_stride = 0;     // between rows
  float* out = nullptr;         // [tokens, dim_v]
};

struct LinearIsa {
  void (*recur_values)(const RecurUnit&);  // the state's rows are values
  void (*recur_keys)(const RecurUnit&);    // the state's rows are keys
};

extern const LinearIsa kGenericLinear;
extern const LinearIsa kAvx2Linear;
extern const LinearIsa kAvx512Linear;

/// By name of an instruction set that this machine has; empty: the current default.
const LinearIsa& linear_isa(std::string_view name);

}  // namespace shadowgraph
