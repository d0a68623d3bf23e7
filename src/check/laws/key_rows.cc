#include "check/laws/key_rows.h"

#include <algorithm>

namespace shadowgraph {

KeyRows::KeyRows(const MetaFacts& facts, const KindFacts& kind)
    : m_(facts), kind_(kind), whole_(kind.rows.cu_seqlens_q.back() != facts.tokens()) {}

/// The row that a query reads; where it is not said, that of its request or branch.
std::optional<ListRow> KeyRows::row_of(const KeyList& list, const QueryRun& run) const {
  if (!has_offsets(list))
    return ListRow{static_cast<int64_t>(run.row), kind_.rows.cu_seqlens_q[run.row], run.end};
  int64_t low = 0, high = m_.size(list.queries) - 1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (m_.value(list.queries, middle) <= run.begin ? low : high) = middle;
  }
  const ListRow row{low, m_.value(list.queries, low), m_.value(list.queries, low + 1)};
  if (row.begin > run.begin || row.end <= run.begin) return {};  // len.q_extent, or monotone
  return row;
}

bool KeyRows::find(QueryRun* run) const {
  run->rows.clear();
  for (const KeyList& list : kind_.lists) {
    const std::optional<ListRow> row = row_of(list, *run);
    if (!row) return false;
    run->rows.push_back(*row);
  }
  for (const ListRow& row : run->rows) run->end = std::min(run->end, row.end);
  return true;
}

bool KeyRows::gather(const QueryRun& run, LawReport& report) {
  slots_.clear(), sources_.clear();
  for (size_t i = 0; i < kind_.lists.size(); ++i) {
    const KeyList& list = kind_.lists[i];
    const int64_t row = run.rows[i].row;
    sources_.push_back({&list, row, std::ssize(slots_)});
    if (list.kind == KeyList::Kind::kOwn) {
      const auto own = kind_.rows.stored_by(run.row);
      slots_.insert(slots_.end(), own.begin(), own.end());
      continue;
    }
    if (m_.size(list.keys) == 0 || m_.size(list.lens) == 0) return false;
    const bool table = list.kind == KeyList::Kind::kTable;
    if (table ? !add_columns(list, row, report) : !add_slots(list, row, report)) return false;
  }
  return true;
}

int64_t KeyRows::length(const KeyList& list, int64_t row) const {
  return row < m_.size(list.lens) ? m_.value(list.lens, row) : -1;
}

SlotRange KeyRows::slots_of(const KeyList& list, int64_t row) const {
  const bool chunks = list.kind == KeyList::Kind::kChunk;
  const int64_t at = chunks ? list.chunk * (m_.limits.rows + 1) + row : row;
  const int64_t base = chunks ? list.chunk * width(list) : 0;
  if (at + 1 >= m_.size(list.lens)) return {0, -1};
  return {base + m_.value(list.lens, at), base + m_.value(list.lens, at + 1)};
}

bool KeyRows::add_slots(const KeyList& list, int64_t row, LawReport& report) {
  const SlotRange range = slots_of(list, row);
  if (range.begin < 0 || range.end < range.begin) return false;  // len.indptr_monotone
  judged("table.capacity");
  if (range.end > m_.size(list.keys)) {
    report.fail("table.capacity", at(m_.buffer(list.keys).name, row),
                "<= " + number(m_.size(list.keys)) + " slots", number(range.end));
    return false;
  }
  for (int64_t i = range.begin; i < range.end; ++i) slots_.push_back(m_.value(list.keys, i));
  return true;
}

bool KeyRows::add_columns(const KeyList& list, int64_t row, LawReport& report) {
  const int64_t unit = m_.unit(list.keys), len = length(list, row);
  judged("table.capacity");
  if (len < 0 || len > width(list) * unit || (row + 1) * width(list) > m_.size(list.keys)) {
    report.fail("table.capacity", at(m_.buffer(list.keys).name, row),
                "0 to " + number(width(list) * unit) + " keys", number(len));
    return false;
  }
  for (int64_t t = 0, c = row * width(list); t < len; ++c) {
    const int64_t first = m_.value(list.keys, c) * unit;
    for (int64_t u = 0; u < unit && t < len; ++u, ++t) slots_.push_back(first + u);
  }
  return true;
}

}  // namespace shadowgraph
