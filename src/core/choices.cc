#include "core/choices.h"

#include <algorithm>
#include <charconv>

namespace shadowgraph {

std::optional<std::vector<uint32_t>> next_choices(const Choices& choices, size_t fixed) {
  std::vector<uint32_t> next = choices.made();
  while (next.size() > fixed && next.back() + 1 == choices.bounds()[next.size() - 1])
    next.pop_back();
  if (next.size() <= fixed) return std::nullopt;
  ++next.back();
  return next;
}

std::string to_text(std::span<const uint32_t> choices) {
  if (choices.empty()) return "0";
  std::string s;
  for (const uint32_t c : choices) s += (s.empty() ? "" : ".") + std::to_string(c);
  return s;
}

std::optional<std::vector<uint32_t>> choices_of(std::string_view text) {
  std::vector<uint32_t> choices;
  for (const char* at = text.data(); at != text.data() + text.size();) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), value);
    if (error != std::errc{}) return std::nullopt;
    choices.push_back(value);
    at = end;
    if (at == text.data() + text.size()) break;
    if (*at != '.' || ++at == text.data() + text.size()) return std::nullopt;
  }
  return choices;
}

ChoicesRead compare_choices(std::span<const uint32_t> given, std::span<const uint32_t> made) {
  ChoicesRead read;
  const size_t common = std::min(given.size(), made.size());
  for (size_t i = 0; i < common; ++i) {
    if (given[i] != made[i]) read.out_of_range.push_back(i);
  }
  read.behind = given.size() - common;
  read.none = read.out_of_range.size() == common;
  return read;
}

bool same_choices(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  if (a.size() > b.size()) std::swap(a, b);
  const auto behind = b.subspan(a.size());
  return std::ranges::equal(a, b.first(a.size())) &&
         std::ranges::all_of(behind, [](uint32_t choice) { return choice == 0; });
}

}  // namespace shadowgraph
