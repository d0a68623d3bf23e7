// Status and Finding: how Shadowgraph says that something is wrong.
//
// A Finding is one violated law, with the place and the values. A Status is a list of findings; the
// empty list is "ok". Bad input gets all its findings, not only the first. Laws are listed in
// src/core/laws.inc; `shadowgraph explain ID` prints one. Tested by tests/core/status_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shadowgraph {

enum class Severity { kError, kWarning, kNote };

/// The place where a law was violated. Empty members are not printed.
struct Where {
  std::string backend, mode, phase;  // the twin, the forward mode, and eager | capture | replay
  std::string field;                 // the argument or buffer, by its name: "page_table"
  std::optional<int64_t> row, col;   // index into the field
  std::vector<int64_t> further;      // and behind col, where the field has more axes

  /// "[2, 5]"; empty without a row.
  std::string index() const;

  bool operator==(const Where&) const = default;
};

/// A known mistake that would give the wrong outputs (`check --diagnose`). A result is one query
/// row of one head.
struct Explanation {
  std::string mistake;    // "window.shorter"
  std::string sentence;   // what the mistake is, and how it was made
  int64_t explained = 0;  // wrong results that the mistake reproduces
  int64_t wrong = 0;      // wrong results in all
  int64_t broken = 0;     // right results that the mistake would have made wrong

  /// "window.shorter: The window is a key too short (24 of 24 wrong results)"
  std::string to_string() const;
};

/// One violated law.
struct Finding {
  std::string id;     // stable name of the law: "table.page_id"
  std::string title;  // the law in one sentence
  Severity severity = Severity::kError;
  std::string case_id;  // the case in which it was seen: "FILE#case007", "seed 1 case 42"
  Where where;
  std::string expected, got;      // the limit and the value; or empty, and what happened
  std::vector<std::string> refs;  // its sources: "fa.I-28", a fault, repo#number, a mistake's id
  std::string reproduce;          // one command that shows the finding again
  std::string waived;             // the reason, if a waive file covers the finding
  // For wrong outputs, if a diagnosis was asked for: the known mistakes that would give them, the
  // likeliest first
  std::vector<Explanation> diagnosis;

  /// "table.page_id: page_table[2, 5] is 99, expected 0 <= id < 8"
  std::string to_string() const;
};

/// All findings of one check; ok if there are none.
class [[nodiscard]] Status {
 public:
  /// A Status with input.memory, made without allocating memory.
  static Status out_of_memory() noexcept;

  bool ok() const { return findings_.empty() && !out_of_memory_; }
  std::span<const Finding> findings() const;
  std::span<Finding> findings() { return findings_; }

  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  void add(Status other);

  /// One finding per line; "ok" if there are none.
  std::string to_string() const;

 private:
  std::vector<Finding> findings_;
  bool out_of_memory_ = false;
};

}  // namespace shadowgraph
