// Base64, as RFC 4648 has it: with padding, without line ends. Tested by tests/io/traces_test.cc
// and tests/io/trace_write_test.cc.
#pragma once

#include <string>
#include <string_view>

namespace shadowgraph {

std::string base64(std::string_view bytes);

/// False: the text is no base64.
bool from_base64(std::string_view text, std::string* bytes);

}  // namespace shadowgraph
