// A linear attention call that owns its memory, small and whole, for tests that change it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/choices.h"
#include "core/float_formats.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// What a small call is made of.
struct LinearShape {
  LinearAttention::Rule rule = LinearAttention::Rule::kDelta;
  LinearAttention::StateOrder order = LinearAttention::StateOrder::kValueKey;
  std::vector<int32_t> lens = {3, 1, 5};
  int64_t k_heads = 1, v_heads = 2, dim_k = 16, dim_v = 16;
  DType dtype = DType::kF32, state_dtype = DType::kF32;
  int decay_rank = 2;
  bool beta = true, l2norm = false, skip = false, z = false;
  float scale = 0.5F;
};

class SmallLinear {
 public:
  explicit SmallLinear(const LinearShape& s, uint64_t seed = 1) : shape(s) {
    cu_seqlens.push_back(0);
    for (const int32_t n : s.lens) cu_seqlens.push_back(cu_seqlens.back() + n);
    const int64_t tokens = cu_seqlens.back(), rows = std::ssize(s.lens);
    for (int64_t r = 0; r < rows; ++r) slots.push_back(static_cast<int32_t>(2 * (rows - r) - 1));
    num_slots = 2 * rows + 1;
    const bool by_value = s.order == LinearAttention::StateOrder::kValueKey;
    const int64_t a = by_value ? s.dim_v : s.dim_k, b = by_value ? s.dim_k : s.dim_v;
    call.rule = s.rule, call.order = s.order, call.scale = s.scale, call.l2norm = s.l2norm;
    call.q = tensor(q, s.dtype, {tokens, s.k_heads, s.dim_k});
    call.k = tensor(k, s.dtype, {tokens, s.k_heads, s.dim_k});
    call.v = tensor(v, s.dtype, {tokens, s.v_heads, s.dim_v});
    if (s.decay_rank == 1) call.log_decay = tensor(decay, DType::kF32, {s.v_heads});
    if (s.decay_rank == 2) call.log_decay = tensor(decay, DType::kF32, {tokens, s.v_heads});
    if (s.decay_rank == 3)
      call.log_decay = tensor(decay, DType::kF32, {tokens, s.v_heads, s.dim_k});
    if (s.beta) call.beta = tensor(beta, DType::kF32, {tokens, s.v_heads});
    if (s.skip) call.skip = tensor(skip, DType::kF32, {s.v_heads});
    if (s.z) call.z = tensor(z, s.dtype, {tokens, s.v_heads, s.dim_v});
    call.states = tensor(states, s.state_dtype, {num_slots, s.v_heads, a, b});
    call.out = tensor(out, s.dtype, {tokens, s.v_heads, s.dim_v});
    call.options.num_threads = 1;
    call.rows.cu_seqlens_q = cu_seqlens, call.rows.state_indices = slots;
    randomise(seed);
  }
  SmallLinear(const SmallLinear&) = delete;
  SmallLinear& operator=(const SmallLinear&) = delete;

  void randomise(uint64_t seed) {
    Rng rng(seed);
    const auto fill = [&](const ConstTensorView& t, std::vector<std::byte>& bytes, float low,
                          float high) {
      for (int64_t i = 0; t.defined() && i < t.numel(); ++i)
        store_float(bytes.data(), t.dtype, i,
                    low + (high - low) * (0.5F + 0.5F * rng.signed_unit()));
    };
    fill(call.q, q, -1, 1), fill(call.k, k, -1, 1), fill(call.v, v, -1, 1);
    if (!shape.l2norm && shape.rule == LinearAttention::Rule::kDelta) shrink_keys();
    fill(call.log_decay, decay, -2, 0), fill(call.beta, beta, 0, 1);
    fill(call.skip, skip, -1, 1), fill(call.z, z, -3, 3);
    fill(call.states, states, -1, 1);
    for (int64_t i = 0; i < call.out.numel(); ++i)
      store_float(out.data(), call.out.dtype, i, std::numeric_limits<float>::quiet_NaN());
  }

  /// The delta rule is a contraction for keys of norm 1 at most.
  void shrink_keys() {
    const float by = 1 / std::sqrt(static_cast<float>(shape.dim_k));
    for (int64_t i = 0; i < call.k.numel(); ++i)
      store_float(k.data(), call.k.dtype, i, load_float(k.data(), call.k.dtype, i) * by);
  }

  void copy_inputs(const SmallLinear& from) {
    for (const auto input :
         {&SmallLinear::q, &SmallLinear::k, &SmallLinear::v, &SmallLinear::decay,
          &SmallLinear::beta, &SmallLinear::skip, &SmallLinear::z, &SmallLinear::states})
      std::ranges::copy(from.*input, (this->*input).begin());
  }
  void run() { ASSERT_EQ(linear_attention(call).to_string(), "ok"); }

  TensorView tensor(std::vector<std::byte>& bytes, DType t, std::initializer_list<int64_t> dims) {
    const int64_t n = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    bytes.assign(static_cast<size_t>(n) * size_of(t), std::byte{0});
    return {bytes.data(), t, dims};
  }
  /// Bytes of a slot.
  std::vector<std::byte> slot(int64_t i) const {
    const size_t n = states.size() / static_cast<size_t>(num_slots);
    const auto from = states.begin() + static_cast<int64_t>(n) * i;
    return {from, from + static_cast<int64_t>(n)};
  }
  /// Bytes of the out of a token.
  std::vector<std::byte> out_of(int64_t token) const {
    const size_t n = out.size() / static_cast<size_t>(call.out.shape[0]);
    const auto from = out.begin() + static_cast<int64_t>(n) * token;
    return {from, from + static_cast<int64_t>(n)};
  }

  const LinearShape shape;
  LinearAttention call;
  int64_t num_slots = 0;
  std::vector<int32_t> cu_seqlens, slots;
  std::vector<std::byte> q, k, v, decay, beta, skip, z, states, out;
};

}  // namespace shadowgraph
