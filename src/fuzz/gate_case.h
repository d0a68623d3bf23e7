// decay_gate under the same ladder as calls over states: exact where softplus and sigmoid are,
// within the bound elsewhere; tokens have the same bits in another order and with other strides;
// nothing but the outputs is written, and a broken gate is refused.
#pragma once

#include "fuzz/laws.h"

namespace shadowgraph {

/// x.linear: its tokens are those of all its rows.
Status check_gate_case(const Case& x, const RunOptions& options);

}  // namespace shadowgraph
