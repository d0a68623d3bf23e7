// The derived error bound of DeepSeek-V4's compressor: how far a kernel's results may lie from the
// oracle's, given its arithmetic. Nothing in it is tuned.
//
// u is a unit roundoff, g(m, u) = m u / (1 - m u). Of a channel's n members x_i = score_i + ape_i,
// m the largest, d_i = m - x_i, p_i = e^-d_i / sum, y = sum_i p_i kv_i.
//
// weights  x_i and m are rounded sums, their difference is rounded, and so is what stands before
//          the exponential's base: the exponent is wrong by l_i = u (|x_i| + |m|) (1 + u)^3 +
//          ((1 + u)^3 - 1) d_i at most, the weight by a factor within e_i = (1 + exp_error) e^l_i -
//          1; below the normal range it may be 0, which is 2^-126 at most, and so may its product.
// pooling  Each addend of the two sums goes through n additions and a product: within
//          t_i = (1 + e_i) (1 + g(n + 1, u)) - 1. With N = sum_i p_i |kv_i| t_i and D = sum_i p_i
//          t_i the quotient is within (N + |y| D) / (1 - D), and rounded.
// norm     Let b be the bound of x, B = |b|_2 / sqrt(dim), r the root. The root of what is wrong by
//          b is within B of r, as sqrt(mean of squares + eps) grows by no more than that; squares,
//          their sum and the root itself make it wrong by a factor within h = g(dim + 2, u) / 2 +
//          root_error. So 1 / r is wrong by a factor within H = (1 + h) / (1 - B / r) - 1, and
//          x_j w_j / r by |w_j| (|x_j| H + b_j (1 + H)) / r; then g(2, u) of what comes out.
// rotation Two products and their sum: g(2, u) of their magnitudes.
//
// Sources: Higham, Accuracy and Stability of Numerical Algorithms, ch. 3. Tested by
// tests/kernels/compress_test.cc and tests/check/indexer_vectors_test.cc.
#pragma once

#include <Eigen/Core>

#include "oracle/compress_oracle.h"

namespace shadowgraph {

/// The defaults are ours: double; twice, as the oracle rounds, too.
struct CompressArithmetic {
  double u = 0x1p-52;
  double exp_error = 0x1p-49;   // relative
  double root_error = 0x1p-50;  // relative, of the root and of the division by it
};

/// [head_dim], absolute, of truth.pooled, before it is rounded to the output's type.
Eigen::ArrayXd pool_bound(const PoolTruth& truth, const CompressArithmetic& arithmetic);

/// [head_dim], absolute, of truth.out, before it is rounded to the output's type. before: of
/// truth.x.
Eigen::ArrayXd norm_bound(const NormTruth& truth, const Eigen::ArrayXd& before,
                          const ConstTensorView& weight, const ConstTensorView& freqs, int64_t row,
                          const CompressArithmetic& arithmetic);

}  // namespace shadowgraph
