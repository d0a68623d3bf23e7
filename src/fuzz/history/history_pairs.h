// Which histories a run plays in which order: by a covering of each backend's pairs of levels
// (core/covering.h). Tested by tests/fuzz/pairs_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/covering.h"
#include "fuzz/history/history.h"

namespace shadowgraph {

/// "runs decode replay": some step of a history does.
Level run_level(ForwardMode mode, bool replay);

/// The levels of a history that these choices made, with what its steps may run.
std::vector<Level> levels_of(const History& history, const Choices& choices);

/// Does all_backends() have it?
bool is_covered(const Backend& backend);
/// The covering of a backend's histories; nullptr if it is not covered.
const Covering* covering_of(const Backend& backend);

/// One of so many histories of a backend has large sizes; the others are rows of its covering.
inline constexpr uint64_t kLargeEvery = 6;

/// The choices of the history with that number, for generate_history with the same backends. They
/// come in rounds, in which each backend has three histories or four.
Choices history_choices(uint64_t seed, uint64_t number, std::span<const Backend* const> backends);

}  // namespace shadowgraph
