// Every violation of a call over chosen keys at once: shapes, layouts of pools, lists that disagree
// with the tokens, entries that are no slots or stand twice, memory that overlaps. Tested by
// tests/attn/validate_sparse_test.cc.
#pragma once

#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

Status validate(const SparseAttention& call);
Status validate(const PackLatents& call);

}  // namespace shadowgraph
