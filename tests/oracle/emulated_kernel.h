// A kernel in f32, written down: what it gives, and how much of the bound that takes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "check/bounds/error_bound.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "oracle/small_call.h"

namespace shadowgraph::emulated {

inline float rounded(float x, DType t) {
  return t == DType::kF32 ? x : decode_float(encode_float(x, format_of(t)), format_of(t));
}

/// The ways of an emulated kernel, and what is wrong with it.
struct Kernel {
  DType q_type = DType::kF32, out_type = DType::kF32;
  bool round_p = false, sum_sees_rounded_p = false;
  float scale_error = 1;                    // multiplies sm_scale
  bool drop_last = false;                   // the last key is not read
  DType accumulator = DType::kF32;          // of P.V
  int32_t split = 0;                        // keys; 0: none
  bool fold_unscaled = false;               // the states of splits are added as they are
  Partials partials = Partials::kUnscaled;  // else what is kept of a split: its result and LSE
  bool narrow_parts = false;                // a split's result is stored in q's type
};

struct Answer {
  std::vector<float> out;
  double lse = 0;
};

struct State {
  float m = -std::numeric_limits<float>::infinity(), d = 0;
  std::vector<float> o;
};

/// Keys [begin, end) in f32: logits in base 2, running maximum every 16 keys, keys in order.
inline State attend(const SmallCall& c, const Kernel& kernel, int64_t begin, int64_t end) {
  const int64_t dim = c.call.q.shape[2], dv = c.call.v.shape[2];
  const float scale = c.call.params.sm_scale * kernel.scale_error * static_cast<float>(kLog2E);
  const float cap = c.call.params.logits_soft_cap;
  State x;
  x.o.resize(static_cast<size_t>(dv));
  for (int64_t tile = begin; tile < end; tile += 16) {
    const int64_t tile_end = std::min(end, tile + 16);
    float s[16], top = x.m;
    for (int64_t j = tile; j < tile_end; ++j) {
      float dot = 0;
      for (int64_t i = 0; i < dim; ++i) dot += c.q[size_t(i)] * c.k[size_t(j * dim + i)];
      s[j - tile] = dot * scale;
      if (cap > 0)
        s[j - tile] = std::tanh(dot * (c.call.params.sm_scale * kernel.scale_error / cap)) *
                      (cap * static_cast<float>(kLog2E));
      top = std::max(top, s[j - tile]);
    }
    const float factor = std::exp2(x.m - top);
    x.d *= factor;
    for (float& o : x.o) o = rounded(o * factor, kernel.accumulator);
    x.m = top;
    for (int64_t j = tile; j < tile_end; ++j) {
      const float weight = std::exp2(s[j - tile] - x.m);
      const float p = kernel.round_p ? rounded(weight, kernel.q_type) : weight;
      x.d += kernel.sum_sees_rounded_p ? p : weight;
      for (int64_t i = 0; i < dv; ++i) {
        x.o[size_t(i)] = rounded(x.o[size_t(i)] + p * c.v[size_t(j * dv + i)], kernel.accumulator);
      }
    }
  }
  return x;
}

inline void fold(State& into, const State& part, const Kernel& kernel) {
  const float top = std::max(into.m, part.m);
  const float of_into = kernel.fold_unscaled ? 1 : std::exp2(into.m - top);
  const float of_part = kernel.fold_unscaled ? 1 : std::exp2(part.m - top);
  into.m = top;
  into.d = into.d * of_into + part.d * of_part;
  for (size_t i = 0; i < into.o.size(); ++i) into.o[i] = into.o[i] * of_into + part.o[i] * of_part;
}

/// A split's result and its natural LSE in f32, as the state of one key with that value and logit.
inline State stored(State part, const Kernel& kernel) {
  DType type = kernel.partials == Partials::kOutType ? kernel.out_type : DType::kF32;
  if (kernel.narrow_parts) type = kernel.q_type;
  for (float& o : part.o) o = rounded(o / part.d, type);
  const float lse = part.m * static_cast<float>(kLn2) + std::log(part.d);
  return {lse * static_cast<float>(kLog2E), 1, std::move(part.o)};
}

/// One row, its splits folded from left to right.
inline Answer emulate(const SmallCall& c, const Kernel& kernel) {
  const int64_t n = c.call.k.shape[0] - (kernel.drop_last ? 1 : 0);
  const int64_t split = kernel.split > 0 ? kernel.split : n;
  if (kernel.partials != Partials::kUnscaled && n > split) {
    State x = stored(attend(c, kernel, 0, split), kernel);
    for (int64_t at = split; at < n; at += split)
      fold(x, stored(attend(c, kernel, at, std::min(n, at + split)), kernel), kernel);
    for (float& o : x.o) o = rounded(o / x.d, kernel.out_type);
    return {x.o, x.m * kLn2 + std::log(static_cast<double>(x.d))};
  }
  State x = attend(c, kernel, 0, std::min(n, split));
  for (int64_t at = split; at < n; at += split)
    fold(x, attend(c, kernel, at, std::min(n, at + split)), kernel);
  for (float& o : x.o) o = rounded(o / x.d, kernel.out_type);
  return {x.o, x.m * kLn2 + std::log(static_cast<double>(x.d))};
}

/// Random f32, f16 or bf16 data: flat, peaked, far from zero, or tiny.
inline void fill(SmallCall& c, DType type, Rng& rng) {
  const float peak = rng.below(3) == 0 ? 8.f : 1.f;
  const float shift = rng.below(3) == 0 ? 2.f : 0.f;
  const float size = rng.below(8) == 0 ? 0x1p-14f : 1.f;
  for (float& x : c.q) x = rounded(peak * 2 * rng.signed_unit(), type);
  for (float& x : c.k) x = rounded(2 * rng.signed_unit(), type);
  for (float& x : c.v) x = rounded(size * (shift + 2 * rng.signed_unit()), type);
}

inline Arithmetic arithmetic_of(const Kernel& kernel) {
  Arithmetic a;
  a.kernel = "emulated";
  a.in_order = kernel.partials == Partials::kUnscaled;
  a.partials = kernel.partials;
  a.tile = 16;
  a.tanh_relative = 0x1p-21;
  a.split = kernel.split;
  a.round_p = kernel.round_p ? RoundP::kToQuery : RoundP::kNever;
  a.sum_sees_rounded_p = kernel.sum_sees_rounded_p;
  return a;
}

struct Excess {
  double out = 0, lse = 0;  // largest error over bound
};

inline Excess measure(const SmallCall& c, const Kernel& kernel) {
  const Answer answer = emulate(c, kernel);
  Excess excess;
  for_each_row(c.call, [&](const OracleRow& row) {
    const ErrorBound bound =
        error_bound(row, arithmetic_of(kernel), kernel.q_type, kernel.out_type, LseSink::kExcluded);
    for (Eigen::Index i = 0; i < row.out.size(); ++i) {
      const double error = std::abs(answer.out[size_t(i)] - row.out[i]);
      excess.out = std::max(excess.out, error / bound.out[i]);
    }
    excess.lse = std::abs(answer.lse - row.lse) / bound.lse;
  });
  return excess;
}

inline constexpr Kernel kKernels[] = {
    {},
    {.q_type = DType::kF16, .out_type = DType::kF16},
    {.q_type = DType::kBF16, .out_type = DType::kBF16},
    {.q_type = DType::kF16, .out_type = DType::kF16, .round_p = true},
    {.q_type = DType::kBF16, .out_type = DType::kBF16, .round_p = true},
    {.q_type = DType::kF16, .out_type = DType::kF32, .round_p = true, .sum_sees_rounded_p = true},
    {.q_type = DType::kBF16, .out_type = DType::kBF16, .round_p = true, .sum_sees_rounded_p = true},
    {.split = 16},
    {.q_type = DType::kBF16, .out_type = DType::kBF16, .round_p = true, .split = 32},
    {.split = 16, .partials = Partials::kF32},
    {.q_type = DType::kBF16,
     .out_type = DType::kBF16,
     .round_p = true,
     .split = 16,
     .partials = Partials::kF32},
    {.q_type = DType::kF16, .out_type = DType::kF16, .split = 16, .partials = Partials::kOutType},
};

}  // namespace shadowgraph::emulated
