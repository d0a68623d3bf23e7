// FarMemory: memory behind so much reserved address space that an offset into it takes more than 32
// bits. Tested by tests/fuzz/call_memory_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace shadowgraph {

class FarMemory {
 public:
  /// `reserved` bytes that read as 0, as long as nobody writes them, then `bytes` to use. data() is
  /// null where the system has no room.
  FarMemory(int64_t reserved, int64_t bytes);
  FarMemory(const FarMemory& other);
  ~FarMemory();
  FarMemory(FarMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        reserved_(other.reserved_),
        bytes_(other.bytes_) {}
  FarMemory& operator=(FarMemory other) noexcept {
    std::swap(data_, other.data_), std::swap(reserved_, other.reserved_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::span<std::byte> end() const { return {data_ + reserved_, static_cast<size_t>(bytes_)}; }

 private:
  std::byte* data_ = nullptr;
  int64_t reserved_, bytes_;
};

/// Elements lie here or behind: 32 bits are too few for their offsets.
inline constexpr int64_t kFarElements = int64_t{1} << 32;
/// Is there room for the pools of a call whose elements are kFarElements away?
bool far_memory_is_free();
/// So many rows of so many elements have at least kFarElements.
inline int64_t far_rows(int64_t elements) { return (kFarElements + elements - 1) / elements; }

}  // namespace shadowgraph
