// The oracle of linear attention: the recurrence of shadowgraph/layers/recurrent.h written down as
// it stands, in double, one token and one head at a time.
//
// It is the slow truth, and shares with the kernels the vocabulary alone. Calls must be such that
// linear_attention accepts them. Tested by tests/check/linear_vectors_test.cc: float64 results
// of others.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>

#include "oracle/gate_oracle.h"
#include "oracle/oracle.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// What a token did to one head's state, and what an error bound needs to know of the way to it.
/// Valid during the visit.
struct LinearStep {
  int64_t row = 0, head = 0;      // of the batch; value head
  int64_t token = 0, in_row = 0;  // of the batch, of the row
  int64_t parent = -1;  // the earlier token of the row that it follows; -1: the row's state
  Eigen::VectorXd q, k, v,
      decay;  // q scaled, q and k normalised where the call says so; [head_dim_k]
  double beta = 1, q_factor = 1, k_factor = 1;  // q = q_factor times what is stored
  const RowMatrix* before = nullptr;            // [head_dim_v, head_dim_k]
  Eigen::VectorXd old;  // S k after the decay; 0 where the rule does not read it
  Eigen::VectorXd u;
  const RowMatrix* after = nullptr;
  Eigen::VectorXd read;    // S q
  Eigen::VectorXd summed;  // with skip v
  Eigen::VectorXd gate;    // z sigmoid(z); 1 where there is none
  Eigen::VectorXd out;     // summed times gate
};

using VisitStep = std::function<void(const LinearStep&)>;

/// gates: what makes decays and weights, where the call has none of its own. Visits every token of
/// every row at every value head, rows outermost, but for rows that get nothing (PadRow). Slots are
/// read from call.states and never written; a row's state goes on in double.
void for_each_step(const LinearAttention& call, const GateTruth& gates, const VisitStep& visit);

}  // namespace shadowgraph
