// The derived error bound of a causal convolution: how far a kernel's result may lie from the
// oracle's, given its arithmetic. Nothing in it is tuned.
//
// u is a unit roundoff, g(m, u) = m u / (1 - m u), and M = |bias| + sum_i |w_i x_i| in exact
// arithmetic.
//
// sum      Bias and `width` products are added in any order: no addend goes through more than
//          `width` additions. Each product is rounded once, to f32 or to the activations' type, by
//          u_p; a fused multiply-add rounds it not at all, which is within that. So the computed
//          sum is sum_i a_i (1 + t_i) with 1 + t_i a product of width roundings u and one u_p, and
//
//            |s^ - s| <= M (g(width, u) (1 + u_p) + u_p) + width (eta_p + eta) (1 + g(width, u)),
//
//          eta_p being what a product loses below its type's normal range, eta what an addition
//          does: nothing but where it flushes.
// silu     |silu'| <= L = 1.0998394: its largest value, at x = 2.399..., where x tanh(x / 2) = 2.
//          So what came before grows by L at most. Then the activation's own rounding,
//          `silu_error` relative to the result: a division, an addition, an exp of relative error
//          eps (of e^-x, which is at most the denominator) make (1 + u)^2 (1 + eps) - 1 at least in
//          first order. Where exp(-x) is taken in f32 it overflows from x <= -88 on, and the result
//          is 0: |silu| is below 2^-120 there, and the error of a sum so large far above.
// out      Rounding to the output's type, and half its smallest subnormal; f32 stays f32.
//
// Where M may overflow f32, or the type of the products, the bound is infinite. Sources: Higham,
// Accuracy and Stability of Numerical Algorithms, ch. 3. Tested by
// tests/oracle/conv_bound_test.cc and tests/kernels/causal_conv1d_test.cc.
#pragma once

#include <Eigen/Core>
#include <cstdint>

#include "oracle/conv_oracle.h"

namespace shadowgraph {

/// What the bound has to know of a kernel. The defaults are ours: f32, every product and every sum
/// rounded, SiLU computed in double and rounded to f32.
struct ConvArithmetic {
  double u = 0x1p-24;  // of one addition, and of a product in f32
  // Products of two numbers of the activations' type are rounded to it, as where a language's
  // product has its operands' type; false: to f32
  bool products_in_type = false;
  bool flushes = false;                         // f32 results below 2^-126 may be 0
  double silu_error = 0x1p-24 * (1 + 0x1p-20);  // relative, of SiLU of the sum that it gets
};

/// [dim], absolute, of token.out. x_type is that of the activations and of out. Past its largest
/// finite the result is an infinity. Of a row of zeros: 0.
Eigen::ArrayXd conv_bound(const ConvToken& token, int64_t width,
                          CausalConv1d::Activation activation, const ConvArithmetic& arithmetic,
                          DType x_type);

}  // namespace shadowgraph
