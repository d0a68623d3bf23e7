// Pairs of levels that random cases can have, and which of them a run had. A run without findings
// says by this what it looked at, as features.h does for single levels. Tested by
// tests/fuzz/pairs_test.cc.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/covering.h"
#include "fuzz/call/call_pairs.h"
#include "fuzz/history/history_pairs.h"

namespace shadowgraph {

/// By kind, "histories flashattention" or "calls sparse compress": which pairs such cases had; of a
/// kind without a case empty.
using PairCounts = std::map<std::string, PairSet>;

/// The kinds of these backends' histories, and of kernels' calls; each empty.
PairCounts all_pairs(std::span<const Backend* const> backends, bool kernels);
/// Requires a name of all_pairs(); nullptr where nothing is covered.
const Covering* covering_of_kind(std::string_view kind);

/// Adds what a history had, by its levels, drawn and run.
void count_pairs(const Backend& backend, std::span<const Level> levels, PairCounts* counts);
void count_pairs(const Case& x, std::span<const Level> levels, PairCounts* counts);
void add_pairs(const PairCounts& from, PairCounts* to);

}  // namespace shadowgraph
