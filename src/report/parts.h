// Which part of a run a report is of: some of its shards, or some ranges of its cases. Tested by
// tests/report/parts_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// Cases by their numbers: "0-511,600-700", the first and the last of each range.
struct RangeSet {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // ascending, with a hole before each

  std::string to_string() const;
};

/// None if the text is not what to_string writes.
std::optional<ShardSet> parse_shards(std::string_view text);
std::optional<RangeSet> parse_ranges(std::string_view text);

/// The parts that several reports are of. All are shards, or all are ranges, and each is there
/// once; what is not so breaks io.shard.
class Parts {
 public:
  /// path: what findings call the report.
  void add(const std::string& path, const Report& r, Status* status);
  /// No shard is missing, and no case between the first and the last.
  void check_complete(const std::string& path, Status* status) const;
  /// Report::shard and Report::range of all together.
  std::string shard() const;
  std::string range() const { return joined_ranges().to_string(); }

 private:
  struct Range {
    uint64_t last = 0;
    std::string path;
  };

  void add_shards(const std::string& path, const std::string& text, Status* status);
  void add_ranges(const std::string& path, const std::string& text, Status* status);
  RangeSet joined_ranges() const;

  uint64_t count_ = 0;                      // of shards
  std::map<uint64_t, std::string> shards_;  // paths by number
  std::map<uint64_t, Range> ranges_;        // by the first case
};

}  // namespace shadowgraph
