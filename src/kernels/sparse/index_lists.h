// select_indices, transform_indices, compact_indices: which keys a token attends to, and where they
// are (shadowgraph/layers/indexer.h). Tested by tests/kernels/index_lists_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

/// They require calls that validate() accepts, and allocate nothing.
void select_indices_kernel(const SelectIndices& call);
void transform_indices_kernel(const TransformIndices& call);
void compact_indices_kernel(const CompactIndices& call);
/// Rows are tokens; lists are nobody's.
Footprint select_indices_footprint(const SelectIndices& call);
Footprint transform_indices_footprint(const TransformIndices& call);
Footprint compact_indices_footprint(const CompactIndices& call);

}  // namespace shadowgraph
