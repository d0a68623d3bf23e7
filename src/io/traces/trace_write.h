// Writes a line of engine traces. Tested by tests/io/trace_write_test.cc.
#pragma once

#include <string>

#include "attn/cases/trace.h"
#include "io/strict_json.h"

namespace shadowgraph {

/// One line, without its end; parse_traces reads the same again. head: the line's members beside
/// input and expect. Fields are readable, and stored whole.
std::string trace_text(const JsonValue::Object& head, const RecordedFields& input,
                       const RecordedFields& expect);

}  // namespace shadowgraph
