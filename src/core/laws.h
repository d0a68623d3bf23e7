// The list of laws, and findings made from it. A misspelt id does not compile.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shadowgraph/status.h"

namespace shadowgraph {

struct Law {
  std::string_view id;
  Severity severity;
  std::string_view sentence;  // the law
  std::string_view mend;      // how to fix a violation; may be empty
  std::string_view refs;      // separated by spaces
};

inline constexpr Law kLaws[] = {
#define SG_LAW(id, severity, sentence, mend, refs) {id, Severity::severity, sentence, mend, refs},
#include "core/laws.inc"
#undef SG_LAW
};

constexpr const Law* find_law(std::string_view id) {
  for (const Law& law : kLaws) {
    if (law.id == id) return &law;
  }
  return nullptr;
}

/// The id of a listed law, checked by the compiler.
class LawId {
 public:
  consteval LawId(const char* id) : law_(find_law(id)) {
    if (law_ == nullptr) throw "not in laws.inc";
  }
  const Law& law() const { return *law_; }

 private:
  const Law* law_;
};

/// A finding of that law at field[row, col].
Finding make_finding(LawId law, Where where, std::string expected, std::string got);

/// Where, in short: at("page_table", 2, 5).
Where at(std::string field, std::optional<int64_t> row = {}, std::optional<int64_t> col = {});

}  // namespace shadowgraph
