// The derived error bound (T1): how far a kernel's result may lie from the oracle's, given its
// arithmetic. Every symbol is computed in double from the same inputs; nothing in it is tuned.
//
// u is a unit roundoff, g(m, u) = m u / (1 - m u), M the largest logit (sinks included), and
// D = sum_j exp(s_j - M).
//
// delta_j  Logit. A sum of d products in any order is within g(d, u_sum) |scale| sum_i |q_i k_ji|;
//          scale, base change and product are `scale_roundings` more. A soft cap c passes on
//          1 - tanh^2 (x / c) of it, x the |logit| before the cap less its error, and adds the
//          error of its tanh, times the cap. What lies below the normal range may be flushed,
//          products and elements: 2^-126 |scale| d (1 + max |q_i| + max |k_ji|). A token's own
//          scale z_j (i8) multiplies all of these, the k_ji being its codes; it is rounded once
//          more, into the multiplier c z_j, c = scale log2 e (or scale / cap), which may be flushed
//          as well: 2^-126 sum_i |q_i k_ji|, times the cap if that is above 1.
//          A factor in TF32 loses 2^-10 of itself, a product (1 + 2^-10)^2 - 1. Scores of 16 bits
//          are rounded as q.k, scaled, and masked: g(3, u_scores) of the logit, or of its terms
//          where a soft cap follows, and 3 half subnormals.
//          Terms t that are added to a logit (AttentionTerms) lose g(7, u) of |t| and of the logit:
//          a root, a product, the change of base, four additions. A temperature multiplies all of
//          the above, and is within g(4, u) and twice the logarithm's error of its value.
//          Elements of q that are 0 give products of 0, which are none of the d. Weights do not
//          depend on an error that all logits have. Where q has one element, what is computed is a
//          function of one product and z_j: the error of the largest key is that of all keys like
//          it, and is left to the LSE; a key unlike it has delta_j and that one's together.
//          "max delta" below leaves out each key that weighs less than exp(-200) of the largest
//          weight, or of the sink, even with its own error.
// alpha_j  Exponent. The roundings of s_j - m and of all later rescales m_t - m_{t+1} telescope to
//          u (M - s_j + 2 max delta) (1 + u). A kernel that rounds m c apart from s c adds u |m|
//          each time.
// R        Rescales and merges: each is one exp, of relative error eps, and one product. Where keys
//          come in order, states of splits folded left to right: the tiles of a weight's split that
//          may raise the split's maximum, each logit within delta; one if the maximum of the splits
//          before may be higher; and the splits after that may raise the maximum so far. Of all
//          weights the most.
// e_j      Error of weight j that numerator and denominator share, relative to D:
//          p_j (exp(delta_j + alpha_j) (1 + eps)^(R+1) - 1), plus what underflows; where the
//          exponent is large, the whole p_j exp(...), by its logarithm.
// r_j      Error of weight j in the numerator alone: the rounding of P (part of e_j where the sum
//          sees the rounded P), to TF32 with the value that it meets, of its product with the
//          token's own scale (i8), and of partial results that are divided by their sums and
//          stored: `out_roundings`, and the rounding to the output's type where they have it. The
//          LSE of such a result is in e_j. A key is in one of them, or, where parts are merged one
//          after the other, in all but the last.
// t, g     Relative error of a summed term, g(h + R + 1, u_sum) where h additions follow it, one a
//          fold among them: t in the numerator, g in the denominator.
//
// The kernel computes o^ = sum_j a_j (1 + t_j) v_j / sum_j b_j (1 + g_j) with |b_j - p_j| <= e_j,
// |a_j - b_j| <= r_j, |t_j| <= t, |g_j| <= g. With kappa = sum_j b_j (1 + g_j) - 1, exactly,
//
//   o^ - o = (sum_j (a_j (1 + t_j) - p_j) v_j - kappa o) / (1 + kappa), and so
//   |o^ - o| <= [ sum_j e_j |v_j - o| + (r_j + t (p_j + e_j + r_j)) |v_j|
//                 + g |o| sum_j (p_j + e_j) ] / (1 - kappa_max),
//   kappa_max = sum_j e_j + g (p_j + e_j).
//
// A sink is a key with v = 0. Errors relative to D say nothing where kappa_max reaches 1: logits of
// 10^6 are known to some tenths only. There, and from kappa_max = 1/2 on, a weight is taken by its
// share of the sum. With x_j the whole exponent of e_j's exp, the sum is at least
// L = max_k p_k exp(-x_k), so that a share w_j = b_j (1 + g_j) / sum_k b_k (1 + g_k) is at most
// (1 + g) / (1 - g) beta_j, beta_j = min(1, p_j exp(x_j) / L), and at most 1 for all together:
//
//   o^ - o = sum_j w_j ((1 + rho_j) v_j - o),  1 + rho = (1 + r) (1 + t) / (1 - g), and so
//   |o^ - o| <= max_A |v_j - o| + rho max_A |v_j| + (1 + g) / (1 - g) sum_{not A} beta_j |v_j - o|,
//
// A the keys of beta_j >= 2^-40, r of a weight of 1, and what underflows or is not in A times the
// largest value besides. A row whose first key is far above the others has A = {it}, and the bound
// of a copy. The logarithm of the sum is within max_A x_j. Neither depends on the size of logits,
// only on how far apart they are and on the errors that kernels make of them.
//
// The bound is infinite where a result may be no number: a logit, a sum before the division or a
// product with a token's scale may overflow, or a maximum that is scaled apart may move all weights
// out of f32. The last roundings, to f32 and to the output's type, are added at the end. The LSE is
// the maximum plus the logarithm of a sum that is within kappa_max of its value. The largest logit
// itself is within the largest delta_j, and one rounding.
//
// Sources: for sums, Higham, Accuracy and Stability of Numerical Algorithms, ch. 3 and 4; for the
// shifted softmax, Blanchard, Higham and Higham (2021). Tested by tests/oracle/error_bound_test.cc.
#pragma once

#include <Eigen/Core>

#include "check/bounds/arithmetic.h"
#include "oracle/oracle.h"

namespace shadowgraph {

struct ErrorBound {
  Eigen::ArrayXd out;  // [head_dim_vo], absolute; infinite where nothing can be said. Of the value:
                       // past out_type's largest finite the result is an infinity
  double lse = 0;      // natural, absolute
  double top = 0;      // of the largest logit, absolute
};

/// q_type decides how P is rounded, out_type the last rounding. Requires a row that sees a key.
ErrorBound error_bound(const OracleRow& row, const Arithmetic& arithmetic, DType q_type,
                       DType out_type, LseSink lse_sink);

/// Infinite for f64.
double largest_finite(DType t);

}  // namespace shadowgraph
