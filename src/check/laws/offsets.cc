// Offsets: where each row's queries, keys or mask begin.
#include <algorithm>

#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

/// Offsets [first, first + count) of a buffer, into an array of so many elements.
void judge_one(const MetaFacts& m, int buffer, int64_t first, int64_t count, int64_t capacity,
               LawReport& report) {
  if (count <= 0 || first + count > m.size(buffer)) return;
  const std::string& name = m.buffer(buffer).name;
  judged("len.indptr_first");
  judged("len.indptr_monotone");
  judged("len.total");
  if (const int64_t got = m.value(buffer, first); got != 0)
    report.fail("len.indptr_first", at(name, first), "0", number(got));
  for (int64_t i = first + 1; i < first + count; ++i) {
    const int64_t before = m.value(buffer, i - 1), got = m.value(buffer, i);
    if (got < before)
      report.fail("len.indptr_monotone", at(name, i), ">= " + number(before), number(got));
  }
  if (const int64_t got = m.value(buffer, first + count - 1); got > capacity)
    report.fail("len.total", at(name, first + count - 1), "<= " + number(capacity), number(got));
}

bool counts_queries(Role role) { return role == Role::kQueryOffsets || role == Role::kCutOffsets; }

/// Judges where each row's slots begin in a list.
void judge_list(const MetaFacts& m, const KeyList& list, LawReport& report) {
  if (m.size(list.lens) == 0) return;
  if (list.kind == KeyList::Kind::kSlots) {
    judge_one(m, list.lens, 0, m.size(list.lens), m.size(list.keys), report);
  } else if (list.kind == KeyList::Kind::kChunk) {
    const int64_t count = m.limits.rows + 1;
    judge_one(m, list.lens, list.chunk * count, count, m.buffer(list.keys).shape[1], report);
  }
}

/// Judges offsets without the first: the last is the number of tokens, padding's counted.
void judge_ends(const MetaFacts& m, int buffer, LawReport& report) {
  const int64_t rows = m.size(buffer);
  if (rows == 0) return;
  const std::string& name = m.buffer(buffer).name;
  judged("len.indptr_monotone");
  judged("len.total");
  for (int64_t i = 0, before = 0; i < rows; ++i) {
    const int64_t got = m.value(buffer, i);
    if (got < before)
      report.fail("len.indptr_monotone", at(name, i), ">= " + number(before), number(got));
    before = got;
  }
  const int64_t last = m.value(buffer, rows - 1), least = m.tokens(), most = m.limits.tokens;
  if (last < least || last > most)
    report.fail("len.total", at(name, rows - 1), number(least) + " to " + number(most),
                number(last));
}

/// What a role says of the queries of a row.
int64_t queries_at(const MetaFacts& m, const BufferInfo& r, int64_t row) {
  const int64_t got = m.value(r.buffer, row);
  if (r.role == Role::kQueryOffsets) return m.value(r.buffer, row + 1) - got;
  if (r.role == Role::kQueryEnds) return row == 0 ? got : got - m.value(r.buffer, row - 1);
  return got;
}

}  // namespace

void judge_offsets(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    if (counts_queries(r.role))
      judge_one(m, r.buffer, 0, m.size(r.buffer), m.limits.tokens, report);
    if (r.role == Role::kKeyOffsets) judge_one(m, r.buffer, 0, m.size(r.buffer), INT32_MAX, report);
    if (r.role == Role::kQueryEnds) judge_ends(m, r.buffer, report);
  }
  for (const KindFacts& kind : m.kinds()) {
    for (const KeyList& list : kind.lists) {
      judge_list(m, list, report);
      if (list.mask)
        judge_one(m, list.mask->indptr, 0, m.size(list.mask->indptr), m.size(list.mask->bits),
                  report);
    }
  }
}

void judge_queries(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    const bool offsets = r.role == Role::kQueryOffsets;
    if (!offsets && r.role != Role::kQueryEnds && r.role != Role::kQueryLens) continue;
    const int64_t rows = m.size(r.buffer) - (offsets ? 1 : 0), each = m.rows_a_request(rows);
    if (rows <= 0) continue;
    judged("trace.shape");
    const std::string& name = m.buffer(r.buffer).name;
    if (each == 0) {
      report.fail("trace.shape", at(name), "rows of requests", number(rows));
      continue;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t got = queries_at(m, r, row), most = m.limits.tokens;
      judged(row / each >= m.requests() ? LawId("len.padding") : LawId("len.q_extent"));
      if (row / each >= m.requests()) {
        if (got < 0 || got > most)
          report.fail("len.padding", at(name, row), "0 to " + number(most), number(got));
      } else if (const int64_t want = m.queries(row / each); got * each != want) {
        report.fail("len.q_extent", at(name, row), number(want / each), number(got));
      }
    }
  }
}

}  // namespace shadowgraph
