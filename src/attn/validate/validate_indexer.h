// Every violation of a call of the indexer at once: shapes, dtypes, slots and pages outside the
// pool or named twice where they are written, ranges that are none, offsets that do not fit, memory
// that overlaps. Tested by tests/attn/validate_indexer_test.cc.
#pragma once

#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

Status validate(const ActQuant& call);
Status validate(const StoreIndexKeys& call);
Status validate(const GatherIndexKeys& call);
Status validate(const IndexerLogits& call);
Status validate(const SelectIndices& call);
Status validate(const TransformIndices& call);
Status validate(const CompactIndices& call);

}  // namespace shadowgraph
