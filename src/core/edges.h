// Edges: sizes at which the code goes another way (a tile, a block, a split, a group, a capacity),
// as they stand beside their definitions. Whoever draws sizes draws them around these. Tested by
// tests/core/edges_test.cc.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/choices.h"

namespace shadowgraph {

/// The things that a size counts. `python3 scripts/edges.py` reads the names.
enum class Axis : uint8_t {
  kKeys,
  kQueryRows,  // query tokens times the query heads that share them
  kGroup,      // query heads of a KV head
  kHeads,
  kHeadDim,
  kBatch,
  kTokens,  // of a call without keys
  kChannels,
  kStates,  // partial results of a row
  kPages,
};

struct Edge {
  std::string_view file;  // "kernels/dense/prefill.h"
  Axis axis;
  int32_t size;
};

/// The sizes on an axis in the files whose path has `part` in it ("kernels/dense", "flash_mla"):
/// ascending, each once.
std::vector<int32_t> edges_of(std::string_view part, Axis axis);

/// Below, at or above an edge on this axis, or a multiple of it up to `times`; at most `most`, and
/// one. The edge is at least `least`, or `most` where that is less.
int32_t near_edge(Choices& choices, Axis axis, int32_t most, int32_t least = 8, int32_t times = 3);

}  // namespace shadowgraph
