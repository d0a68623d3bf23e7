// Offsets of rows: of queries and of keys, their ends, and the counts between them.
#include <algorithm>
#include <utility>

#include "check/traces/field_judge.h"
#include "check/traces/trace_words.h"
#include "core/laws.h"

namespace shadowgraph {

/// A graph of draft extends may have its width of queries for each row: those behind a row's own
/// are padding, which nobody reads.
bool FieldJudge::has_queries_of_width() const {
  const TraceBatch& b = step_.rebuilt;
  if (!field_.of_queries || !b.graph || !is_draft_extend(b.batch.mode, DraftExtendV2::kIncluded))
    return false;
  for (int64_t r = 0; r < stored(); ++r) {
    if (got(r) != r * b.width) return false;
  }
  return true;
}

/// Queries stand at the end of lists that hold the step's own keys, and behind all others.
bool FieldJudge::lists_own_keys() const {
  const ForwardBatch& batch = step_.rebuilt.batch;
  bool any = false, own = false;
  for (const BufferInfo& field : step_.backend.buffers) {
    if (field.shape != FieldShape::kList || !step_.twin.has(static_cast<size_t>(field.buffer)))
      continue;
    any = true;
    for (int64_t i = 0; i < batch.size(); ++i)
      own = own || part_of(twin(field.lens), i).size() > batch.extent(i).prefix_len;
  }
  return own || !any;
}

/// Keys of a row, as the offsets count them, and of all rows as they should.
CountPlace FieldJudge::counted(int64_t row) const {
  CountPlace place{row, rows_ - 1, paged_.keys, got(row + 1) - got(row)};
  if (paged_.is_paged()) place.got = paged_.keys_read(row, place.got);
  for (int64_t r = 0; !paged_.is_paged() && r + 1 < real_rows(); ++r)
    place.expected.push_back(expected(r + 1) - expected(r));
  return place;
}

/// "; they count pages of 4 tokens, ...": offsets of a batch whose page size nobody has said.
std::string FieldJudge::as_pages(const RecordedField& told, const Buffer& indptr) const {
  if (step_.rebuilt.model.page_size > 1 || capture()) return "";
  const auto counts = [&](int64_t page) {
    for (int64_t r = 0; r < step_.rebuilt.batch.size(); ++r) {
      const int64_t keys = part_of(indptr, r).size();
      if (part_of(told, r).size() != (keys + page - 1) / page) return false;
    }
    return true;
  };
  constexpr int64_t kMost = 1024;
  for (int64_t page = 2; page <= kMost && !counts(1); page *= 2)
    if (counts(page))
      return "; the offsets count pages of " + number(page) +
             " tokens, and the batch says page_size 1";
  return "";
}

void FieldJudge::report_count(int64_t end, bool of_width) {
  const int64_t want = expected(end) - expected(end - 1), begin = got(end - 1);
  SlipWords why;
  if (of_width)
    why = slip("queries.of_width");
  else if (!field_.of_queries)
    why = explain_count(step_, counted(end - 1));
  std::string more = number(want) + " more";
  if (paged_.is_paged()) {
    more += ": pages of " + number(paged_.keys[static_cast<size_t>(end - 1)]) + " keys";
    std::string read = paged_.reading(end - 1, got(end) - begin);
    if (!read.empty() && !why.words.empty()) read += ": ";
    why.words.insert(0, read);
  }
  const bool whole = !field_.of_queries && recorded_.cols >= rows_ && !field_.of_virtual;
  const std::string pages = whole ? as_pages(recorded_, buffer()) : "";
  if (!pages.empty()) why = {};
  fail("len.q_extent", end, {}, number(expected(end)) + " (" + more + ")",
       number(got(end)) + " after " + explained(begin, why) + pages, why.refs);
}

bool FieldJudge::judge_indptr() {
  const bool constant = field_.rule == FieldRule::kConstant;
  const int64_t real = capture() ? (constant ? rows_ : 1) : real_rows();
  const bool of_width = has_queries_of_width();
  if (of_width && !capture() && !lists_own_keys()) return true;
  judged("len.indptr_first");
  judged("len.q_extent", std::min(real, stored()) - 1);
  judged("len.indptr_monotone", std::max<int64_t>(0, stored() - real));
  if (got(0) != 0) {
    fail("len.indptr_first", 0, {}, "0", number(got(0)));
    return true;
  }
  for (int64_t r = 1; r < stored(); ++r) {
    if (r < real && expected(r) != got(r)) {
      report_count(r, of_width);
      return true;
    }
    if (r >= real && got(r) < got(r - 1)) {
      fail("len.indptr_monotone", r, {}, ">= " + number(got(r - 1)), number(got(r)));
      return true;
    }
  }
  judge_total();
  judge_copy();
  return true;
}

/// The first is 0, and not there.
bool FieldJudge::judge_ends() {
  judged("len.q_extent", real_rows());
  judged("len.indptr_monotone", stored() - real_rows());
  for (int64_t r = 0, want = 0, end = 0; r < stored(); end = got(r++)) {
    if (r < real_rows() && got(r) != expected(r)) {
      fail("len.q_extent", r, {},
           number(expected(r)) + " (" + number(expected(r) - want) + " more)",
           number(got(r)) + " after " + number(end));
      return true;
    }
    if (r < real_rows()) want = expected(r);
    if (got(r) >= end) continue;
    fail("len.indptr_monotone", r, {}, ">= " + number(end), number(got(r)));
    return true;
  }
  judge_total();
  return true;
}

/// Padding ends inside a graph's query tokens.
void FieldJudge::judge_total() {
  const int64_t tokens = step_.rebuilt.tokens(), last = stored() - 1;
  if (!field_.of_queries || tokens == 0) return;
  judged("len.total");
  if (last >= 0 && got(last) > tokens)
    fail("len.total", last, {}, "<= " + number(tokens) + " query tokens of the graph",
         number(got(last)) + ": the kernel reads and writes behind them");
}

/// The host plans what the device reads: copies of one array are equal, padding too.
void FieldJudge::judge_copy() {
  const RecordedField* told = step_.recorded_indptr(field_.buffer, rows_);
  if (told == nullptr) return;
  for (int64_t r = real_rows(); r < std::min(stored(), told->cols); ++r) {
    const int64_t want = told->data[static_cast<size_t>(r)];
    if (got(r) == want) continue;
    fail("len.q_extent", r, {}, number(want) + ", as the other copy of these offsets",
         number(got(r)));
    return;
  }
}

/// The steps of padding are those of the recorded offsets.
bool FieldJudge::judge_steps() {
  const RecordedField* told = step_.recorded_indptr(field_.buffer, rows_ + 1);
  const int64_t rows = told == nullptr ? real_rows() : std::min(stored(), told->cols - 1);
  judged("plan.argument", rows);
  for (int64_t r = 0; r < rows; ++r) {
    const Part part = r < real_rows() ? part_of(buffer(), r) : keys_of(*told, r);
    if (part.size() < 0 || got(r) == part.size()) continue;  // below 0: the offsets' finding
    fail("plan.argument", r, {}, number(part.size()) + ", as the offsets step", number(got(r)));
    break;
  }
  return true;
}

}  // namespace shadowgraph
