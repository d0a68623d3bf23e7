// The chunked form of linear_attention. Tested by tests/kernels/linear_chunked_test.cc.
#pragma once

#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// Requires a call that validate() accepts.
void run_chunked(const LinearAttention& call);

}  // namespace shadowgraph
