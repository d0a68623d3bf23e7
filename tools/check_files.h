// What `check` is given: files and folders of recorded work, and findings that are waived.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/laws.h"

namespace shadowgraph::cli {

/// Kernel vectors, or engine traces, by name.
bool is_trace_file(const std::string& path);

/// The files of a folder and below that look like recorded work, sorted: *.safetensors, and *.jsonl
/// that begin with an engine trace. Links to folders are not followed.
std::vector<std::string> files_below(const std::string& folder, Status* status);

Finding about_path(LawId law, const std::string& path, std::string expected, std::string got);

/// Findings that somebody has looked at, and why they do not count: a file with a pattern and its
/// reason on each line, "table.capacity known, sglang#1". A pattern is a whole law id or case id,
/// where * stands for any text; or both, "LAW@CASE". Empty lines, and those that begin with #, say
/// nothing.
class Waivers {
 public:
  /// io.open, or io.line for a pattern without a reason.
  Status read(const std::string& path);
  /// Gives the finding its reason, if a pattern covers it.
  void apply(Finding* finding) const;

 private:
  std::vector<std::pair<std::string, std::string>> waivers_;
};

}  // namespace shadowgraph::cli
