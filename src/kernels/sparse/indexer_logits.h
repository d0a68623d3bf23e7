// indexer_logits: the scores by which sparse attention chooses keys (shadowgraph/layers/indexer.h).
// Tested by tests/kernels/indexer_logits_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

/// Requires a call that validate() accepts. Takes a token's queries in double for each thread,
/// first of all.
void indexer_logits_kernel(const IndexerLogits& call);
/// Rows are tokens; lists are nobody's.
Footprint indexer_logits_footprint(const IndexerLogits& call);

}  // namespace shadowgraph
