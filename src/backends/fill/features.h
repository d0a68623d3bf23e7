// Features of a model or a batch that only some backends serve, a row each. The rows say what is
// refused of a backend without the feature, and what a composed backend has of its parts. Tested by
// tests/backends/features_test.cc.
#pragma once

#include <algorithm>
#include <string>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

struct Feature {
  const char* member;   // its name in refusals
  const char* without;  // the value that a backend without the feature expects
  bool BackendInfo::*served;
  /// The value that limits have of it, as text; empty: they ask for nothing.
  std::string (*asked)(const Limits& limits);
};

/// The value's text, unless it is the one that asks for nothing.
inline std::string other_than(int32_t nothing, int32_t value) {
  return value == nothing ? "" : std::to_string(value);
}

inline constexpr Feature kFeatures[] = {
    {"topk", "1", &BackendInfo::tree,
     [](const Limits& l) { return other_than(1, std::max(1, l.model.topk)); }},
    {"max_items_len", "0", &BackendInfo::items,
     [](const Limits& l) { return other_than(0, std::max(0, l.max_items_len)); }},
    {"in_graph_tables", "no", &BackendInfo::in_graph_tables,
     [](const Limits& l) { return std::string(l.model.in_graph_tables ? "yes" : ""); }},
    {"prefix_chunk_tokens", "0", &BackendInfo::prefix_chunks,
     [](const Limits& l) { return other_than(0, l.model.prefix_chunk_tokens); }},
    {"max_encoder_len", "0", &BackendInfo::encoder,
     [](const Limits& l) { return other_than(0, std::max(0, l.model.max_encoder_len)); }},
    {"dcp_size", "1", &BackendInfo::dcp,
     [](const Limits& l) { return other_than(1, l.model.dcp_size); }},
    {"swa_pool", "no window pool", &BackendInfo::swa_pool,
     [](const Limits& l) { return other_than(0, l.model.swa_pool); }},
    {"sinks", "none", &BackendInfo::sinks,
     [](const Limits& l) {
       const auto has = [](const LayerKind& k) { return !k.params.sinks.empty(); };
       const auto layers = std::ranges::count_if(l.model.layers, has);
       return other_than(0, static_cast<int32_t>(layers));
     }},
    {"track_states", "no", &BackendInfo::track_states,
     [](const Limits& l) { return other_than(0, l.model.track_states); }},
};

}  // namespace shadowgraph
