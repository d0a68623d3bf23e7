// Attention over chosen keys on exact data: each row is the mean of the latents that weigh 1, known
// bit for bit, and a wrong one names the slot that was read or left out.
#pragma once

#include "attn/cases/case.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// x.data is exact; the call has run.
Status check_exact_attention(const Case& x, const SparseAttention& call);

}  // namespace shadowgraph
