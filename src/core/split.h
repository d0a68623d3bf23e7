// Lists as text.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace shadowgraph {

/// The words of "a, b, c"; none of an empty text.
inline std::vector<std::string_view> split(std::string_view text, std::string_view between) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(between), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + between.size(), text.size()));
  }
  return words;
}

}  // namespace shadowgraph
