// The calls of kernels that a Case may be, and what all of them have: they run, and touch what
// their footprint says.
#pragma once

#include <variant>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/compress.h"
#include "shadowgraph/layers/indexer.h"
#include "shadowgraph/layers/recurrent.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

using AttentionCall = std::variant<PagedAttention, RaggedAttention>;
using MergeCall = std::variant<MergeStates<LseBase::kNatural>, MergeStates<LseBase::kLog2>,
                               MergeState<LseBase::kNatural>, MergeState<LseBase::kLog2>>;
using StateCall = std::variant<LinearAttention, CausalConv1d>;
using GateCall = std::variant<DecayGate>;
/// In the order of SparseCase::Call.
using SparseCall = std::variant<SparseAttention, PackLatents, ActQuant, StoreIndexKeys,
                                GatherIndexKeys, IndexerLogits, SelectIndices, TransformIndices,
                                CompactIndices, Compress, PoolNormRope, NormRope>;
using CacheCall = std::variant<StoreKv, CopyKv>;

Status execute(const AttentionCall& call);
Status execute(const MergeCall& call);
Status execute(const StateCall& call);
Status execute(const GateCall& call);
Status execute(const SparseCall& call);
Status execute(const CacheCall& call);

Footprint footprint_of(const AttentionCall& call);
Footprint footprint_of(const MergeCall& call);
Footprint footprint_of(const StateCall& call);
Footprint footprint_of(const GateCall& call);
Footprint footprint_of(const SparseCall& call);
/// A CopyKv has every token of the pages that it copies.
Footprint footprint_of(const CacheCall& call);

}  // namespace shadowgraph
