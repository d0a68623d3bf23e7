// shrink: a smaller sequence of choices that still fails. A case is a function of its choices, so
// whatever is left is still a legal case. Tested by tests/core/shrink_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shadowgraph/status.h"

namespace shadowgraph {

using ChoiceSequence = std::vector<uint32_t>;

/// The choices that a case made, and where its parts begin among them (a step, a request), if
/// anybody says so: a part is dropped as a whole.
struct MadeCase {
  ChoiceSequence choices;
  std::vector<size_t> parts = {};  // rising
};
/// Runs a sequence: what was really made, or none if the case does not fail.
using Fails = std::function<std::optional<MadeCase>(std::span<const uint32_t>)>;

/// When shrinking ends before nothing smaller fails. What is left is the same on every machine if
/// the time does not end it.
struct ShrinkBudget {
  int64_t tries = std::numeric_limits<int64_t>::max();
  double seconds = 20;

  /// A run of so many seconds (0: no limit) gives one finding no more than a third of them.
  ShrinkBudget in_run_of(double run_seconds) const;
};

/// The result is the same on every machine, as a ledger needs it.
inline constexpr ShrinkBudget kSameEverywhere = {
    .tries = 1000, .seconds = std::numeric_limits<double>::infinity()};

struct ShrinkResult {
  ChoiceSequence choices;
  int64_t tries = 0;  // sequences that were run
  std::string ended;  // ", not the smallest: shrinking ended after 20 s"; empty: it is the smallest
};

/// Removes and lowers choices as long as fails(choices) holds, until nothing smaller fails or the
/// budget ends: the first choices at 0, whole parts of a case, then blocks, then each choice.
/// Smaller: shorter, else earlier in dictionary order. Requires that choices fail.
ShrinkResult shrink(ChoiceSequence choices, const Fails& fails, const ShrinkBudget& budget);

/// A whole case tells mistakes apart that give the same in a small one: its diagnosis stands for
/// every finding of the small one that has a diagnosis.
void keep_diagnosis(const Status& whole, Status* small);

}  // namespace shadowgraph
