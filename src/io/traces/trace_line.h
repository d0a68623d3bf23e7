// One line of engine traces, from its JSON. Tested by tests/io/traces_test.cc.
#pragma once

#include <cstddef>
#include <string>

#include "attn/cases/trace.h"
#include "io/strict_json.h"

namespace shadowgraph {

/// number: of the line, from 1. Every fault breaks io.line; *line is then untouched.
Status read_trace_line(const JsonDocument& document, const std::string& name, size_t number,
                       TraceLine* line);

}  // namespace shadowgraph
