#include "check/traces/trace_pages.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "check/traces/field_judge.h"
#include "check/traces/trace_plans.h"

namespace shadowgraph {
namespace {

/// The list that the field counts or closes, or is. Of several that share offsets, the recorded
/// one.
auto list_of(const TraceStep& step, const BufferInfo& field, std::string_view plan) {
  const auto& rows = step.backend.buffers;
  const auto shares = [&](const BufferInfo& f) {
    if (f.shape != FieldShape::kList || plan_of(f.recorded) != plan) return false;
    if (!step.twin.has(static_cast<size_t>(f.buffer))) return false;
    switch (field.shape) {
      case FieldShape::kList: return f.recorded == field.recorded;
      case FieldShape::kIndptr: return !field.of_queries && f.lens == field.buffer;
      case FieldShape::kRows: return field.of_last_page;
      case FieldShape::kScalar: return !plan.empty();
      default: return field.shape == FieldShape::kMask || field.shape == FieldShape::kSteps;
    }
  };
  const auto told = std::ranges::find_if(
      rows, [&](const BufferInfo& f) { return shares(f) && step.recorded(f.recorded) != nullptr; });
  return told != rows.end() ? told : std::ranges::find_if(rows, shares);
}

/// The recorded page size of a plan, if the pool has whole pages of it; else 1.
int64_t page_size_of(const TraceStep& step, std::string_view plan) {
  if (plan.empty()) return 1;
  const RecordedField* said = step.recorded(std::string(plan) + ".page_size");
  if (said == nullptr || said->data.size() != 1 || said->data[0] < 1) return 1;
  const int64_t page = said->data[0];
  const bool fits =
      std::has_single_bit(static_cast<uint64_t>(page)) && step.rebuilt.model.page_size % page == 0;
  return fits ? page : 1;
}

/// Whether slots [begin, end) lie in pages, from the first token of one on.
bool lie_in_pages(const Buffer& slots, int64_t begin, int64_t end, int64_t page) {
  for (int64_t j = begin; j < end; ++j) {
    const int64_t offset = (j - begin) % page, slot = value_of(slots, j);
    if (slot % page != offset || slot - offset != value_of(slots, j - offset)) return false;
  }
  return true;
}

/// Whether the recorded offsets are those of single slots, which no row of pages has.
bool count_slots(const TraceStep& step, const PagedList& paged) {
  const Buffer& slots = step.twin[static_cast<size_t>(paged.offsets)];
  const RecordedField* told = step.recorded_indptr(paged.offsets, std::ssize(paged.indptr));
  if (told == nullptr) return false;
  bool differ = false;
  for (size_t r = 0; r < paged.indptr.size(); ++r) {
    if (told->data[r] != value_of(slots, static_cast<int64_t>(r))) return false;
    differ = differ || told->data[r] != paged.indptr[r];
  }
  return differ;
}

}  // namespace

int64_t PagedList::pages(int64_t row) const {
  const auto r = static_cast<size_t>(row);
  return indptr[r + 1] - indptr[r];
}

int64_t PagedList::last_page(int64_t row) const {
  const int64_t n = keys[static_cast<size_t>(row)];
  return n == 0 ? 0 : (n - 1) % page + 1;
}

int64_t PagedList::at(FieldShape shape, int64_t i) const {
  if (shape == FieldShape::kRows) return last_page(i);
  return (shape == FieldShape::kIndptr ? indptr : ids)[static_cast<size_t>(i)];
}

int64_t PagedList::keys_read(int64_t row, int64_t pages) const {
  if (pages == 0) return 0;
  if (last_pages == nullptr || row >= std::ssize(last_pages->data)) return -1;
  const int64_t last = last_pages->data[static_cast<size_t>(row)];
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (pages < 0 || pages > kMost || last < 0 || last > kMost) return -1;
  return (pages - 1) * page + last;
}

std::string PagedList::reading(int64_t row, int64_t pages) const {
  const int64_t read = keys_read(row, pages);
  if (read < 0) return "";
  std::string sum;
  if (pages > 0)
    sum = std::to_string(pages) + (pages > 1 ? " pages of " : " page of ") + std::to_string(page) +
          ", the last with " + std::to_string(read - (pages - 1) * page) + ": ";
  return sum + std::to_string(read) + " keys are read";
}

PagedList paged_list_of(const TraceStep& step, const BufferInfo& field) {
  const std::string_view plan = plan_of(field.recorded);
  const auto list = list_of(step, field, plan);
  if (list == step.backend.buffers.end()) return {};
  const int64_t page = list->pages ? step.rebuilt.model.page_size : page_size_of(step, plan);
  if (page == 1) return {};
  PagedList paged;
  paged.page = page, paged.offsets = list->lens;
  for (const BufferInfo& f : step.backend.buffers) {
    if (f.of_last_page && plan_of(f.recorded) == plan) paged.last_pages = step.recorded(f.recorded);
  }
  if (step.rebuilt.capture) return paged;
  const Buffer& indptr = step.twin[static_cast<size_t>(list->lens)];
  const Buffer& slots = step.twin[static_cast<size_t>(list->buffer)];
  int64_t rows = indptr.shape[0] - 1;
  if (step.twin.limits.rows > 0) rows = rows / step.twin.limits.rows * step.rebuilt.batch.size();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t begin = value_of(indptr, r), end = value_of(indptr, r + 1);
    const auto request = step.request(r, indptr.shape[0] - 1);
    const int64_t dead = request ? step.rebuilt.first_live(*request) : 0;
    if (!lie_in_pages(slots, std::min(begin + dead, end), end, page)) return {};
    for (int64_t j = begin; j < end; j += page) paged.ids.push_back(value_of(slots, j) / page);
    paged.indptr.push_back(std::ssize(paged.ids));
    paged.keys.push_back(end - begin);
  }
  // A list that is not recorded may have either.
  const bool may_count_slots = !list->pages || step.recorded(list->recorded) == nullptr;
  return may_count_slots && count_slots(step, paged) ? PagedList() : paged;
}

/// A wrong number of pages is a finding of the offsets. Nothing reads the last page of a row that
/// has no page.
bool FieldJudge::judge_last_pages() {
  const RecordedField* told = step_.recorded_indptr(paged_.offsets, rows_ + 1);
  const int64_t all = told == nullptr ? stored() : std::min(stored(), told->cols - 1);
  for (int64_t r = 0; r < all; ++r) {
    const bool real = r < real_rows();
    const int64_t pages = told != nullptr ? part_of(*told, r).size() : real ? paged_.pages(r) : 1;
    if (got(r) < (pages > 0 ? 1 : 0) || got(r) > paged_.page) {
      const std::string keys = real && expected(r) > 0
                                   ? number(expected(r)) + ", for " +
                                         number(paged_.keys[static_cast<size_t>(r)]) +
                                         " keys; any is "
                                   : "";
      fail("len.last_page", r, {}, keys + "1 to " + number(paged_.page), number(got(r)));
      return true;
    }
    if (!real || pages == 0 || pages != paged_.pages(r) || got(r) == expected(r)) continue;
    const int64_t keys = paged_.keys[static_cast<size_t>(r)];
    // With one new token a key less or more is any slip by one.
    const auto request = step_.request(r, rows_);
    SlipWords why;
    if (request && step_.rebuilt.batch.extent(*request).q_len > 1)
      why = explain_count(step_, {r, rows_, paged_.keys, paged_.keys_read(r, pages)});
    fail("len.kv_extent", r, {}, number(expected(r)) + ", for " + number(keys) + " keys",
         number(got(r)) + ": " + paged_.reading(r, pages) +
             (why.words.empty() ? "" : ": " + why.words),
         why.refs);
    return true;
  }
  return true;
}

}  // namespace shadowgraph
