// An array of the device as an index kernel sees it. The kernel is written once: run with a
// footprint it notes what it reads and writes, run without one it does it; an access outside the
// array is noted and never happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "shadowgraph/device/access.h"

namespace shadowgraph {

template <class T>
class CheckedArray {
 public:
  /// spans: null where the kernel runs.
  CheckedArray(T* data, int64_t size, Footprint* spans) : data_(data), size_(size), spans_(spans) {}

  /// On behalf of a request. Nothing where i is outside.
  std::optional<std::remove_const_t<T>> load(int64_t i, int32_t row) {
    note(i, 1, Access::kRead, row);
    if (i < 0 || i >= size_) return {};
    return data_[i];
  }
  void store(int64_t i, T value, int32_t row) {
    note(i, 1, Access::kWrite, row);
    if (spans_ == nullptr && i >= 0 && i < size_) data_[i] = value;
  }
  /// Writes that are noted together, as all of them are outside.
  void store_outside(int64_t first, int64_t count, int32_t row) {
    note(first, count, Access::kWrite, row);
  }
  int64_t size() const { return size_; }

 private:
  /// As more of this array's last span where it goes on behind it.
  void note(int64_t first, int64_t count, Access access, int32_t row) {
    if (spans_ == nullptr || count <= 0) return;
    if (last_ < spans_->size()) {
      AccessSpan& last = (*spans_)[last_];
      if (last.access == access && last.row == row && last.first + last.count == first) {
        last.count += count;
        return;
      }
    }
    last_ = spans_->size();
    spans_->push_back({data_, first, count, sizeof(T), access, row});
  }

  T* data_;
  int64_t size_;
  Footprint* spans_;
  size_t last_ = SIZE_MAX;
};

}  // namespace shadowgraph
