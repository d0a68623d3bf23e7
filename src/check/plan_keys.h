// A backend plans once, and launches for every layer: what a launch is given must be its own
// layer's all the same. Tested by tests/check/plan_keys_test.cc.
#pragma once

#include <span>

#include "shadowgraph/device/graph.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// plan.key unless each launch of attention over a layer's queries has that layer's heads, dims,
/// scale, soft cap, sinks and scales of the cache, and its window or none. layers: whose tensors
/// the launches name.
Status judge_plan_keys(const Graph& graph, const ModelConfig& model,
                       std::span<const LayerIo> layers);

}  // namespace shadowgraph
