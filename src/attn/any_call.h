// AnyCall: an attention call of any form, as a value.
#pragma once

#include <variant>

#include "shadowgraph/attention.h"
#include "shadowgraph/sparse.h"

namespace shadowgraph {

using AnyCall =
    std::variant<PagedAttention, RaggedAttention, MergeStates<LseBase::kLog2>, SparseAttention>;

}  // namespace shadowgraph
