// Any call of the sparse family, and what all of them have.
#pragma once

#include <variant>

#include "shadowgraph/access.h"
#include "shadowgraph/compress.h"
#include "shadowgraph/indexer.h"
#include "shadowgraph/sparse.h"

namespace shadowgraph {

/// In the order of SparseCase::Call.
using SparseCall = std::variant<SparseAttention, PackLatents, ActQuant, StoreIndexKeys,
                                GatherIndexKeys, IndexerLogits, SelectIndices, TransformIndices,
                                CompactIndices, Compress, PoolNormRope, NormRope>;

Status execute(const SparseCall& call);
Footprint footprint_of(const SparseCall& call);

}  // namespace shadowgraph
