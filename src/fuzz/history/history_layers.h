// The layers of a generated history.
#pragma once

#include "core/choices.h"
#include "fuzz/history/history.h"

namespace shadowgraph {

/// The model's layers. Needs pages, features and context of the runtime, which it may narrow.
void choose_layers(const Backend& backend, Choices& choices, History* history);

/// Scale, soft cap, sinks and scales of the pools, and further layers that differ from another one
/// in exactly one of what a layer has of its own. Needs the layers, and the data and type of the
/// pools.
void choose_scalars(const Backend& backend, Choices& choices, History* history);

}  // namespace shadowgraph
