// Engine traces: JSON Lines, one step of an engine a line; one step alone may stand on many lines.
// Names are kept whoever knows them, never guessed. Tested by tests/io/traces_test.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attn/cases/trace.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// Appends the good lines in their order; empty ones are passed over. A line that is not what a
/// trace line is breaks io.line, with the line in where.row and the column in its words, and is
/// left out; the others are not. A fault of the file itself (io.open, ...) appends nothing. "-" is
/// standard input.
Status read_traces(const std::string& path, std::vector<TraceLine>* lines);

/// The same from memory; name stands for the path in findings.
Status parse_traces(std::string_view text, const std::string& name, std::vector<TraceLine>* lines);

}  // namespace shadowgraph
