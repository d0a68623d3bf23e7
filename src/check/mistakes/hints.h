// How findings of recorded metadata name the mistake that gives what was recorded: the hints of
// mistakes.inc. A misspelt id does not compile. Tested by tests/check/trace_causes_test.cc.
#pragma once

#include <algorithm>
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

/// nullptr if there is none.
constexpr const Hint* find_hint(std::string_view id) {
  const Hint* hint = std::ranges::find(kHints, id, &Hint::id);
  return hint == std::end(kHints) ? nullptr : hint;
}

/// The id of a listed hint, checked by the compiler.
class HintId {
 public:
  consteval HintId(const char* id) : hint_(find_hint(id)) {
    if (hint_ == nullptr) throw "not in mistakes.inc";
  }
  const Hint& hint() const { return *hint_; }

 private:
  const Hint* hint_;
};

}  // namespace shadowgraph
