// The list of laws, and findings made from it. A misspelt id does not compile.
#pragma once

#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shadowgraph/status.h"

namespace shadowgraph {

struct Law {
  std::string_view id;
  Severity severity;
  // The runs of `fuzz` (histories, calls, programs of a device) and of `check` (traces, vectors)
  // that judge it, separated by spaces. Empty: another verb does, or it is about an input
  std::string_view judged_in;
  std::string_view sentence;  // the law
  std::string_view mend;      // how to fix a violation; may be empty
  std::string_view refs;      // separated by spaces
};

inline constexpr Law kLaws[] = {
#define SG_LAW(id, severity, judged_in, sentence, mend, refs) \
  {id, Severity::severity, judged_in, sentence, mend, refs},
#include "core/laws.inc"
#undef SG_LAW
};

/// run: "histories", "traces".
constexpr bool is_judged_in(const Law& law, std::string_view run) {
  for (std::string_view runs = law.judged_in; !runs.empty();) {
    const size_t end = runs.find(' ');
    if (runs.substr(0, end) == run) return true;
    runs.remove_prefix(end == std::string_view::npos ? runs.size() : end + 1);
  }
  return false;
}

/// std::size(kLaws) if there is none.
constexpr size_t index_of(std::string_view id) {
  size_t i = 0;
  while (i < std::size(kLaws) && kLaws[i].id != id) ++i;
  return i;
}

/// nullptr if there is none.
constexpr const Law* find_law(std::string_view id) {
  const size_t i = index_of(id);
  return i == std::size(kLaws) ? nullptr : &kLaws[i];
}

/// The id of a listed law, checked by the compiler.
class LawId {
 public:
  consteval LawId(const char* id) : index_(index_of(id)) {
    if (index_ == std::size(kLaws)) throw "not in laws.inc";
  }
  const Law& law() const { return kLaws[index_]; }
  size_t index() const { return index_; }

 private:
  size_t index_;
};

/// A finding of that law at field[row, col].
Finding make_finding(LawId law, Where where, std::string expected, std::string got);

/// The law is judged of something, so many times; what it finds is another matter. Cheap where
/// nobody counts (law_counts.h).
void judged(LawId law, int64_t times = 1);

/// Adds the references that the finding has not got yet.
void add_refs(std::span<const std::string> refs, Finding* finding);

/// Where, in short: at("page_table", 2, 5).
Where at(std::string field, std::optional<int64_t> row = {}, std::optional<int64_t> col = {});
/// An index of as many axes as the field has.
Where at(std::string field, std::span<const int64_t> index);

}  // namespace shadowgraph
