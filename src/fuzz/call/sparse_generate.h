// Cases of the sparse family as a function of Choices; first choices are the simplest. Tested by
// tests/fuzz/sparse_laws_test.cc.
#pragma once

#include "attn/cases/sparse_case.h"
#include "core/choices.h"

namespace shadowgraph {

SparseCase generate_sparse(Choices& choices);

}  // namespace shadowgraph
