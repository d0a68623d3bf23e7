// HugeMemory: memory in pages of 2 MiB, where a KV cache is read faster than in pages of 4 KiB.
// Tested by tests/core/huge_memory_test.cc.
#pragma once

#include <cstddef>
#include <utility>

namespace shadowgraph {

inline constexpr size_t kHugePage = size_t{2} << 20;

/// Owns `size` zero bytes that begin at a multiple of 2 MiB. It asks the system for huge pages;
/// where the system has none, pages are small. A page costs nothing until it is touched.
class HugeMemory {
 public:
  HugeMemory() = default;
  /// Empty if the system has no such memory, or if bytes is 0.
  explicit HugeMemory(size_t bytes) noexcept;
  ~HugeMemory();
  HugeMemory(HugeMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  HugeMemory& operator=(HugeMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return data_ == nullptr; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace shadowgraph
