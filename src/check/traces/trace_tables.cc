// Tables of pages or slots, a row each.
#include <algorithm>
#include <utility>

#include "check/traces/field_judge.h"
#include "check/traces/trace_input.h"

namespace shadowgraph {
namespace {

/// Pages of any recorded number: pages_for() takes only lengths.
int64_t pages(int64_t tokens, int64_t unit) { return tokens / unit + (tokens % unit != 0); }

}  // namespace

bool FieldJudge::judge_table() {
  const int64_t unit = field_.pages ? step_.rebuilt.model.page_size : 1;
  const RecordedField* lens = step_.recorded_lens(field_.lens);
  judge_live_rows(unit, lens);
  judge_padded_rows(unit, lens);
  return left_out_.empty();
}

int64_t FieldJudge::least_len() const {
  const auto lens = std::ranges::find_if(step_.backend.buffers, [&](const BufferInfo& f) {
    return f.shape == FieldShape::kRows && f.buffer == field_.lens;
  });
  if (lens != step_.backend.buffers.end()) return least_padding(*lens);
  // A rank of several may have none of a row's keys.
  return step_.backend.dcp ? 0 : step_.rebuilt.engine.padding_len;
}

int64_t FieldJudge::recorded_len(const RecordedField* lens, int64_t row) const {
  if (lens == nullptr || row >= static_cast<int64_t>(lens->data.size())) return 0;
  return lens->data[static_cast<size_t>(row)];
}

bool FieldJudge::has_columns(int64_t row, int64_t len, int64_t unit) {
  judged("table.capacity");
  if (len <= 0 || pages(len, unit) <= recorded_.width()) return true;
  fail("table.capacity", row, {},
       "at least " + number(pages(len, unit)) + " columns, for " + number(len) + " keys",
       number(recorded_.width()) + " columns wide: the kernel reads on behind the last");
  return false;
}

/// Tokens of a row before it may lead anywhere.
int64_t FieldJudge::first_live(int64_t row) const {
  const bool of_window = field_.of_window || step_.rebuilt.batch.full_to_swa.empty();
  const auto request = step_.request(row, rows_);
  return of_window && request ? step_.rebuilt.first_live(*request) : 0;
}

/// Tokens of a page, from 2 on, by which every live column is right, where the batch has pages of
/// one token; 1: none.
int64_t FieldJudge::unsaid_page_size() const {
  if (step_.rebuilt.model.page_size > 1 || buffer().shape[0] == 0) return 1;
  const Buffer& lens = step_.twin[static_cast<size_t>(field_.lens)];
  const int64_t columns = buffer().shape[1];
  const auto fits = [&](int64_t page) {
    for (int64_t r = 0; r < real_rows(); ++r) {
      for (int64_t t = 0; t < value_of(lens, r); ++t) {
        const int64_t slot = expected(r * columns + t);
        if (slot % page != t % page || t / page >= recorded_.cols ||
            got(r * recorded_.cols + t / page) != slot / page)
          return false;
      }
    }
    return true;
  };
  constexpr int64_t kMost = 1024;
  int64_t page = 2;
  while (page <= kMost && !fits(page)) page *= 2;
  return page <= kMost ? page : 1;
}

void FieldJudge::judge_live_rows(int64_t unit, const RecordedField* lens) {
  Rows rows;
  TablePlace first;
  const Buffer& twin_lens = step_.twin[static_cast<size_t>(field_.lens)];
  for (int64_t r = 0; r < real_rows(); ++r) {
    TablePlace place;
    if (find_wrong(unit, r, value_of(twin_lens, r), &place) && rows.wrong++ == 0)
      first = std::move(place);
  }
  const int64_t page = rows.wrong > 0 ? unsaid_page_size() : 1;
  for (int64_t r = 0; r < real_rows() && page == 1; ++r) {
    const int64_t len = value_of(twin_lens, r);
    if (!has_columns(r, std::max(len, recorded_len(lens, r)), unit)) break;
  }
  if (rows.wrong > 0) report(first, rows.more(), recorded_len(lens, first.row), page);
}

/// A live key's column of req_to_token leads into a page that is nobody's: pool.slot says it, and
/// nothing can be expected of what leads there.
bool FieldJudge::is_never_allocated(int64_t slot) const {
  const ForwardBatch& batch = step_.rebuilt.batch;
  for (int64_t i = 0; i < batch.size(); ++i) {
    for (const int32_t own : live_columns(batch, i)) {
      if (!step_.rebuilt.is_nobodys(own)) continue;
      const bool mapped = own >= 0 && !batch.full_to_swa.empty();
      if (own == slot || (mapped && batch.full_to_swa[static_cast<size_t>(own)] == slot))
        return true;
    }
  }
  return false;
}

/// Both tables are followed to slots, token by token; pages that are the same are the same slots.
bool FieldJudge::find_wrong(int64_t unit, int64_t row, int64_t len, TablePlace* place) {
  const int64_t twin_unit = step_.twin.units[static_cast<size_t>(field_.buffer)];
  const int64_t columns = buffer().shape[1], begin = first_live(row);
  const int64_t width = std::min(recorded_.width(), recorded_.cols);
  int64_t t = begin, c = begin / unit;
  bool wrong = false;
  for (; t < len && c < width && !wrong; ++c) {
    const int64_t got = recorded_.data[static_cast<size_t>(row * recorded_.cols + c)];
    const int64_t end = std::min(len, (c + 1) * unit);
    if (const int64_t page = twin_unit == unit ? expected(row * columns + c) : -1;
        page >= 0 && page == got) {
      t = end;
      continue;
    }
    for (; t < end && !wrong; ++t) {
      const int64_t slot = expected(row * columns + t / twin_unit) * twin_unit + t % twin_unit;
      if (slot >= 0 && got == slot / unit && t % unit == slot % unit) continue;
      if (is_never_allocated(slot)) continue;
      *place = {unit, row, t, slot, got};
      wrong = true;
    }
  }
  for (const LawId law : {LawId("table.slot"), LawId("table.unit"), LawId("table.page_id")})
    judged(law, t - std::min(t, begin));
  if (!wrong && t < len && c < recorded_.width())
    return leave_out("left_out.not_stored", "live columns are not stored");
  return wrong;  // columns that are not there: table.capacity
}

void FieldJudge::report(TablePlace p, const std::string& more, int64_t recorded_len,
                        int64_t unsaid_page) {
  SlipWords why;
  if (unsaid_page > 1) {
    why = slip("table.other_unit", {"an id of a page", "a slot"});
    why.words +=
        "; the table is right with page_size " + number(unsaid_page) + ", and the batch says 1";
    why.law = "table.unit";
  } else if (recorded_len > 0 && p.token >= recorded_len) {
    why = slip("table.behind_length", {number(recorded_len)});
  } else {
    int64_t len = value_of(twin(field_.lens), p.row);
    if (recorded_len > 0) len = std::min(len, recorded_len);
    const auto row = recorded_.data.begin() + p.row * recorded_.cols;
    p.columns.assign(row, row + std::min(pages(len, p.unit), recorded_.cols));
    why = explain_table(step_, field_, p);
  }
  std::string want = "slot " + number(p.expected) + " of token " + number(p.token);
  if (p.unit > 1) want.insert(0, "page " + number(p.expected / p.unit) + ", ");
  const std::string got = explained(p.got, why) + more;
  fail(why.law, p.row, p.token / p.unit, want, got + before_window(p), why.refs);
}

/// The words for a column before the window, where the line does not say whether it is live.
std::string FieldJudge::before_window(const TablePlace& p) const {
  const auto request = step_.request(p.row, rows_);
  const bool may_be_dead = field_.of_window || step_.rebuilt.batch.full_to_swa.empty();
  if (!request || !may_be_dead || p.token >= step_.rebuilt.first_in_window(*request)) return "";
  return "; it lies before the window: window_columns says whether it is live";
}

/// The last slot of the field's pool, as far as the line tells.
int64_t FieldJudge::last_slot() const {
  const int64_t told = is_of_window() ? INT32_MAX : step_.rebuilt.pool_slots - 1;
  const int64_t mapped = std::ssize(step_.rebuilt.batch.full_to_swa);  // the last one is no slot's
  return mapped == 0 ? told : std::min(told, mapped - 2);
}

/// A padded row may lead to this page. unit: tokens of a column or an entry.
bool FieldJudge::is_of_padding(int64_t page, int64_t unit) const {
  const auto& said = step_.rebuilt.engine.padding_page;
  if (said && *said < 0) return page == *said;
  if (page < 0 || page > last_slot() / unit) return false;
  return !said || page / (step_.rebuilt.model.page_size / unit) == *said;
}

/// "; the pool has 16 pages" of a page behind it.
std::string FieldJudge::end_of_pool(int64_t page, int64_t unit) const {
  return is_of_window() ? "" : step_.rebuilt.end_of_pool(page, unit);
}

std::string FieldJudge::padding_page(const std::string& what) const {
  const auto& said = step_.rebuilt.engine.padding_page;
  return said ? "page " + number(*said) + " in padding"
              : "a " + what + " of the pool in padding, too";
}

/// Safe to run: columns are there, and lead into the pool as far as it is known.
/// Where lengths are not recorded, a row has the fewest keys that it may have.
void FieldJudge::judge_padded_rows(int64_t unit, const RecordedField* lens) {
  for (int64_t r = real_rows(); r < recorded_.rows(); ++r) {
    const int64_t len = lens != nullptr ? recorded_len(lens, r) : least_len();
    if (!has_columns(r, len, unit)) return;
    const int64_t live = std::min(pages(std::max<int64_t>(0, len), unit), recorded_.cols);
    for (int64_t c = 0; c < live; ++c) {
      const int64_t page = recorded_.data[static_cast<size_t>(r * recorded_.cols + c)];
      judged("table.page_id");
      if (is_of_padding(page, unit)) continue;
      fail("table.page_id", r, c, padding_page("page"), number(page) + end_of_pool(page, unit));
      return;
    }
  }
}

}  // namespace shadowgraph
