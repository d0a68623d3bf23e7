// decay_gate: decays and weights of a recurrence, of what a model's projections give
// (shadowgraph/layers/recurrent.h). Each number is computed in double, of operations that every
// machine rounds alike, and rounded to f32. Tested by tests/kernels/decay_gate_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// Requires a gate that validate() accepts. Allocates nothing.
void decay_gate_kernel(const DecayGate& gate);
/// Rows are tokens; what all of them share has row -1.
Footprint decay_gate_footprint(const DecayGate& gate);

}  // namespace shadowgraph
