// store_index_keys, gather_index_keys: index keys and their scales into pages of 64 tokens, and out
// of them (shadowgraph/layers/indexer.h). Tested by tests/kernels/index_keys_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

/// They require calls that validate() accepts, and allocate nothing.
void store_index_keys_kernel(const StoreIndexKeys& call);
void gather_index_keys_kernel(const GatherIndexKeys& call);
/// Rows are tokens; the list of slots is nobody's.
Footprint store_index_keys_footprint(const StoreIndexKeys& call);
/// Rows are requests.
Footprint gather_index_keys_footprint(const GatherIndexKeys& call);

}  // namespace shadowgraph
