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

inline bool is_long(const History& h) { return h.sizes == HistorySizes::kLongContexts; }
/// A window_left: short, or around an edge where contexts are long.
int32_t choose_window(std::string_view factor, Choices& choices, const History& history);

}  // namespace shadowgraph
