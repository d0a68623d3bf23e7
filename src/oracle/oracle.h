// The oracle: attention written down as its definition, dense, in double, one row at a time.
//
// It is the slow truth. Never use it in production: it exists so that fast kernels can be held
// against it. It shares with them the vocabulary (mask predicate, page table, element formats) and
// nothing else: no tiles, no online softmax. Calls must be such that the engine accepts them.
// Tested by tests/oracle/oracle_test.cc.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <vector>

#include "attn/dual_chunk.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

using RowMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// One query row of one head: the true result, and what an error bound needs to know of the way to
/// it. Logits are natural, after scale and soft cap. For merges the states with mass are the keys.
struct OracleRow {
  int64_t row = 0;            // index into q, out and lse
  int32_t head = 0;           // query head
  std::vector<int32_t> keys;  // positions of the keys that it sees, ascending
  Eigen::ArrayXd logits;      // [keys] s_j, with all that is added
  Eigen::ArrayXd uncapped;    // [keys] |s_j| before the soft cap and all that follows it
  Eigen::ArrayXd added;       // [keys] sum of |what was added| (AttentionTerms); else empty
  Eigen::ArrayXd magnitudes;  // [keys] |scale z_j| products_j: the condition of q.k
  Eigen::ArrayXd products;    // [keys] sum_i |q_i k_ji|, of the stored k
  Eigen::ArrayXd weights;     // [keys] p_j; with the sink's weight they sum to 1
  // [kv_len, head_dim_vo], all scales included; `keys` are valid
  const RowMatrix* values = nullptr;
  // Largest |q_i|, stored |k_ji|, and |v_ji| of any visible key
  double query_max = 0, key_max = 0, value_max = 0;
  // An i8 cache: tokens have scales of their own, beside `scale` and `v_scale`
  bool k_scaled = false, v_scaled = false;
  Eigen::ArrayXd key_scales;   // [keys] |z_j|; else 1
  double value_scale_max = 1;  // largest |scale of v_j| of any visible key; else 1
  Eigen::ArrayXd out;          // [head_dim_vo]; 0 for an empty row
  double lse = 0;              // without the sink; -inf for an empty row
  double lse_with_sink = 0;    // equal to lse where there is no sink
  // Sums of exp(s_j - M), M the largest of the logits: what an LSE far from 0 has no digits for
  double mass = 0, mass_with_sink = 0;
  double sink = 0;   // its logit; -inf: none
  double scale = 1;  // multiplies q.k: sm_scale * k_scale
  double v_scale = 1;
  double soft_cap = 0;     // 0: off
  double temperature = 1;  // multiplies the capped logit, and magnitudes
  // Factors of `scale` and `v_scale` beside sm_scale, k_scale and v_scale
  int32_t scale_factors = 0, v_scale_factors = 0;
  // Elements of q that are not 0, at least 1: products in q.k. All, where keys of a row meet
  // several queries; 0 where the logits are inputs (merges)
  int32_t terms = 0;

  bool empty() const { return keys.empty(); }
  double lse_as(LseSink s) const { return s == LseSink::kIncluded ? lse_with_sink : lse; }
  double mass_as(LseSink s) const { return s == LseSink::kIncluded ? mass_with_sink : mass; }
};

using VisitRow = std::function<void(const OracleRow&)>;

/// Visits every (query row, query head); the row is valid during the visit. Keys that no row sees
/// are never read; a key that a row does not see has no influence on it. out and lse are not looked
/// at.
void for_each_row(const PagedAttention& call, const VisitRow& visit);
void for_each_row(const RaggedAttention& call, const VisitRow& visit);
/// Each key's logit with the query that its chunk asks for. Requires causal rows without another
/// mask, each with as many keys as queries at least.
void for_each_row(const DualChunkCall<PagedAttention>& call, const VisitRow& visit);
void for_each_row(const DualChunkCall<RaggedAttention>& call, const VisitRow& visit);
/// Logits are s (made natural), values v. A state with s = +-inf has no mass.
void for_each_row(const MergeStates<LseBase::kNatural>& call, const VisitRow& visit);
void for_each_row(const MergeStates<LseBase::kLog2>& call, const VisitRow& visit);

}  // namespace shadowgraph
