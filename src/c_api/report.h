// sg_report: findings with the strings that a caller of C reads.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "report/report.h"
#include "shadowgraph.h"

/// Findings do not change; what was made of them is kept, since its caller holds on to it.
struct sg_report {
  struct Words {
    std::string mend, index, refs, text;
  };

  explicit sg_report(std::span<const shadowgraph::Finding> findings = {});
  /// nullptr: no such format.
  const std::string* rendered(const char* format) const;

  shadowgraph::Report report;
  std::vector<Words> words;  // of each finding
  mutable std::map<shadowgraph::Format, std::string> texts;
};
