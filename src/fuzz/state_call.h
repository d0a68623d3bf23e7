// Any call over recurrent states, and what both have.
#pragma once

#include <variant>

#include "shadowgraph/access.h"
#include "shadowgraph/linear.h"

namespace shadowgraph {

using StateCall = std::variant<LinearAttention, CausalConv1d>;

Status execute(const StateCall& call);
Footprint footprint_of(const StateCall& call);

}  // namespace shadowgraph
