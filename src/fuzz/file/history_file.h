// A history as a file that anybody can run again: the models, the pools, every step with all its
// numbers, and what is planted; so it is the same history whatever generators become. With it go
// the choices that made it, and what was found. JSON, "schema": "shadowgraph.case/1". Tested by
// tests/fuzz/history_file_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/history/history.h"

namespace shadowgraph {

struct HistoryCase {
  std::string version;              // of the program that made it
  std::vector<std::string> plants;  // ids of faults
  std::vector<uint32_t> choices;    // of generate_history over all backends
  std::string law, got;             // what was found: the first finding
  History history;
  std::vector<Step> steps;
};

/// The case of a list of choices: its steps as the scheduler hands them over, a planted fault's
/// changes of them included.
HistoryCase case_of(std::span<const uint32_t> choices, std::span<const Backend* const> backends,
                    const MakeTap& tap);

std::string to_json(const HistoryCase& x);
/// Sizes are bounded and every number that is an index is in its range: whatever is accepted can
/// run. On failure *out is untouched; io.* and case.*.
Status parse_case(std::string_view text, const std::string& name, HistoryCase* out);
Status read_case(const std::string& path, HistoryCase* out);

/// Runs the steps; tap: what stands on the path, or nullptr. Ends with the first step that has
/// findings; played is told of each.
Status run_case(const HistoryCase& x, Tap* tap,
                const std::function<void(size_t step, const Status&)>& played = {});

}  // namespace shadowgraph
