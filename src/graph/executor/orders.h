// Every order in which a body's nodes may run, one for each that can make a difference.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "graph/capture/graph_store.h"

namespace shadowgraph {

/// Visits the topological orders of body that differ in more than the order of neighbours without
/// conflict: of each such class the one with low ordinals first. visit returns false to stop.
void for_each_order(const ExecBody& body, const std::function<bool(int32_t, int32_t)>& conflicts,
                    const std::function<bool(std::span<const int32_t>)>& visit);

}  // namespace shadowgraph
