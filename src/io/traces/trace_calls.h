// The plans of FlashInfer's wrappers, as traces list them: {wrapper, call, argument ...}, in the
// order of the calls. Tested by tests/io/trace_calls_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attn/cases/trace.h"
#include "io/strict_json.h"

namespace shadowgraph {

/// What a wrapper does in a step, whichever object of the engine does it.
struct WrapperRole {
  std::string name;  // "decode[1]", "paged[0]"; the shared "ragged" has no number; empty: not known
  int64_t bucket = 0;  // rows of the graphs that it is of; 0: of eager steps
  bool operator==(const WrapperRole&) const = default;
};
WrapperRole wrapper_role(std::string_view wrapper);

/// nullptr: the value is no list of plans, each with a wrapper and a call.
const JsonValue::Array* as_calls(const JsonValue& value);

/// Gives each plan the name under which its arguments are fields. The ragged wrapper's plans are
/// numbered. If another wrapper is planned twice, a kernel reads the last plan; the plans before it
/// get no name.
std::vector<TraceCall> name_calls(const JsonValue::Array& calls);

}  // namespace shadowgraph
