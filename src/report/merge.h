// Shards of one run, joined. Tested by tests/report/merge_test.cc.
#pragma once

#include <cstdint>
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

struct ReportFile {
  std::string path;
  Report report;
};

/// One report of all: cases, coverage and histograms added, each finding once, seconds of all
/// together. Shards of different runs, or one that is there twice, break io.shard, each with its
/// reason, and *joined is then untouched; so do missing ones if it has to be complete. One report
/// alone is itself.
Status merge_reports(const std::vector<ReportFile>& files, bool complete, Report* joined);

}  // namespace shadowgraph
