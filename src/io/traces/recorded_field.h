// Recorded values: arrays and numbers of engine traces. Tested by tests/io/traces_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "attn/cases/trace.h"
#include "io/strict_json.h"

namespace shadowgraph {

/// Tells of a fault: the field, what it should be, and what it is.
using TellFault =
    std::function<void(std::string_view field, std::string expected, std::string got)>;

/// {dtype, shape, data}, and of a part {cols}; {dtype, shape, b64}: the elements' bytes, each
/// little-endian, in row order, as base64; or plain JSON: an integer, a list of integers.
/// Anything else is kept unread; this form with values that contradict each other is a fault, and
/// false. name: of the field, for faults.
bool read_recorded_field(const JsonValue& value, const std::string& name, const TellFault& fail,
                         RecordedField* field);

/// The size of an element of a tensor's dtype, such as "int32"; 0: none of integers or truths.
int64_t integer_bytes(std::string_view dtype);

/// nullopt: no integer, or none of 64 bits.
std::optional<int64_t> json_integer(const JsonValue& v);
/// Describes a value that is no integer: "the float 5" for 5.0.
std::string described(const JsonValue& v);

}  // namespace shadowgraph
