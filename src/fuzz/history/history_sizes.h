// The sizes of a generated history. Tested by tests/fuzz/model_probes_test.cc.
#pragma once

#include <string_view>

#include "core/choices.h"
#include "core/edges.h"
#include "fuzz/history/history.h"

namespace shadowgraph {

/// Page size, requests, contexts, extends, steps and buckets. Most histories are small: all of
/// their time goes into combinations. The others have one size around an edge of backends and
/// kernels.
void choose_sizes(const Backend& backend, Choices& choices, History* history);

/// Below, at or above an edge on this axis, or its double or triple; at most `most`, and one. The
/// edge is at least `least`: small histories have every size below it.
int32_t near_edge(Choices& choices, Axis axis, int32_t most, int32_t least = 8);

inline bool is_long(const History& h) { return h.sizes == HistorySizes::kLongContexts; }
/// A window_left: short, or around an edge where contexts are long.
int32_t choose_window(std::string_view factor, Choices& choices, const History& history);

}  // namespace shadowgraph
