// The oracle of causal_conv1d: the definition, in double, one token at a time over a list of all
// the inputs before it.
//
// It is the slow truth, and shares with the kernel the vocabulary alone: no windows, no blocks.
// Calls must be such that causal_conv1d accepts them, with the states as they are before it.
// Tested by tests/kernels/causal_conv1d_test.cc.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>

#include "oracle/oracle.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// What one token gives, and what an error bound needs to know of the way to it. Valid during the
/// visit. Of a row that gets zeros (PadRow::kZeroOut) out and magnitude alone: 0.
struct ConvToken {
  int64_t row = 0;
  int64_t token = 0, in_row = 0;  // of the batch, of the row
  bool computed = true;           // false: zeros
  Eigen::ArrayXd sum;             // [dim] before the activation
  Eigen::ArrayXd magnitude;       // [dim] |bias| + sum |w x|
  Eigen::ArrayXd out;             // [dim]
  RowMatrix window;               // [dim, width - 1], what the token after it would see
  bool kept = false;              // is the window to be found among the draft's?
};
using VisitConvToken = std::function<void(const ConvToken&)>;

/// Visits every token but those of rows that get nothing.
void for_each_token(const CausalConv1d& call, const VisitConvToken& visit);

/// [dim, width - 1]: what the row leaves in its slot. Requires that it has a slot, and tokens.
RowMatrix conv_state_after(const CausalConv1d& call, int64_t row);

}  // namespace shadowgraph
