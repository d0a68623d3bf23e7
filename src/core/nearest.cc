#include "core/nearest.h"

#include <algorithm>
#include <utility>

namespace shadowgraph {
namespace {

/// Levenshtein's: how many letters to insert, delete or change.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace

std::vector<std::string> nearest(std::string_view text, const std::vector<std::string>& names) {
  constexpr size_t kSuggestions = 3;
  const std::string meant = in_lower_case(text.substr(0, 64));
  std::vector<std::pair<size_t, std::string>> scored;
  for (const std::string& name : names) {
    const std::string lower = in_lower_case(name);
    const bool contains = !meant.empty() && lower.find(meant) != std::string::npos;
    const size_t distance = edit_distance(meant, lower);
    // Half of the letters wrong is no slip of the finger.
    if (contains || 2 * distance <= name.size()) scored.emplace_back(contains ? 0 : distance, name);
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> suggestions;
  for (const auto& [distance, name] : scored) {
    if (suggestions.size() < kSuggestions) suggestions.push_back(name);
  }
  return suggestions;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& names) {
  const std::vector<std::string> meant = nearest(text, names);
  return meant.empty() ? "" : "; did you mean " + meant[0] + "?";
}

std::string one_of(const std::vector<std::string>& names) {
  std::string all = "one of ";
  for (const std::string& name : names) all += (&name == names.data() ? "" : ", ") + name;
  return all;
}

}  // namespace shadowgraph
