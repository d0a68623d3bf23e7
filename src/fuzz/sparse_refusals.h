// The ways to break a call of the sparse family. Tested by tests/fuzz/sparse_refusals_test.cc.
#pragma once

#include "fuzz/refusals.h"
#include "fuzz/sparse_call.h"

namespace shadowgraph {

std::span<const Breakage<SparseCall>> sparse_breakages();

}  // namespace shadowgraph
