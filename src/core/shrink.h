// shrink: a smaller sequence of choices that still fails. A case is a function of its choices, so
// whatever is left is still a legal case. Tested by tests/core/shrink_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace shadowgraph {

using ChoiceSequence = std::vector<uint32_t>;

/// Runs a sequence: the choices that were really made, or none if the case does not fail.
using Fails = std::function<std::optional<ChoiceSequence>(std::span<const uint32_t>)>;

struct ShrinkResult {
  ChoiceSequence choices;
  int64_t tries = 0;  // sequences that were run
};

/// Removes and lowers choices as long as fails(choices) holds, until nothing smaller fails or
/// give_up() says so. Smaller: shorter, else earlier in dictionary order. Requires that choices
/// fail.
ShrinkResult shrink(ChoiceSequence choices, const Fails& fails,
                    const std::function<bool()>& give_up);

}  // namespace shadowgraph
