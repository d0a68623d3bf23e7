// linear_attention: a state that decays, is added to and read (shadowgraph/layers/recurrent.h).
// Tested by tests/kernels/linear_attention_test.cc, linear_draft_test.cc and
// linear_footprint_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// Requires a call that validate() accepts. Buffers are the call's data pointers; what belongs to
/// no row (lists of rows, decays and skips of heads) has row -1. States of a draft are written, and
/// a tree reads back what it wrote.
Footprint linear_attention_footprint(const LinearAttention& call);

}  // namespace shadowgraph
