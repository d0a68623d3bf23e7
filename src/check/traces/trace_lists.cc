// Lists of slots or pages (CSR): what a row holds is looked up where the recorded offsets say, so
// that a wrong length is one finding, and not one for each slot behind it.
#include <algorithm>
#include <utility>

#include "check/traces/field_judge.h"

namespace shadowgraph {

FieldJudge::Part FieldJudge::part_of(const Buffer& indptr, int64_t row) const {
  return {value_of(indptr, row), value_of(indptr, row + 1)};
}

FieldJudge::Part FieldJudge::part_of(const RecordedField& indptr, int64_t row) const {
  const auto i = static_cast<size_t>(row);
  return {indptr.data[i], indptr.data[i + 1]};
}

/// The row's elements in the twin's list.
FieldJudge::Part FieldJudge::listed_part(int64_t row) const {
  if (!paged_.is_paged()) return part_of(twin(field_.lens), row);
  const auto r = static_cast<size_t>(row);
  return {paged_.indptr[r], paged_.indptr[r + 1]};
}

/// A part as long as the row has keys; a negative size if nothing says how many its last page has.
FieldJudge::Part FieldJudge::keys_of(const RecordedField& indptr, int64_t row) const {
  const Part part = part_of(indptr, row);
  return paged_.is_paged() ? Part{0, paged_.keys_read(row, part.size())} : part;
}

bool FieldJudge::judge_list() {
  const RecordedField* told = step_.recorded_indptr(field_.lens, rows_ + 1);
  // Where offsets are not recorded nothing says where padding is.
  const int64_t all = told != nullptr ? told->rows() - 1 : real_rows();
  Rows rows;
  TablePlace first;
  for (int64_t r = 0; r < all; ++r) {
    const Part here = told != nullptr ? part_of(*told, r) : listed_part(r);
    if (here.begin < 0 || here.size() < 0) continue;  // the offsets' finding
    judged("table.capacity");
    if (here.end > recorded_.width()) {
      fail("table.capacity", {}, {},
           "at least " + number(here.end) + ", where the offsets end row " + number(r),
           number(recorded_.width()) + " elements long: the kernel reads on behind the last");
      break;
    }
    TablePlace place;
    if (r >= real_rows()) {
      if (!judge_padded_list(r, here)) break;
    } else if (find_wrong_slot(r, here, &place) && rows.wrong++ == 0) {
      first = std::move(place);
    }
  }
  if (rows.wrong == 0) return left_out_.empty();
  report_slot(first, rows.more(),
              told != nullptr && !field_.of_virtual ? as_pages(*told, twin(field_.lens)) : "");
  return left_out_.empty();
}

/// A row of another length than the twin's may begin or end as that does; the length is a finding
/// of the offsets.
bool FieldJudge::find_wrong_slot(int64_t row, Part here, TablePlace* place) {
  const Part there = listed_part(row);
  const int64_t shorter = std::min(here.size(), there.size());
  if (shorter > 0 && here.end > recorded_.cols)
    return leave_out("left_out.not_stored", "live elements are not stored");
  const int64_t dead = first_live(row) / paged_.page;  // they may lead anywhere
  judged("table.slot", shorter);
  judged("table.unit", shorter);
  judged("table.page_id", shorter);
  const auto first_wrong = [&](int64_t mine, int64_t theirs) {
    int64_t j = std::min(dead, shorter);
    while (j < shorter && (expected(theirs + j) == got(mine + j) ||
                           is_never_allocated(expected(theirs + j) * paged_.page)))
      ++j;
    return j;
  };
  const int64_t j = first_wrong(here.begin, there.begin);
  if (j == shorter || first_wrong(here.end - shorter, there.end - shorter) == shorter) return false;
  const int64_t page = paged_.page;
  const auto begin = recorded_.data.begin() + here.begin;
  *place = {page,
            row,
            j * page,
            expected(there.begin + j) * page,
            got(here.begin + j),
            {begin, begin + shorter}};
  return true;
}

/// Safe to run: slots or pages of the pool, as far as it is known.
bool FieldJudge::judge_padded_list(int64_t row, Part here) {
  for (int64_t j = here.begin; j < std::min(here.end, recorded_.cols); ++j) {
    judged("table.page_id");
    if (is_of_padding(got(j), paged_.page)) continue;
    fail("table.page_id", row, j - here.begin, padding_page(paged_.is_paged() ? "page" : "slot"),
         number(got(j)) + end_of_pool(got(j), paged_.page));
    return false;
  }
  return true;
}

/// pages: what the offsets count, if not slots.
void FieldJudge::report_slot(const TablePlace& p, const std::string& more,
                             const std::string& pages) {
  SlipWords why;
  if (pages.empty())
    why = explain_table(step_, field_, p);
  else
    why.law = "table.unit";
  std::string want = "slot " + number(p.expected);
  if (p.unit > 1) want.insert(0, "page " + number(p.expected / p.unit) + ", ");
  const std::string got = explained(p.got, why) + pages + more;
  fail(why.law, p.row, p.token / p.unit, want, got, why.refs);
}

}  // namespace shadowgraph
