// Writes a line of engine traces. Tested by tests/io/trace_write_test.cc.
#pragma once

#include <string>
#include <vector>

#include "attn/cases/trace.h"
#include "io/strict_json.h"

namespace shadowgraph {

/// A line, and what it keeps in other words than its text.
struct WrittenLine {
  const JsonValue::Object& head;  // the members beside input and expect
  const TraceLine& line;          // of it input, expect, calls and nulls, fields stored whole
  // [calls] of each, where the line's expect has those of named calls as "NAME.argument"
  const std::vector<RecordedFields>& arguments;
  const JsonValue* exception = nullptr;  // {type, msg}
};

/// One line, without its end; parse_traces reads the same again.
std::string trace_text(const WrittenLine& written);

}  // namespace shadowgraph
