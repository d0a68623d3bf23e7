// How findings of recorded metadata name the mistake that gives what was recorded: the hints of
// mistakes.inc. A misspelt id does not compile. Tested by tests/check/trace_causes_test.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace shadowgraph {

struct Hint {
  std::string_view id;     // "extent.short_by_extend"; where outputs show it, too, that mistake's
  std::string_view words;  // in braces what the judge fills in
  std::string_view refs;   // separated by spaces
};

inline constexpr Hint kHints[] = {
#define SG_HINT(id, words, refs) {id, words, refs},
#include "check/mistakes/mistakes.inc"
};

/// std::size(kHints) if there is none.
constexpr size_t index_of_hint(std::string_view id) {
  return static_cast<size_t>(std::ranges::find(kHints, id, &Hint::id) - kHints);
}
/// nullptr if there is none.
constexpr const Hint* find_hint(std::string_view id) {
  const size_t i = index_of_hint(id);
  return i == std::size(kHints) ? nullptr : kHints + i;
}

/// The id of a listed hint, checked by the compiler.
class HintId {
 public:
  consteval HintId(const char* id) : index_(index_of_hint(id)) {
    if (index_ == std::size(kHints)) throw "not in mistakes.inc";
  }
  const Hint& hint() const { return kHints[index_]; }

 private:
  size_t index_;
};

}  // namespace shadowgraph
