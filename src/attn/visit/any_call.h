// AnyCall: an attention call of any form, as a value.
#pragma once

#include <variant>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

using AnyCall =
    std::variant<PagedAttention, RaggedAttention, MergeStates<LseBase::kLog2>, SparseAttention>;

}  // namespace shadowgraph
