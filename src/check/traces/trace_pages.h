// The twin's list of slots as a plan with pages of several tokens must have it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check/traces/trace_fields.h"

namespace shadowgraph {

struct PagedList {
  int64_t page = 1;  // tokens; 1: its elements are slots, and nothing below is filled
  int offsets = -1;  // the buffer that counts its elements
  std::vector<int64_t> indptr = {0}, ids, keys;  // only real rows
  const RecordedField* last_pages = nullptr;     // all rows, recorded

  bool is_paged() const { return page > 1; }
  int64_t pages(int64_t row) const;
  int64_t last_page(int64_t row) const;
  /// Element i of the field of this shape.
  int64_t at(FieldShape shape, int64_t i) const;
  /// Keys that are read of a row with so many pages; -1: not known.
  int64_t keys_read(int64_t row, int64_t pages) const;
  /// "3 pages of 4, the last with 4: 12 keys are read"; empty if that is not known.
  std::string reading(int64_t row, int64_t pages) const;
};

/// The list of the plan that the field is an argument of. It is in pages if the recorded page size
/// is a power of two that divides the pool's pages, every row begins with a page and has its keys
/// in whole pages, and the recorded offsets do not count single slots.
PagedList paged_list_of(const TraceStep& step, const BufferInfo& field);

}  // namespace shadowgraph
