// The ways to break a call over recurrent states. Tested by tests/fuzz/linear_laws_test.cc.
#pragma once

#include "fuzz/refusals.h"
#include "fuzz/state_call.h"

namespace shadowgraph {

std::span<const Breakage<StateCall>> linear_breakages();

}  // namespace shadowgraph
