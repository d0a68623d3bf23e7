// sg_report: findings with the strings that a caller of C reads.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "report/report.h"
#include "shadowgraph.h"

/// Texts that were made are kept, since their caller holds on to them.
struct sg_report {
  struct Words {
    std::string mend, index, refs, text, diagnosis;
  };

  explicit sg_report(std::span<const shadowgraph::Finding> findings = {});
  /// Findings of one more case; all or none of them.
  void add(const sg_report& more, const char* case_id);
  /// nullptr: no such format.
  const std::string* rendered(const char* format) const;

  shadowgraph::Report report;
  std::vector<Words> words;  // of each finding
  mutable std::map<shadowgraph::Format, std::string> texts;
};
