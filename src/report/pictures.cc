#include "report/pictures.h"

#include <algorithm>

namespace shadowgraph {
namespace {

/// Sizes that no run has, and whose product could overflow.
constexpr int64_t kMost = int64_t{1} << 20;

template <class Values>
bool holds(const Values& values, int64_t rows, int64_t columns) {
  return rows >= 0 && columns >= 0 && rows <= kMost && columns <= kMost &&
         std::ssize(values) == rows * columns;
}

bool sizes_agree(const TableMap& m) {
  const auto inside = [&](const Cell& c) {
    return c.row >= 0 && c.row < m.rows && c.column >= 0 && c.column < m.columns;
  };
  return holds(m.entries, m.rows, m.columns) && holds(m.owners, m.rows, m.columns) &&
         std::ranges::all_of(m.wrong, inside);
}

bool sizes_agree(const MaskMap& m) {
  return holds(m.expected, m.rows, m.columns) && holds(m.got, m.rows, m.columns);
}

bool sizes_agree(const Timeline& t) {
  return std::ranges::all_of(t.marks, [&](const Timeline::Mark& m) {
    return m.buffer >= 0 && m.buffer < std::ssize(t.buffers) && m.step >= 0 &&
           m.step < std::ssize(t.steps);
  });
}

bool sizes_agree(const Heatmap& m) {
  return holds(m.values, m.rows, m.columns) &&
         (m.row_names.empty() || std::ssize(m.row_names) == m.rows) &&
         (m.column_names.empty() || std::ssize(m.column_names) == m.columns);
}

}  // namespace

const char* name_of(Timeline::Kind kind) {
  constexpr const char* kNames[] = {"written", "read", "stale"};
  return kNames[kind];
}

bool is_whole(const Picture& picture) {
  return std::visit([](const auto& p) { return sizes_agree(p); }, picture);
}

}  // namespace shadowgraph
