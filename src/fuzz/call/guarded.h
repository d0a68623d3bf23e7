// GuardedBuffer: memory full of poison, with margins that nobody may touch. Tested by
// tests/fuzz/call_memory_test.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace shadowgraph {

/// All bits set: NaN in every float type, -1 in every integer.
inline constexpr std::byte kPoison{0xff};
/// Finite and close to the largest number in every float type; no index of any list.
inline constexpr std::byte kHugePoison{0x7b};
/// A small number in every float type, which no row has in all its elements.
inline constexpr std::byte kUnwritten{0xa5};

/// Bytes [begin, end).
struct BufferRange {
  int64_t begin = 0, end = 0;
  bool operator==(const BufferRange&) const = default;
};
/// Ascending and disjoint, with a gap between each two.
using BufferRanges = std::vector<BufferRange>;

/// Ranges that may overlap, in any order, as the bytes that some of them has.
inline BufferRanges merged(BufferRanges ranges) {
  std::ranges::sort(ranges, {}, &BufferRange::begin);
  BufferRanges all;
  for (const BufferRange& r : ranges) {
    if (r.begin == r.end) continue;
    if (!all.empty() && r.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, r.end);
    } else {
      all.push_back(r);
    }
  }
  return all;
}

class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  /// `skew` bytes off a 64-byte boundary.
  GuardedBuffer(int64_t bytes, int64_t skew, std::byte poison = kPoison)
      : memory_(static_cast<size_t>(bytes + skew + 3 * kMargin), poison), size_(bytes) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = static_cast<int64_t>((kMargin - address % kMargin) % kMargin) + kMargin + skew;
  }
  std::byte* data() { return memory_.data() + start_; }
  const std::byte* data() const { return memory_.data() + start_; }
  int64_t size() const { return size_; }

  void poison(std::byte with = kPoison) { std::ranges::fill(memory_, with); }
  /// Offset from data() of the first byte that differs, margins included, and is in none of these
  /// ranges; nothing if none does.
  std::optional<int64_t> first_difference(const GuardedBuffer& other,
                                          const BufferRanges& except = {}) const {
    int64_t from = -start_;
    for (const BufferRange& r : except) {
      if (const auto at = first_difference(other, {from, r.begin})) return at;
      from = r.end;
    }
    return first_difference(other, {from, std::ssize(memory_) - start_});
  }
  /// Poison in all but these ranges, margins left alone.
  void poison_except(const BufferRanges& kept) {
    int64_t from = 0;
    for (const BufferRange& r : kept) {
      poison(from, r.begin);
      from = std::max(from, r.end);
    }
    poison(from, size_);
  }
  /// Offset from data() of the first byte of a margin that is no poison.
  std::optional<int64_t> first_beside() const {
    for (int64_t i = -start_; i < std::ssize(memory_) - start_; ++i) {
      if (i == 0) i = size_;
      if (i < std::ssize(memory_) - start_ && data()[i] != kPoison) return i;
    }
    return std::nullopt;
  }

 private:
  void poison(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < std::min(end, size_); ++i) data()[i] = kPoison;
  }
  std::optional<int64_t> first_difference(const GuardedBuffer& other, const BufferRange& r) const {
    const std::byte *mine = data() + r.begin, *its = other.data() + r.begin;
    const auto size = static_cast<size_t>(r.end - r.begin);
    if (size == 0 || std::memcmp(mine, its, size) == 0) return std::nullopt;
    return r.begin + (std::mismatch(mine, mine + size, its).first - mine);
  }

  static constexpr int64_t kMargin = 64;
  std::vector<std::byte> memory_;
  int64_t size_ = 0, start_ = 0;
};

}  // namespace shadowgraph
