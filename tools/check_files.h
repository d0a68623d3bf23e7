// What `check` is given: files and folders of recorded work, and findings that are waived.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check/recorded/judge.h"
#include "check/traces/traces.h"
#include "core/laws.h"
#include "report/report.h"

namespace shadowgraph::cli {

enum class WorkKind : uint8_t { kVectors, kTraces, kNone };
/// By name; where that says nothing, by the first bytes. "-", standard input, is traces.
WorkKind kind_of(const std::string& path);

/// Whether the pattern is the whole text; * stands for any.
bool matches(std::string_view pattern, std::string_view text);

/// The files of a folder and below that look like recorded work, sorted: *.safetensors, and *.jsonl
/// that begin with an engine trace. Links to folders are not followed.
std::vector<std::string> files_below(const std::string& folder, Status* status);

Finding about_path(LawId law, const std::string& path, std::string expected, std::string got);

/// The verdict as reports say it. id: "FILE#case007".
CaseReport report_of(const std::string& id, const RecordedCase& recorded,
                     const RecordedVerdict& verdict);

/// Findings that somebody has looked at, and why they do not count: a file with a pattern and its
/// reason on each line, "table.capacity known, sglang#1". A pattern is a whole law id or case id,
/// where * stands for any text; or both, "LAW@CASE". Empty lines, and those that begin with #, say
/// nothing.
class Waivers {
 public:
  /// io.open, or io.waiver for what is no text, and a pattern without a reason.
  Status read(const std::string& path);
  /// Gives the finding the reason of the first pattern that covers it.
  void apply(Finding* finding);
  /// waiver.unused: "line 3, num.bits*: waives nothing"
  std::vector<PassedOver> unused() const;

 private:
  struct Waiver {
    std::string pattern, reason;
    int64_t line = 0;
    bool used = false;
  };
  std::string path_;
  std::vector<Waiver> waivers_;
};

/// Counts what the lines of a file have that is passed over, by law and words.
class Passing {
 public:
  explicit Passing(std::string path) : path_(std::move(path)) {}
  /// line: from 1.
  void add(std::string_view law, const std::string& what, int64_t line);
  /// "left out, NAME: why"; of what nothing reads "not read, NAME: why; nothing to mend".
  void add(const LeftOut& field, int64_t line);
  /// Each entry ends with its number of lines, "... (2 lines)"; in the order of the words.
  std::vector<PassedOver> of_lines() const;

 private:
  std::string path_;
  std::map<std::pair<std::string, std::string>, PassedOver> by_words_;  // the words, then the law
};

}  // namespace shadowgraph::cli
