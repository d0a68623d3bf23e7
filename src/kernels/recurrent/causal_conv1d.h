// causal_conv1d: a convolution of each channel with the tokens before it, over states in slots
// (shadowgraph/layers/recurrent.h). Tested by tests/kernels/causal_conv1d_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

inline constexpr int kMostConvWidth = 8;  // no edge: every width is drawn

/// Requires a call that validate() accepts. Allocates nothing.
void causal_conv1d_kernel(const CausalConv1d& call);
/// Buffers are the call's data pointers; weights, bias and the lists of rows have row -1.
Footprint causal_conv1d_footprint(const CausalConv1d& call);

}  // namespace shadowgraph
