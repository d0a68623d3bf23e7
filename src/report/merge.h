// Shards of one run, joined. Tested by tests/report/merge_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/report.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// Parts of a run: "2/4" is the second of four, "1,3/4" the first and the third.
struct ShardSet {
  std::vector<uint64_t> parts;  // from 1, ascending
  uint64_t count = 0;

  std::string to_string() const;
};

/// None if the text is not what ShardSet::to_string writes.
std::optional<ShardSet> parse_shards(std::string_view text);

struct MergeRules { bool checks_parts = true; size_t most_of_a_law = 0; };

/// Joins the shards of a run one after another, and keeps what they have in common instead of them:
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
  /// together. Shards of different runs, or one that is there twice, break io.shard, each with its
  /// reason, and *joined is then untouched; so do missing ones if it has to be complete. One report
  /// alone is itself.
  Status end(bool complete, Report* joined);

 private:
  class Joined;
  std::unique_ptr<Joined> joined_;
};

}  // namespace shadowgraph
