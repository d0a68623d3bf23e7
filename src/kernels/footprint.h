// The footprint of attention, in closed form: what a paged or ragged call reads, touches and
// writes, whichever kernel runs it. Tested by tests/kernels/footprint_test.cc.
#pragma once

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// Requires a call that validate() accepts. Buffers are the call's data pointers. Keys that the
/// causal and window range of some row holds are read, or touched where the custom mask hides them
/// from every row; of a panel that holds such a key, all else is touched too (a span that is
/// touched may hold spans that are read). The scales of i8 keys likewise, one by one. Of the page
/// table, the entries of those keys. Metadata that is read whole (indptrs, lengths, sinks) has row
/// -1.
Footprint attention_footprint(const PagedAttention& call);
Footprint attention_footprint(const RaggedAttention& call);
/// The lists of terms, which are read whole.
void add_term_lists(const AttentionTerms& t, Footprint* spans);

}  // namespace shadowgraph
