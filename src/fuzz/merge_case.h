// merge_states under the same ladder: exact where all states weigh the same, the bound elsewhere;
// empty states (either infinity, with poison for a value) change nothing; rows do not depend on
// each other or on threads.
#pragma once

#include "fuzz/laws.h"

namespace shadowgraph {

/// x.requests[0]: q_len rows, kv_len states.
Status check_merge_case(const Case& x, const RunOptions& options);

}  // namespace shadowgraph
