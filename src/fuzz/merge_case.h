// merge_states under the same ladder: exact where all states weigh the same, the bound elsewhere;
// empty states (either infinity, with poison for a value) change nothing; rows have the same bits
// in reverse, with other gaps between them, threads and instruction set, without an LSE, and two
// states the same bits through merge_state; nothing but the output's rows is written.
#pragma once

#include "fuzz/laws.h"

namespace shadowgraph {

/// x.requests[0]: q_len rows, kv_len states.
Status check_merge_case(const Case& x, const RunOptions& options);

}  // namespace shadowgraph
