// ReqToTokenPool: a row of slots for each request. Row 0 is the padding row, all zeros; the others
// are handed out first in, first out, and keep what they held: past a request's length lie slots of
// earlier ones. See docs/metadata.md "Pools". Tested by tests/runtime/allocator_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "shadowgraph/engine/batch.h"

namespace shadowgraph {

class ReqToTokenPool {
 public:
  /// Rows 1 .. size for requests.
  ReqToTokenPool(int32_t size, int32_t width)
      : width_(width), slots_((static_cast<size_t>(size) + 1) * static_cast<size_t>(width)) {
    for (int32_t row = 1; row <= size; ++row) free_.push_back(row);
  }

  virtual ~ReqToTokenPool() = default;
  ReqToTokenPool(const ReqToTokenPool&) = delete;
  ReqToTokenPool& operator=(const ReqToTokenPool&) = delete;

  virtual std::optional<int32_t> alloc() {
    if (free_.empty()) return std::nullopt;
    const int32_t row = free_.front();
    free_.pop_front();
    return row;
  }
  virtual void free(int32_t row) { free_.push_back(row); }
  /// The rows that nobody has, the next one first.
  std::vector<int32_t> unused() const { return {free_.begin(), free_.end()}; }

  std::span<int32_t> row(int32_t row) {
    const auto width = static_cast<size_t>(width_);
    return std::span(slots_).subspan(static_cast<size_t>(row) * width, width);
  }
  TokenTable table() const { return {slots_, width_}; }

 private:
  int32_t width_;
  std::vector<int32_t> slots_;
  std::deque<int32_t> free_;
};

}  // namespace shadowgraph
