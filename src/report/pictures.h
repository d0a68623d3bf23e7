// Pictures: what a number in a finding stands in, as plain data. Whoever runs the case makes them,
// html_drawings.cc draws them, JSON keeps them. A grid is row by row: rows * columns values.
// Tested by tests/report/html_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace shadowgraph {

/// An entry of a grid.
struct Cell {
  int64_t row = 0, column = 0;
  bool operator==(const Cell&) const = default;
};

/// A page table: what its entries name, and to whom that belongs.
struct TableMap {
  std::string title;  // "page_table, decode replay, step 3"
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> entries;  // what the table holds: pages or slots
  std::vector<int64_t> owners;   // the row of the batch that has the page, kNobody or kUnread
  std::vector<Cell> wrong;

  static constexpr int64_t kNobody = -1;
  static constexpr int64_t kUnread = -2;  // past the row's last page
  bool operator==(const TableMap&) const = default;
};

/// Which keys (columns) each query (row) sees: 1, or 0.
struct MaskMap {
  std::string title;
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> expected, got;
  bool operator==(const MaskMap&) const = default;
};

/// What was done to buffers at bind, capture and each replay.
struct Timeline {
  enum Kind : uint8_t { kWritten, kRead, kStale };  // kStale: a read of what an older step left
  struct Mark {
    int64_t buffer = 0, step = 0;  // indices into the names below
    Kind kind = kWritten;
    std::string note;  // "memcpy H2D, operation 2"; may be empty
    bool operator==(const Mark&) const = default;
  };
  std::string title;
  std::vector<std::string> buffers, steps;  // "cache_seqlens"; "capture", "replay 1"
  std::vector<Mark> marks;
  bool operator==(const Timeline&) const = default;
};

/// Figures over a limit of 1: the error of each row and head over its bound.
struct Heatmap {
  std::string title;
  std::string row_name, column_name;                 // "row", "head"
  std::vector<std::string> row_names, column_names;  // may be empty: their numbers
  int64_t rows = 0, columns = 0;
  std::vector<double> values;  // NaN is drawn as past every limit, a negative one as not measured
};

/// "written", "read", "stale"
const char* name_of(Timeline::Kind kind);

using Picture = std::variant<TableMap, MaskMap, Timeline, Heatmap>;

/// Whether the sizes of a picture agree, so that it can be drawn and kept.
bool is_whole(const Picture& picture);

}  // namespace shadowgraph
