// Status and Finding: how Shadowgraph says that something is wrong.
//
// A Finding is one violated law, with the place and the values. A Status is a list of findings, and
// "ok" is the empty list: bad input is reported whole, never only its first fault. Laws are listed
// in src/core/laws.inc; `shadowgraph explain ID` prints one. Tested by tests/core/status_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shadowgraph {

enum class Severity { kError, kWarning, kNote };

/// Where a law was violated. Empty members are not printed.
struct Where {
  std::string backend, mode, phase;  // which twin, which forward mode, eager | capture | replay
  std::string field;                 // the argument or buffer, in the field's words: "page_table"
  std::optional<int64_t> row, col;   // index into it

  bool operator==(const Where&) const = default;
};

/// A known mistake that would give wrong outputs (`check --diagnose`). Results: a query row of one
/// head.
struct Explanation {
  std::string mistake;    // "window.shorter"
  std::string sentence;   // what it is, and how it was made
  int64_t explained = 0;  // wrong results that it gives
  int64_t wrong = 0;      // of so many
  int64_t broken = 0;     // right results that it would not give

  /// "window.shorter: The window is a key too short (24 of 24 wrong results)"
  std::string to_string() const;
};

/// One violated law.
struct Finding {
  std::string id;     // stable name of the law: "table.page_id"
  std::string title;  // the law in one sentence
  Severity severity = Severity::kError;
  std::string case_id;  // the case it was seen in: "FILE#case007", "seed 1 case 42"
  Where where;
  std::string expected, got;      // the limit and the value
  std::vector<std::string> refs;  // what the law stands on: spec sections, papers, repo#number
  std::string reproduce;          // one command that shows it again
  std::string waived;             // reason, if a waive file covers it
  // Of wrong outputs, where it was asked for: known mistakes that would give them, the likeliest
  // first
  std::vector<Explanation> diagnosis;

  /// "table.page_id: page_table[2, 5] is 99, expected 0 <= id < 8"
  std::string to_string() const;
};

/// All findings of one check. Empty means ok.
class [[nodiscard]] Status {
 public:
  /// input.memory, made without allocating.
  static Status out_of_memory() noexcept;

  bool ok() const { return findings_.empty() && !out_of_memory_; }
  std::span<const Finding> findings() const;
  std::span<Finding> findings() { return findings_; }

  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  void add(Status other);

  /// One finding per line; "ok" if there is none.
  std::string to_string() const;

 private:
  std::vector<Finding> findings_;
  bool out_of_memory_ = false;
};

}  // namespace shadowgraph
