// Arithmetic: what an error bound has to know of a kernel's arithmetic, and nothing of its speed.
// The kernels are listed in arithmetics.inc. How each symbol enters the bound: error_bound.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "attn/exp2_poly.h"
#include "attn/lse.h"
#include "shadowgraph/dtype.h"

namespace shadowgraph {

/// Where the weights P are rounded before they are multiplied with V.
enum class RoundP : uint8_t {
  kNever,    // f32 weights
  kToQuery,  // to the type of q, fp8 too: tensor cores (nothing where q is f32)
  kBF16,     // to bf16 where q is bf16, else never: the CPU's bf16 dot product
  kToType,   // to Arithmetic::p_type, whatever q is
};

/// What of a part of a row's keys is kept until the parts are merged.
enum class Partials : uint8_t {
  kUnscaled,  // maximum, sum and weighted values, as they are
  kF32,       // the part's result, divided by its sum, and its LSE: both in f32
  kOutType,   // the same, the result in the output's type
};

/// The defaults describe plain f32 arithmetic, rounded to nearest, in an unknown order.
struct Arithmetic {
  std::string_view kernel;

  // Unit roundoffs: of elementwise operations; of one addition in q.k, P.V and the sum of P (2^-23
  // where tensor cores truncate); of the scales.
  double u = 0x1p-24, u_sum = 0x1p-24, u_scale = 0x1p-24;

  // A tensor core adds that many products and the accumulator in one step; 0: no tensor core.
  int adds_per_block = 0;
  // The sum of P is kept in that many partial sums, key by key in turn.
  int lanes = 1;
  RoundP round_p = RoundP::kNever;
  DType p_type = DType::kF32;
  double p_scale = 1;  // multiplies P before it is rounded, and the result is divided by it
  bool sum_sees_rounded_p = false;
  // q.k, its scaled form and the masked one are each rounded to this type.
  DType scores_type = DType::kF32;
  bool tf32 = false;  // factors of products keep 10 bits of their fraction, truncated

  // Roundings of the scale, of its base-2 form, and of its product with q.k.
  int scale_roundings = 4;
  // exp2(fma(s, c, -fl(m c))): the maximum's product is rounded apart from the scores'.
  bool scaled_maximum = false;
  double exp_error = 0x1p-22;  // relative
  double tanh_absolute = 0, tanh_relative = 0;
  // Error of the logarithm in the LSE: relative, and absolute where the logarithm is below 1.
  double log_error = 0x1p-22;
  int lse_roundings = 3;  // of the LSE's parts and of their sum

  // Keys in order; tiles and splits start at multiples of their length; the states of splits are
  // folded left to right. False: nothing is known.
  bool in_order = false;
  int tile = 1;    // keys between two looks at the running maximum, at least
  int merges = 0;  // merges of f32 states inside a part (between warps)
  int split = 0;   // in order: the length of a split; else a request of more keys is split into
                   // parts of at least so many; 0: never
  int parts = 1;   // partial results that are merged in any case, one after the other
  Partials partials = Partials::kUnscaled;

  int out_roundings = 3;       // f32 roundings of the division, or of reciprocal and product
  bool v_scale_after = false;  // v_scale multiplies the rounded output, which is rounded again
};

inline constexpr Arithmetic kArithmetics[] = {
#define SG_ARITHMETIC(name, ...) Arithmetic{.kernel = #name __VA_OPT__(, ) __VA_ARGS__},
#include "check/bounds/arithmetics.inc"
#undef SG_ARITHMETIC
};

/// nullptr for a kernel that is not listed.
constexpr const Arithmetic* find_arithmetic(std::string_view kernel) {
  for (const Arithmetic& a : kArithmetics) {
    if (a.kernel == kernel) return &a;
  }
  return nullptr;
}

}  // namespace shadowgraph
