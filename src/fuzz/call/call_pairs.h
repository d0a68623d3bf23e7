// Which calls of kernels a run makes in which order: by a covering of each kind's pairs of levels
// (core/covering.h). Tested by tests/fuzz/pairs_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "attn/cases/case.h"
#include "core/covering.h"

namespace shadowgraph {

/// Kinds of calls: a kernel, and of recurrent and sparse ones the call.
size_t num_call_kinds();
/// "sparse pack_latents".
std::string name_of_call_kind(size_t kind);
size_t call_kind_of(const Case& x);
const Covering& covering_of_call(size_t kind);

/// The choices of the Case with that number.
Choices case_choices(uint64_t seed, uint64_t number);

}  // namespace shadowgraph
