// Which other arithmetic a recorded kernel may have, where its results are wrong by its own. Tested
// by tests/check/promises_test.cc.
#pragma once

#include "attn/cases/recorded_case.h"
#include "check/bounds/compare.h"

namespace shadowgraph {

/// Adds to a diagnosis that does not explain all results, as its likeliest cause, the first listed
/// arithmetic whose bound accepts every row, if there is one. j: the judgement of the same result,
/// diagnosed.
void suggest_arithmetic(const AnyCall& call, const Recorded& recorded, const Result& result,
                        const JudgeOptions& how, Judgement* j);

}  // namespace shadowgraph
