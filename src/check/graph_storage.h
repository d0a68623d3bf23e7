// A runner's graphs bind slices of one allocation, as an engine's do: buckets of a mode share it,
// and modes where the backend says so (BackendInfo::graph_storage). Tested by
// tests/check/graph_storage_test.cc.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// A graph that may be captured: the scope that its metadata is bound in, and what it is bound for.
struct PlannedGraph {
  std::string scope;
  Limits limits;
};

using BindFn = std::function<Status(const Arena&, const Limits&, Meta*)>;

/// Gives the buffers of these graphs, the largest first, their places before the first of them is
/// bound. others: graphs of modes that may be captured later; storage that these share is as large
/// as they need, too.
Status share_storage(const Arena& arena, std::span<const PlannedGraph> graphs,
                     std::span<const PlannedGraph> others, const BindFn& bind);

}  // namespace shadowgraph
