// generate_recurrent: the part of a Case that calls the linear family, as a function of Choices:
// recurrences as models have them and mixed, prefills, decodes, chains and trees of drafts, rows of
// padding, from zero and without tokens; convolutions; gates. Tested by
// tests/fuzz/recurrent_laws_test.cc.
#pragma once

#include "attn/cases/case.h"
#include "core/choices.h"

namespace shadowgraph {

/// A case with chosen data.
/// The draw of the call, of sparse ones too.
inline constexpr std::string_view kCallFactor = "call";
RecurrentCase generate_recurrent(Choices& choices, CaseData data);

}  // namespace shadowgraph
