// What the lists of a layer say: the rows that queries read, and the slots in them. Nothing outside
// a buffer is read, whatever lengths and offsets are. Tested by tests/check/metadata_laws_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "check/laws/facts.h"

namespace shadowgraph {

/// A row of a list, and the queries of the step that read it.
struct ListRow {
  int64_t row = 0, begin = 0, end = 0;
};

/// Queries [begin, end) of canonical row `row`, and the row that each list has for them.
struct QueryRun {
  size_t row = 0;
  int64_t begin = 0, end = 0;
  std::vector<ListRow> rows;
};

/// Elements of a list of slots.
struct SlotRange {
  int64_t begin = 0, end = 0;
};

/// Where a run's keys stand: from `first` on those of a list's row.
struct KeySource {
  const KeyList* list;
  int64_t row, first;
};

class KeyRows {
 public:
  KeyRows(const MetaFacts& facts, const KindFacts& kind);

  /// As far as they share rows of all lists, from run->begin to run->end at most. False: some list
  /// has no row for them.
  bool find(QueryRun* run) const;
  /// All that the lists say of a run, one list after the other. False: not within them, which is
  /// table.capacity where a length is too long.
  bool gather(const QueryRun& run, LawReport& report);
  /// As wide as a page id times a page: too large a one is no other's slot.
  const std::vector<int64_t>& slots() const { return slots_; }
  const std::vector<KeySource>& sources() const { return sources_; }

  bool has_offsets(const KeyList& list) const { return !whole_ && m_.size(list.queries) > 1; }
  /// Columns of a table's row, or slots of a chunk.
  int64_t width(const KeyList& list) const { return m_.buffer(list.keys).shape[1]; }
  /// Length of a table's row, in keys; -1: there is no such row.
  int64_t length(const KeyList& list, int64_t row) const;
  /// The entries of a row in a list of slots, by its indptr; {0, -1}: there is no such row.
  SlotRange slots_of(const KeyList& list, int64_t row) const;

 private:
  std::optional<ListRow> row_of(const KeyList& list, const QueryRun& run) const;
  bool add_slots(const KeyList& list, int64_t row, LawReport& report);
  bool add_columns(const KeyList& list, int64_t row, LawReport& report);

  const MetaFacts& m_;
  const KindFacts& kind_;
  const bool whole_;  // rows of cross-attention, which do not count a draft's branches
  std::vector<int64_t> slots_;
  std::vector<KeySource> sources_;
};

}  // namespace shadowgraph
