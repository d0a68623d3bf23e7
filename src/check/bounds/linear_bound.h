// The derived error bound of linear attention (T1): how far a kernel's outputs and states may lie
// from the oracle's, given its arithmetic. Nothing in it is tuned.
//
// One token after the other. Of row v of a head's state let e bound the 2-norm of its error before
// the token, n = |S_v a| the norm of the decayed row, and kappa = |k|, theta = |q|. Decays,
// weights, k and q are within relative errors h_a, h_b, h_k, h_q of theirs; u is the roundoff of an
// operation, G = g(head_dim_k + 2, u_sum) that of a dot, g(m, u) = m u / (1 - m u).
//
// The decayed row is within e1 = max a (1 + h_a) e + h_a n. What the delta rule makes of an error d
// of it is d (I - beta k k^T), of norm c |d|, c = max(1, |1 - beta kappa^2|) (1: the add rule).
// What is not of that form is wrong in u alone, of which
//
//   w = beta [ e1 kappa (H - 1) + (h_k n + G (n + e1) (1 + h_k)) kappa H ] + (H' - 1) |u|,
//   H' = (1 + h_b) (1 + u)^2,  H = (1 + h_k) H',
//
// so that e' = c e1 + kappa w + h_k kappa (|u| + w') + u (n + e1 + n' + ...), where n' = |S'_v| and
// w' = w + beta kappa e1 H bounds the whole error of u. The sum behind the token may be read as
// S' q, or as S (a q) + u (k.q); either is within
//
//   e' theta (1 + h_q) + (n + e1 + n' + (|u| + w') kappa) theta (h_q + h_k + G (1 + h_q)).
//
// A tree's token starts from its parent's state as it is kept: rounded to the type of the states
// kept, so the error of each row grows by that type's roundoff times the row's norm.
//
// Norms of vectors bound dots by Cauchy and Schwarz; an element is within its row's e. Skip, gate
// and the last rounding come on top. What lies below the normal range may be flushed: 2^-126 for
// each product. Sources: Higham, Accuracy and Stability of Numerical Algorithms, ch. 3. Tested by
// tests/kernels/linear_attention_test.cc and tests/check/linear_vectors_test.cc.
#pragma once

#include <Eigen/Core>
#include <string_view>
#include <utility>
#include <vector>

#include "oracle/linear_oracle.h"

namespace shadowgraph {

/// What the bound has to know of a kernel. The defaults are plain f32, in an unknown order.
struct RecurrentArithmetic {
  std::string_view kernel;
  double u = 0x1p-24, u_sum = 0x1p-24;
  double exp_error = 0x1p-22;   // relative, of exp(log_decay)
  double norm_error = 0x1p-22;  // relative, of q and k where they are normalised or scaled
  double scale_error = 0;       // relative, of the call's scale beside the kernel's
  double beta_error = 0;        // relative, of what is given
  // Errors of gates: relative for a logarithm and a weight; absolute for the softplus, for each
  // unit of 1 + |x| (the sum that it gets is rounded, too)
  double gate_relative = 0x1p-20, gate_absolute = 0x1p-22;
  double silu_error = 0x1p-21;  // relative, of z sigmoid(z)
  int out_roundings = 1;        // of skip and gate
  // u k is rounded to the type of k and v before it is added
  bool outer_in_type = false;
  // Dots of S and q over so many channels each are rounded to the output's type, then summed; 0:
  // one
  int partial_channels = 0;
  // Tokens that are taken together from each row's first on, in products of rounded factors
  // (chunk_bound.h); kCallsChunk: as the call's chunk_size and chunk_grid say; 0: one by one
  static constexpr int kCallsChunk = -1;
  int chunk = 0;
  // In a chunk, operands of products are f32 as they come, a sum goes on from the state's part, and
  // the triangle is solved by substitution
  bool f32_products = false;
  // In a chunk, decays between tokens are products of the decays of each
  bool running_decays = false;
  bool rounds_kept = true;  // a tree reads its parents' states in the type that keeps them
};

inline constexpr RecurrentArithmetic kRecurrentArithmetics[] = {
#define SG_RECURRENT_ARITHMETIC(name, ...) \
  RecurrentArithmetic{.kernel = #name __VA_OPT__(, ) __VA_ARGS__},
#include "check/bounds/recurrent_arithmetics.inc"
#undef SG_RECURRENT_ARITHMETIC
};

/// nullptr for a kernel that is not listed.
constexpr const RecurrentArithmetic* find_recurrent_arithmetic(std::string_view kernel) {
  for (const RecurrentArithmetic& a : kRecurrentArithmetics) {
    if (a.kernel == kernel) return &a;
  }
  return nullptr;
}

/// Absolute errors of gates beside their values, as GateTruth has these; empty: exact.
struct GateErrors {
  std::vector<double> log_decay, beta;
};

/// Errors of a gate's numbers: softplus grows by at most 1, a sigmoid by 1/4.
GateErrors gate_errors(const DecayGate& gate, const GateTruth& truth,
                       const RecurrentArithmetic& arithmetic);

struct StepBound {
  Eigen::VectorXd out;    // [head_dim_v], before the rounding to the output's type
  Eigen::VectorXd state;  // [head_dim_v]: of any element of the state's row behind the token
};

/// Bounds of the steps, in the order in which for_each_step visits them. Where tokens are taken
/// together the state's bound is infinite, except behind a chunk's last token and a row's last
/// token.
class LinearBounds {
 public:
  LinearBounds(const LinearAttention& call, const RecurrentArithmetic& arithmetic,
               const GateTruth& gates, GateErrors errors);

  /// A reference into this; valid until the next call.
  const StepBound& of(const LinearStep& step);

 private:
  double log_error(const LinearStep& step) const;
  /// Error of the rows of the state that the token starts from.
  Eigen::VectorXd error_before(const LinearStep& step) const;
  double decay_error(const LinearStep& step) const;
  double beta_error(const LinearStep& step) const;
  /// The sum of the magnitudes of partial dots, each of which is rounded once more.
  double partial_sum(const LinearStep& step, int64_t v) const;
  /// Error of the output, if what is read of the state is within `read`.
  double out_error(const LinearStep& step, int64_t v, double read, double partial) const;
  bool ends_chunk(const LinearStep& step) const;
  void bound_chunks();

  const LinearAttention& call_;
  const RecurrentArithmetic& a_;
  const GateTruth& gates_;
  const GateErrors errors_;
  std::vector<Eigen::VectorXd> behind_;  // of the tokens of this row and head
  StepBound bound_;
  std::vector<StepBound> in_chunks_;  // [tokens, num_v_heads], where tokens are taken together
};

/// Where element number `flat` of a view stands, row-major, whatever its strides; in elements.
int64_t element_offset(const ConstTensorView& t, int64_t flat);
/// That element, of any type.
double element(const ConstTensorView& t, int64_t flat);
/// What rounding to t adds to a value that is within `error` of `value`.
double with_rounding(double value, double error, DType t);

}  // namespace shadowgraph
