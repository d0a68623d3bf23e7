// Names that a misspelt one may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shadowgraph {

/// At most three of the names, the nearest first, whatever their case; a name that contains the
/// text counts.
std::vector<std::string> nearest(std::string_view text, const std::vector<std::string>& names);

/// "; did you mean page_size?" of the nearest, or nothing.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& names);

/// "one of extend, decode, mixed"
std::string one_of(const std::vector<std::string>& names);

}  // namespace shadowgraph
