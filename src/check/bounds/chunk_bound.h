// The derived error bound of chunked linear attention: as linear_bound.h, for kernels that take the
// tokens of a chunk together. With G_ij the decay from behind token j to token i, G_i that from the
// chunk's start, S the state there, and all of it for one row v of the state,
//
//   L_ij = beta_i (k_i G_ij . k_j) for j < i, T = (I + L)^-1   (the add rule: L = 0)
//   w_i = sum_j T_ij beta_j G_j k_j,   u_i = sum_j T_ij beta_j v_j - S w_i
//   out_i = S (G_i q_i) + sum_{j <= i} (q_i G_ij . k_j) u_j
//   S' = S G_C + sum_j u_j G_Cj k_j^T
//
// is the recurrence. A kernel rounds operands of its matrix products to the activations' type (f32:
// to TF32) by p: k and q once more than they are given, T, w, u, the decayed products and S once
// each. Sums are f32. h_k, h_q, h_b, h_G: relative errors of k, q, beta and decays.
//
// L is within D = |L| ((1 + h_k)^2 (1 + h_G) (1 + h_b) (1 + g) - 1) + |L| (what inverting rounds),
// |L| with magnitudes in its dots, so T is within R = (I - |T| D)^-1 |T| D |T| (strictly lower
// triangular: the sum is finite), and p |T| for its rounding. From there magnitudes are followed
// term by term: u_i is within eps_i of what exact factors give of the state as it is. An error e of
// the state goes through the recurrence itself, a product of contractions, and is multiplied with
// the rounding of all else.
//
// In plain f32 (RecurrentArithmetic::f32_products) p is u, which then stands for the rounding of
// each factor that is made; U is solved by substitution from beta (V - G S K), within g_C of |L|
// and of the right side (Higham, theorem 8.5), so the dots S k are under the inverse and T is not
// rounded anew; and the chain of a sum over tokens begins with the state's part, which g_C then
// counts for.
//
// Sources: Higham, Accuracy and Stability of Numerical Algorithms, ch. 3, 8 and 14; the form of the
// chunk: Yang et al., Parallelizing Linear Transformers with the Delta Rule (2024). Tested by
// tests/check/linear_vectors_test.cc.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "check/bounds/linear_bound.h"

namespace shadowgraph {

/// A token of a chunk, as for_each_step shows it, and how far its gates may be off.
struct ChunkToken {
  Eigen::VectorXd q, k, v, decay, u;
  double beta = 1, beta_error = 0;
  double log_error = 0;  // absolute, of the logarithm of its decay
};

struct ChunkBound {
  std::vector<Eigen::VectorXd> read;  // of S q of each token: [head_dim_v]
  Eigen::VectorXd state;              // behind the chunk
};

/// before: the state at its start, within `error` in the 2-norm of each row.
ChunkBound chunk_bound(const std::vector<ChunkToken>& tokens, const RowMatrix& before,
                       const Eigen::VectorXd& error, bool delta, bool normalised,
                       const RecurrentArithmetic& arithmetic, DType type, DType state_type);

}  // namespace shadowgraph
