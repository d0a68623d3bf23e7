// Every violation of an input at once; empty if the kernels may run. Nothing is dereferenced before
// it is known to be in range. Tested by tests/attn/validate_test.cc.
#pragma once

#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// plan: what plan_attention writes.
Status validate(const PagedAttention& call, std::span<int32_t> plan = {});
Status validate(const RaggedAttention& call);
template <LseBase Base>
Status validate(const MergeStates<Base>& call);
template <LseBase Base>
Status validate(const MergeState<Base>& call);
Status validate(const StoreKv& call);
Status validate(const CopyKv& call);

}  // namespace shadowgraph
