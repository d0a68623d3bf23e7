// generate_linear: the part of a Case that calls the linear family, as a function of Choices:
// recurrences as models have them and mixed, prefills, decodes, chains and trees of drafts, rows of
// padding, from zero and without tokens; convolutions; gates. Tested by
// tests/fuzz/linear_laws_test.cc.
#pragma once

#include "attn/case.h"
#include "core/choices.h"

namespace shadowgraph {

/// A case with chosen data.
LinearCase generate_linear(Choices& choices, CaseData data);

}  // namespace shadowgraph
