// The oracle ladder of calls of the sparse family: exact data, the derived bound, the same bits in
// other slots, pages, forms, orders, pieces, threads and instruction sets, write sets, footprints,
// and refusals. Tested by tests/fuzz/sparse_laws_test.cc.
#pragma once

#include "fuzz/call/ladder.h"
#include "fuzz/call/sparse_judge.h"

namespace shadowgraph {

Status check_sparse_case(const Case& x, const RunOptions& options);

/// Another arrangement of the same values, which must have the same bits.
SparseArrangement vary_sparse(const Case& x, const RunOptions& options, Rng& rng);

}  // namespace shadowgraph
