// act_quant: blocks of 128 values as e4m3 and a scale (shadowgraph/layers/indexer.h). Tested by
// tests/kernels/act_quant_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

/// Requires a call that validate() accepts. Allocates nothing.
void act_quant_kernel(const ActQuant& call);
/// Rows are tokens.
Footprint act_quant_footprint(const ActQuant& call);

}  // namespace shadowgraph
