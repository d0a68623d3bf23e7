// Which of the units this machine runs.
#pragma once

#include <string_view>

#include "bench/units/unit.h"

namespace shadowgraph::bench {

/// Is it one of available_isas()?
bool has_isa(std::string_view name);
/// The widest vectors that this machine has.
const Unit& best_unit();

}  // namespace shadowgraph::bench
