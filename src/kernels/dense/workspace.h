// Scratch memory of a call: the caller's, or the calling thread's own, which stays from call to
// call, so that a call neither allocates nor faults pages in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace shadowgraph {

inline constexpr int64_t kCacheLine = 64;  // no edge: bytes

/// count * each, at most 2^60: too much for any allocation, and sums of a few do not overflow.
int64_t saturating_bytes(int64_t count, int64_t each);
/// What a Carver takes for so many elements.
template <class T>
int64_t carved_bytes(int64_t count) {
  return (saturating_bytes(count, sizeof(T)) + kCacheLine - 1) / kCacheLine * kCacheLine;
}

/// Hands out memory part by part, each uninitialised and on cache lines of its own.
class Carver {
 public:
  explicit Carver(std::byte* memory) : next_(memory) {}
  template <class T>
  std::span<T> take(int64_t count) {
    auto* first = reinterpret_cast<T*>(next_);
    next_ += carved_bytes<T>(count);
    return {first, static_cast<size_t>(count)};
  }
  /// What is left, from the next multiple of `alignment` on.
  std::byte* rest(int64_t alignment) const {
    return next_ + (-reinterpret_cast<intptr_t>(next_) & (alignment - 1));
  }

 private:
  std::byte* next_;
};

class Workspace {
 public:
  /// given: the caller's memory; empty: the thread's own.
  explicit Workspace(std::span<std::byte> given) : given_(given), own_(given.empty()) {}

  /// So many bytes; nothing if the caller's memory does not hold them. At most kTakes times. Throws
  /// std::bad_alloc.
  std::optional<Carver> take(int64_t bytes);
  static constexpr int kTakes = 2;

 private:
  std::span<std::byte> given_;
  bool own_;
  int taken_ = 0;
};

}  // namespace shadowgraph
