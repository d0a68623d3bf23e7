// A call of a kernel as a file that anybody can run again: a Case with all its numbers, the choices
// that made it, and what was found. JSON, "schema": "shadowgraph.call/1". Tested by
// tests/fuzz/call_file_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/shrink.h"
#include "fuzz/call/ladder.h"

namespace shadowgraph {

struct CallCase {
  std::string version;            // of the program that made it
  std::vector<uint32_t> choices;  // of generate
  std::string law, got;           // what was found: the first finding
  Case x;
};

std::string to_json(const CallCase& x);
/// Sizes are bounded: whatever is accepted can run. On failure *out is untouched; io.* and case.*.
Status parse_call(std::string_view text, const std::string& name, CallCase* out);
Status read_call(const std::string& path, CallCase* out);
/// Does the text, or the file, say that it is one? False, too, of what cannot be read.
bool is_call(std::string_view text);
bool is_call_file(const std::string& path);

/// A case that fails, made small while it still breaks that law. Findings have case_id, and
/// reproduce.
struct CaseFailure {
  std::vector<uint32_t> choices;
  Status findings;
};
CaseFailure shrink_case(std::span<const uint32_t> made, const RunOptions& options,
                        std::string_view law, const ShrinkBudget& budget);
/// The case of a list of choices, as a file; with what is found.
CallCase call_of(std::span<const uint32_t> choices, const RunOptions& options);

}  // namespace shadowgraph
