// Parts of one run, joined. Tested by tests/report/merge_test.cc, and
// merge_cap_test.cc.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "report/parts.h"
#include "report/report.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

struct MergeRules {
  /// Every report but one alone is a part of the run (parts.h), and none is there twice. A ledger
  /// itself knows that.
  bool checks_parts = true;
  /// Failing cases of one law that stay listed, in order; each other one counts 1 in
  /// Report::unlisted. 0: all do. Findings in a row that have the same case_id are one failing
  /// case, of the first one's law; no two reports have the same case.
  size_t most_of_a_law = 0;
};

/// Joins the parts of a run one after another, and keeps what they have in common instead of them.
/// With most_of_a_law, joining joined reports gives the same, wherever the order is cut:
///
///   Merge merge;
///   for (...) merge.add(path, std::move(report));
///   Status status = merge.end(/*complete=*/true, &joined);
class Merge {
 public:
  explicit Merge(MergeRules rules = {});
  Merge(const Merge&) = delete;
  Merge& operator=(const Merge&) = delete;
  ~Merge();

  /// path: what findings call the report.
  void add(const std::string& path, Report report);
  /// One report of all: cases, coverage and histograms added, each finding once, seconds of all
  /// together, and no part's verdict (take_back: conclude it anew). Parts of different runs, or one
  /// that is there twice, break io.shard, each with its reason, and *joined is then untouched; so
  /// do missing ones if it has to be complete. One report alone is itself, but for most_of_a_law.
  Status end(bool complete, Report* joined);

 private:
  class Joined;
  std::unique_ptr<Joined> joined_;
};

}  // namespace shadowgraph
