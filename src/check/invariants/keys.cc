// Which keys a query finds: for each run of queries that share their rows, the slots that live
// entries of all lists lead to, one list after the other, are the keys that the queries see. A list
// whose kernel hides some by a window, or by a mask, may hold more of the request's, in order.
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "attn/mask.h"
#include "check/invariants/invariants.h"

namespace shadowgraph {
namespace {

/// A row of a list, and the queries of the step that read it.
struct ListRow {
  int64_t row = 0, begin = 0, end = 0;
};

/// Queries [begin, end) of canonical row `row`, and the row that each list has for them.
struct Run {
  size_t row = 0;
  int64_t begin = 0, end = 0;
  std::vector<ListRow> rows;
};

/// Where keys came from: from `first` on those of a list.
struct Source {
  const KeyList* list;
  int64_t row, first;
};

class KeyJudge {
 public:
  KeyJudge(const MetaFacts& m, const KindFacts& kind, LawReport& report)
      : m_(m),
        kind_(kind),
        rows_(kind.rows),
        whole_(kind.rows.cu_seqlens_q.back() != m.tokens()),
        report_(report) {}

  void run() {
    Run run;
    for (run.row = 0; run.row < rows_.kv_lens.size(); ++run.row) {
      const int64_t end = rows_.cu_seqlens_q[run.row + 1];
      for (int64_t at = rows_.cu_seqlens_q[run.row]; at < end; at = run.end) {
        run.begin = at, run.end = end;
        if (!find_rows(&run)) break;
        if (gather(run)) judge(run);
      }
    }
    for (const KeyList& list : kind_.lists) padding(list);
  }

 private:
  bool has_offsets(const KeyList& list) const { return !whole_ && m_.size(list.queries) > 1; }

  /// The row that a query reads; where it is not said, that of its request or branch.
  std::optional<ListRow> row_of(const KeyList& list, const Run& run) const {
    if (!has_offsets(list))
      return ListRow{static_cast<int64_t>(run.row), rows_.cu_seqlens_q[run.row], run.end};
    int64_t low = 0, high = m_.size(list.queries) - 1;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (m_.value(list.queries, middle) <= run.begin ? low : high) = middle;
    }
    const ListRow row{low, m_.value(list.queries, low), m_.value(list.queries, low + 1)};
    if (row.begin > run.begin || row.end <= run.begin) return {};  // len.q_extent, or monotone
    return row;
  }
  bool find_rows(Run* run) const {
    run->rows.clear();
    for (const KeyList& list : kind_.lists) {
      const std::optional<ListRow> row = row_of(list, *run);
      if (!row) return false;
      run->rows.push_back(*row);
    }
    for (const ListRow& row : run->rows) run->end = std::min(run->end, row.end);
    return true;
  }

  /// All that the lists say, into listed_. False: not known, or past a row's end.
  bool gather(const Run& run) {
    listed_.clear(), sources_.clear();
    for (size_t i = 0; i < kind_.lists.size(); ++i) {
      const KeyList& list = kind_.lists[i];
      sources_.push_back({&list, run.rows[i].row, std::ssize(listed_)});
      if (list.keys < 0) {
        const auto own = rows_.stored_by(run.row);
        listed_.insert(listed_.end(), own.begin(), own.end());
      } else if (!add(list, run.rows[i].row)) {
        return false;
      }
    }
    return true;
  }

  bool is_table(const KeyList& list) const { return m_.unit(list.keys) > 0; }
  int64_t width(const KeyList& list) const { return m_.buffer(list.keys).shape[1]; }

  /// Elements of a row of slots.
  struct Part {
    int64_t begin = 0, end = 0;
  };
  Part slots_of(const KeyList& list, int64_t row) const {
    const bool chunks = m_.buffer(list.keys).shape.size() > 1;
    const int64_t at = chunks ? list.chunk * (m_.limits.rows + 1) + row : row;
    const int64_t base = chunks ? list.chunk * width(list) : 0;
    return {base + m_.value(list.lens, at), base + m_.value(list.lens, at + 1)};
  }

  bool add(const KeyList& list, int64_t row) {
    if (m_.size(list.keys) == 0 || m_.size(list.lens) == 0) return false;
    if (is_table(list)) return add_columns(list, row);
    const Part part = slots_of(list, row);
    if (part.begin < 0 || part.end < part.begin) return false;  // len.indptr_monotone
    if (part.end > m_.size(list.keys)) {
      report_.fail("table.capacity", at(m_.buffer(list.keys).name, row),
                   "<= " + number(m_.size(list.keys)) + " slots", number(part.end));
      return false;
    }
    for (int64_t i = part.begin; i < part.end; ++i)
      listed_.push_back(static_cast<int32_t>(m_.value(list.keys, i)));
    return true;
  }
  bool add_columns(const KeyList& list, int64_t row) {
    const int64_t unit = m_.unit(list.keys), len = length(list, row);
    if (len < 0 || len > width(list) * unit || (row + 1) * width(list) > m_.size(list.keys)) {
      report_.fail("table.capacity", at(m_.buffer(list.keys).name, row),
                   "0 to " + number(width(list) * unit) + " keys", number(len));
      return false;
    }
    for (int64_t t = 0, c = row * width(list); t < len; ++c) {
      const int64_t first = m_.value(list.keys, c) * unit;
      for (int64_t u = 0; u < unit && t < len; ++u, ++t)
        listed_.push_back(static_cast<int32_t>(first + u));
    }
    return true;
  }
  int64_t length(const KeyList& list, int64_t row) const {
    return row < m_.size(list.lens) ? m_.value(list.lens, row) : -1;
  }

  void judge(const Run& run) {
    const bool masked = std::ranges::any_of(kind_.lists, &KeyList::masked);
    if (masked || rows_.mask.empty()) {
      is_end_of_row(run);
    } else {
      sees_all(run, run.end - 1, listed_);
      const auto later = static_cast<size_t>(run.end - 1 - run.begin);
      if (later > 0 && later <= listed_.size())
        sees_all(run, run.begin, std::span(listed_).first(listed_.size() - later));
    }
  }

  /// The row's keys, all but those before what its first query sees.
  void is_end_of_row(const Run& run) {
    const int64_t all = rows_.kv_lens[run.row], got = std::ssize(listed_);
    const int64_t hidden = kind_.kind->params.window_left < 0 ? 0 : first_seen(run);
    if (got > all || got < all - hidden) {
      wrong_count(run, all - hidden, all);
      return;
    }
    for (int64_t i = 0; i < got; ++i) {
      const int64_t key = all - got + i;
      if (!leads_to(run, listed_[static_cast<size_t>(i)], key)) return wrong_key(run, i, key);
    }
  }

  int32_t slot_of(const Run& run, int64_t key) const {
    return rows_.keys[run.row][static_cast<size_t>(key)];
  }
  bool leads_to(const Run& run, int32_t slot, int64_t key) const {
    const int32_t want = slot_of(run, key);
    if (want == 0) return slot / m_.model.page_size == 0;  // an evicted page is page 0
    return slot == want || slot == copy_of(run, key);
  }
  /// Where a draft's branch has a copy of the prefix's last, partial page: before its own tokens.
  /// -1: of this key it has none.
  int64_t copy_of(const Run& run, int64_t key) const {
    const int64_t page = m_.model.page_size;
    const int64_t prefix = rows_.kv_lens[run.row] - m_.limits.step - 1;
    const bool drafts = m_.limits.mode == ForwardMode::kDraftDecode && m_.model.topk > 1;
    if (!drafts || key >= prefix || key < prefix / page * page) return -1;
    return slot_of(run, prefix) / page * page + key % page;
  }

  /// The first key that a query of the run sees.
  int64_t first_seen(const Run& run) const {
    const int32_t first = rows_.cu_seqlens_q[run.row];
    const int32_t q_len = rows_.cu_seqlens_q[run.row + 1] - first;
    const int32_t kv_len = rows_.kv_lens[run.row];
    if (rows_.mask_indptr.empty())
      return kv_range(MaskShape::of(kind_.kind->params, q_len, kv_len), run.begin - first).begin;
    int64_t seen = kv_len;
    for (int64_t q = run.begin; q < run.end; ++q)
      for (int64_t k = 0; k < seen; ++k)
        if (bit(run.row, q, k)) seen = k;
    return seen;
  }
  bool bit(size_t row, int64_t query, int64_t key) const {
    const int64_t q = query - rows_.cu_seqlens_q[row];
    return rows_.mask[static_cast<size_t>(rows_.mask_indptr[row] + q * rows_.kv_lens[row] + key)] !=
           0;
  }

  /// By the canonical mask: what the query sees stands at the end, and before it, where a window
  /// hides them, others of the row's keys in order.
  void sees_all(const Run& run, int64_t query, std::span<const int32_t> listed) {
    const int64_t keys = rows_.kv_lens[run.row], got = std::ssize(listed);
    seen_.clear();
    for (int64_t k = 0; k < keys; ++k)
      if (bit(run.row, query, k)) seen_.push_back(k);
    const int64_t front = got - std::ssize(seen_);
    const bool window = kind_.kind->params.window_left >= 0;
    if (front < 0 || (front > 0 && !window)) {
      wrong_count(run, std::ssize(seen_), window ? keys : std::ssize(seen_));
      return;
    }
    for (int64_t i = front; i < got; ++i) {
      const int64_t key = seen_[static_cast<size_t>(i - front)];
      if (!leads_to(run, listed[static_cast<size_t>(i)], key)) return wrong_key(run, i, key);
    }
    for (int64_t i = 0, key = 0; i < front; ++i, ++key) {
      while (key < keys && !leads_to(run, listed[static_cast<size_t>(i)], key)) ++key;
      if (key == keys) return wrong_key(run, i, -1);
    }
  }

  /// The list whose end is missing, or goes too far: the last one that has a length.
  void wrong_count(const Run& run, int64_t least, int64_t most) {
    const Source* source = &sources_.front();
    for (const Source& s : sources_)
      if (s.list->keys >= 0) source = &s;
    std::string want = number(least) + " keys";
    if (most > least) want = number(least) + " to " + want.replace(0, want.find(' '), number(most));
    report_.fail("len.kv_extent", at(m_.buffer(source->list->lens).name, source->row), want,
                 number(std::ssize(listed_)) + " for query " + number(run.begin));
  }

  /// listed_[i] leads elsewhere; key: -1 where none of the row's keys may stand.
  void wrong_key(const Run& run, int64_t i, int64_t key) {
    const Source* s = &sources_.front();
    for (const Source& source : sources_)
      if (source.first <= i) s = &source;
    const KeyList& list = *s->list;
    if (list.keys < 0) return;  // the batch's own: its offsets are wrong
    const int64_t unit = std::max<int64_t>(m_.unit(list.keys), 1);
    const bool table = is_table(list);
    const int64_t column = (i - s->first) / unit;
    const int64_t element =
        table ? s->row * width(list) + column : slots_of(list, s->row).begin + column;
    const int64_t got = m_.value(list.keys, element), page = m_.model.page_size;
    const int64_t want = key < 0 ? -1 : slot_of(run, key);
    std::string expected = "a key of the request, after the one before it";
    if (key >= 0) expected = "slot " + number(want) + " of token " + number(key);
    if (key >= 0 && unit > 1) expected = "page " + number(want / unit) + ", " + expected;
    const Where where = at(m_.buffer(list.keys).name, s->row, column);
    const bool slot = unit > 1 && got == want,
               page_id = unit == 1 && page > 1 && got == want / page;
    if (got < 0) {
      report_.fail("table.page_id", where, expected, number(got));
    } else if (want > 0 && (slot || page_id)) {
      report_.fail("table.unit", where, expected,
                   number(got) + (slot ? ", the slot" : ", the page"));
    } else {
      report_.fail("table.slot", where, expected,
                   number(got) + owner(run.row, listed_[static_cast<size_t>(i)]));
    }
  }
  /// Whose key a slot is.
  std::string owner(size_t row, int32_t slot) const {
    for (size_t r = 0; r < rows_.keys.size(); ++r) {
      const auto key = std::ranges::find(rows_.keys[r], slot);
      if (key == rows_.keys[r].end()) continue;
      const std::string token = "token " + number(key - rows_.keys[r].begin());
      return ": " + token +
             (r == row ? " of this row" : " of row " + number(static_cast<int64_t>(r)));
    }
    return ": nobody's";
  }

  /// Rows that no request has: some key where there is a query, and all of them in page 0.
  void padding(const KeyList& list) {
    if (list.keys < 0 || m_.size(list.keys) == 0 || m_.size(list.lens) == 0) return;
    const bool table = is_table(list);
    if (!table && m_.buffer(list.keys).shape.size() > 1) return;  // chunks: no keys
    const int64_t rows = m_.size(list.lens) - (table ? 0 : 1);
    const bool alone = kind_.lists.size() == 1 && !kind_.kind->cross;
    for (int64_t row = m_.requests(); row < rows; ++row) {
      if (!is_padding(list, row)) continue;
      const Part part = table ? Part{row * width(list), row * width(list) + length(list, row)}
                              : slots_of(list, row);
      const int64_t got = part.end - part.begin, most = m_.limits.max_kv_len;
      const int64_t least = alone && has_queries(list, row)
                                ? std::min<int64_t>(m_.on_rank(m_.model.seq_len_fill), 1)
                                : 0;
      if (got < least || got > most) {
        report_.fail("len.padding", at(m_.buffer(list.lens).name, row),
                     number(least) + " to " + number(most), number(got));
        continue;
      }
      is_empty(list, row, part, table ? (got + m_.unit(list.keys) - 1) / m_.unit(list.keys) : got);
    }
  }
  bool is_padding(const KeyList& list, int64_t row) const {
    if (!has_offsets(list)) return row >= std::ssize(rows_.kv_lens);
    return row + 1 < m_.size(list.queries) && m_.value(list.queries, row) >= m_.tokens();
  }
  bool has_queries(const KeyList& list, int64_t row) const {
    return !has_offsets(list) || m_.value(list.queries, row + 1) > m_.value(list.queries, row);
  }
  void is_empty(const KeyList& list, int64_t row, Part part, int64_t count) {
    if (part.begin < 0 || part.begin + count > m_.size(list.keys)) {
      report_.fail("table.capacity", at(m_.buffer(list.keys).name, row),
                   "<= " + number(m_.size(list.keys)), number(part.begin + count));
      return;
    }
    for (int64_t c = 0; c < count; ++c) {
      if (const int64_t got = m_.value(list.keys, part.begin + c); got != 0)
        return report_.fail("table.slot", at(m_.buffer(list.keys).name, row, c), "0 in padding",
                            number(got));
    }
  }

  const MetaFacts& m_;
  const KindFacts& kind_;
  const CanonicalRows& rows_;
  const bool whole_;  // rows of cross-attention, which do not count a draft's branches
  LawReport& report_;
  std::vector<int32_t> listed_;
  std::vector<int64_t> seen_;  // keys of the row
  std::vector<Source> sources_;
};

}  // namespace

void judge_keys(const MetaFacts& m, LawReport& report) {
  for (const KindFacts& kind : m.kinds()) KeyJudge(m, kind, report).run();
}

}  // namespace shadowgraph
