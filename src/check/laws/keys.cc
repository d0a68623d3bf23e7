// Which keys a query finds: for each run of queries that share their rows, the slots that live
// entries of all lists lead to, one list after the other, are the keys that the queries see. A list
// whose kernel hides some by a window, or by a mask, may hold more of the request's, in order.
#include <algorithm>
#include <span>
#include <vector>

#include "attn/mask.h"
#include "check/laws/judges.h"
#include "check/laws/key_rows.h"

namespace shadowgraph {
namespace {

class KeyJudge {
 public:
  KeyJudge(const MetaFacts& m, const KindFacts& kind, LawReport& report)
      : m_(m), kind_(kind), rows_(kind.rows), lists_(m, kind), report_(report) {}

  void run() {
    QueryRun run;
    for (run.row = 0; run.row < rows_.kv_lens.size(); ++run.row) {
      const int64_t end = rows_.cu_seqlens_q[run.row + 1];
      for (int64_t at = rows_.cu_seqlens_q[run.row]; at < end; at = run.end) {
        run.begin = at, run.end = end;
        if (!lists_.find(&run)) break;
        if (lists_.gather(run, report_)) judge(run);
      }
    }
    for (const KeyList& list : kind_.lists) padding(list);
  }

 private:
  void judge(const QueryRun& run) {
    const std::span<const int64_t> listed = lists_.slots();
    judged("len.kv_extent");
    if (!listed.empty()) {
      judged("table.page_id");
      judged("table.slot");
      if (m_.model.page_size > 1) judged("table.unit");
    }
    const bool masked = std::ranges::any_of(kind_.lists, &KeyList::masked);
    if (masked || rows_.mask.empty()) {
      is_end_of_row(run, listed);
    } else {
      sees_all(run, run.end - 1, listed);
      const auto later = static_cast<size_t>(run.end - 1 - run.begin);
      if (later > 0 && later <= listed.size())
        sees_all(run, run.begin, listed.first(listed.size() - later));
    }
  }

  /// The row's keys, all but those before what its first query sees.
  void is_end_of_row(const QueryRun& run, std::span<const int64_t> listed) {
    const int64_t all = rows_.kv_lens[run.row], got = std::ssize(listed);
    const int64_t hidden = kind_.kind->params.window_left < 0 ? 0 : first_seen(run);
    if (got > all || got < all - hidden) {
      wrong_count(run, all - hidden, all);
      return;
    }
    for (int64_t i = 0; i < got; ++i) {
      const int64_t key = all - got + i;
      if (!leads_to(run, listed[static_cast<size_t>(i)], key)) return wrong_key(run, i, key);
    }
  }

  int32_t slot_of(const QueryRun& run, int64_t key) const {
    return rows_.keys[run.row][static_cast<size_t>(key)];
  }
  bool leads_to(const QueryRun& run, int64_t slot, int64_t key) const {
    const int32_t want = slot_of(run, key);
    if (want == 0) return slot >= 0 && slot < m_.model.page_size;  // an evicted page is page 0
    return slot >= 0 && (slot == want || slot == copy_of(run, key));
  }
  /// Where a draft's branch has a copy of the prefix's last, partial page: before its own tokens.
  /// -1: of this key it has none.
  int64_t copy_of(const QueryRun& run, int64_t key) const {
    const int64_t page = m_.model.page_size;
    const int64_t prefix = rows_.kv_lens[run.row] - m_.limits.step - 1;
    const bool drafts = m_.limits.mode == ForwardMode::kDraftDecode && m_.model.topk > 1;
    if (!drafts || key >= prefix || key < prefix / page * page) return -1;
    return slot_of(run, prefix) / page * page + key % page;
  }

  /// The first key that a query of the run sees.
  int64_t first_seen(const QueryRun& run) const {
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
  void sees_all(const QueryRun& run, int64_t query, std::span<const int64_t> listed) {
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

  /// Reports a wrong number of keys, at the last list that has a length.
  void wrong_count(const QueryRun& run, int64_t least, int64_t most) {
    const KeySource* source = &lists_.sources().front();
    for (const KeySource& s : lists_.sources())
      if (s.list->kind != KeyList::Kind::kOwn) source = &s;
    const int lens = source->list->lens;
    const auto says_keys = [&](const BufferInfo& r) {
      return r.buffer == lens && (r.role == Role::kKeyLens || r.role == Role::kKeyOffsets);
    };
    if (std::ranges::any_of(m_.info.buffers, says_keys)) return;  // judge_lengths
    std::string want = number(most) + " keys";
    if (most > least) want = number(least) + " to " + want;
    report_.fail("len.kv_extent", at(m_.buffer(lens).name, source->row), want,
                 number(std::ssize(lists_.slots())) + " for query " + number(run.begin));
  }

  /// The run's slot i leads elsewhere; key: -1 where none of the row's keys may stand.
  void wrong_key(const QueryRun& run, int64_t i, int64_t key) {
    const KeySource* s = &lists_.sources().front();
    for (const KeySource& source : lists_.sources())
      if (source.first <= i) s = &source;
    const KeyList& list = *s->list;
    if (list.kind == KeyList::Kind::kOwn) return;  // its offsets are wrong
    const int64_t unit = std::max<int64_t>(m_.unit(list.keys), 1), column = (i - s->first) / unit;
    const int64_t got = entry(*s, column), want = key < 0 ? -1 : slot_of(run, key);
    std::string expected = "a key of the request, after the one before it";
    if (key >= 0) expected = "slot " + number(want) + " of token " + number(key);
    if (key >= 0 && unit > 1) expected = "page " + number(want / unit) + ", " + expected;
    const Where where = at(m_.buffer(list.keys).name, s->row, column);
    if (got < 0) {
      report_.fail("table.page_id", where, expected, number(got));
    } else if (key >= 0 && is_other_unit(run, *s, key - i)) {
      report_.fail("table.unit", where, expected,
                   number(got) + (unit > 1 ? ", the slot" : ", the page"));
    } else {
      report_.fail("table.slot", where, expected,
                   number(got) + owner(run.row, lists_.slots()[static_cast<size_t>(i)]));
    }
  }
  int64_t entry(const KeySource& s, int64_t column) const {
    const int64_t first = s.list->kind == KeyList::Kind::kTable
                              ? s.row * lists_.width(*s.list)
                              : lists_.slots_of(*s.list, s.row).begin;
    return m_.value(s.list->keys, first + column);
  }
  /// All entries are slots where the kernel takes pages, or pages where it takes slots; the run's
  /// slot i is key i + shift.
  bool is_other_unit(const QueryRun& run, const KeySource& s, int64_t shift) const {
    const int64_t unit = std::max<int64_t>(m_.unit(s.list->keys), 1);
    if (m_.model.page_size == 1) return false;
    const KeySource* next = &s + 1;
    const bool last = next == lists_.sources().data() + lists_.sources().size();
    const int64_t end = last ? std::ssize(lists_.slots()) : next->first;
    for (int64_t i = s.first; i < end; i += unit) {
      const int64_t key = i + shift;
      if (key < 0 || key >= rows_.kv_lens[run.row]) return false;
      const int64_t slot = slot_of(run, key);
      if (entry(s, (i - s.first) / unit) != (unit > 1 ? slot : slot / m_.model.page_size))
        return false;
    }
    return true;
  }
  /// Whose key a slot is.
  std::string owner(size_t row, int64_t slot) const {
    for (size_t r = 0; r < rows_.keys.size(); ++r) {
      const auto key = std::ranges::find(rows_.keys[r], slot);
      if (key == rows_.keys[r].end()) continue;
      std::string of = " of this row";
      if (r != row) of = " of row " + number(static_cast<int64_t>(r));
      return ": token " + number(key - rows_.keys[r].begin()) + of;
    }
    return ": a slot of no request";
  }

  /// Rows that no request has: some key where there is a query, and all of them in page 0.
  void padding(const KeyList& list) {
    if (list.kind == KeyList::Kind::kChunk) return;  // no keys
    if (m_.size(list.keys) == 0 || m_.size(list.lens) == 0) return;
    const bool table = list.kind == KeyList::Kind::kTable;
    const int64_t rows = m_.size(list.lens) - (table ? 0 : 1);
    const bool alone = kind_.lists.size() == 1 && !kind_.kind->cross;
    for (int64_t row = m_.requests(); row < rows; ++row) {
      if (!is_padding(list, row)) continue;
      const SlotRange part = table ? SlotRange{row * lists_.width(list),
                                               row * lists_.width(list) + lists_.length(list, row)}
                                   : lists_.slots_of(list, row);
      const int64_t got = part.end - part.begin, most = m_.limits.max_kv_len;
      judged("len.padding");
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
    if (!lists_.has_offsets(list)) return row >= std::ssize(rows_.kv_lens);
    return row + 1 < m_.size(list.queries) && m_.value(list.queries, row) >= m_.tokens();
  }
  bool has_queries(const KeyList& list, int64_t row) const {
    return !lists_.has_offsets(list) ||
           m_.value(list.queries, row + 1) > m_.value(list.queries, row);
  }
  void is_empty(const KeyList& list, int64_t row, SlotRange part, int64_t count) {
    if (part.begin < 0) return;  // len.indptr_first, or monotone
    judged("table.capacity");
    if (part.begin + count > m_.size(list.keys)) {
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
  KeyRows lists_;
  LawReport& report_;
  std::vector<int64_t> seen_;  // keys of the row
};

}  // namespace

void judge_keys(const MetaFacts& m, LawReport& report) {
  for (const KindFacts& kind : m.kinds()) KeyJudge(m, kind, report).run();
}

}  // namespace shadowgraph
