// GuardedBuffer: memory full of poison, one end at a closed page, with margins that nobody may
// touch. Tested by tests/fuzz/call_memory_test.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "fuzz/call/far_memory.h"
#include "fuzz/call/guard_pages.h"

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

/// Which of a buffer's ends lies at a closed page.
enum class Side : uint8_t { kFront, kBack };

class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  /// The first byte lies `off` bytes behind a closed page, or the last one so many before one.
  GuardedBuffer(int64_t bytes, int64_t off, std::byte poison = kPoison, Side side = Side::kFront)
      : room_(bytes + off + kMargin), size_(bytes) {
    const auto room = std::ssize(room_.bytes());
    start_ = side == Side::kFront ? off : room - off - bytes;
    first_ = -std::min(kMargin, start_);
    last_ = bytes + std::min(kMargin, room - start_ - bytes);
    this->poison(poison);
  }
  /// The first `reserved` of the bytes are address space alone, which reads as 0 and has no poison.
  /// No closed pages. Requires far_memory_is_free().
  static GuardedBuffer far(int64_t reserved, int64_t bytes, std::byte poison) {
    GuardedBuffer b;
    b.far_.emplace(reserved, bytes - reserved + kMargin);
    b.size_ = bytes, b.first_ = reserved, b.last_ = bytes + kMargin;
    b.poison(poison);
    return b;
  }
  GuardedBuffer(const GuardedBuffer& other) { *this = other; }
  /// In the same place of other memory; in its own if that has the same size.
  GuardedBuffer& operator=(const GuardedBuffer& other) {
    if (this == &other) return *this;
    if (room_.bytes().size() != other.room_.bytes().size())
      room_ = other.room_.bytes().empty() ? GuardedRoom()
                                          : GuardedRoom(std::ssize(other.room_.bytes()));
    if (far_.has_value() != other.far_.has_value() || first_ != other.first_ ||
        last_ != other.last_)
      far_ = other.far_;
    size_ = other.size_, start_ = other.start_, first_ = other.first_, last_ = other.last_;
    std::ranges::copy(other.all(), all().begin());
    return *this;
  }
  GuardedBuffer(GuardedBuffer&&) = default;
  GuardedBuffer& operator=(GuardedBuffer&&) = default;

  std::byte* data() const { return far_ ? far_->data() : room_.bytes().data() + start_; }
  int64_t size() const { return size_; }
  const GuardedRoom& room() const { return room_; }

  void poison(std::byte with = kPoison) { std::ranges::fill(all(), with); }
  /// Offset from data() of the first byte that differs, margins included, and is in none of these
  /// ranges; nothing if none does.
  std::optional<int64_t> first_difference(const GuardedBuffer& other,
                                          const BufferRanges& except = {}) const {
    int64_t from = first_;
    for (const BufferRange& r : except) {
      if (const auto at = first_difference(other, {from, r.begin})) return at;
      from = r.end;
    }
    return first_difference(other, {from, last_});
  }
  /// Poison in all but these ranges, margins left alone.
  void poison_except(const BufferRanges& kept) {
    int64_t from = std::max<int64_t>(0, first_);
    for (const BufferRange& r : kept) {
      poison(from, r.begin);
      from = std::max(from, r.end);
    }
    poison(from, size_);
  }
  /// Offset from data() of the first byte of a margin that is no poison.
  std::optional<int64_t> first_beside() const {
    for (int64_t i = first_; i < last_; ++i) {
      if (i >= 0) i = std::max(i, size_);
      if (i < last_ && data()[i] != kPoison) return i;
    }
    return std::nullopt;
  }

 private:
  void poison(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < std::min(end, size_); ++i) data()[i] = kPoison;
  }
  std::optional<int64_t> first_difference(const GuardedBuffer& other, const BufferRange& r) const {
    if (r.begin >= r.end) return std::nullopt;
    const std::byte *mine = data() + r.begin, *its = other.data() + r.begin;
    const auto size = static_cast<size_t>(r.end - r.begin);
    if (std::memcmp(mine, its, size) == 0) return std::nullopt;
    return r.begin + (std::mismatch(mine, mine + size, its).first - mine);
  }

  /// With its margins.
  std::span<std::byte> all() const {
    return {data() + first_, static_cast<size_t>(last_ - first_)};
  }

  static constexpr int64_t kMargin = 64;  // but no farther than to a closed page
  GuardedRoom room_;
  std::optional<FarMemory> far_;
  // Offsets from data() of the bytes that are its own, margins included
  int64_t first_ = 0, last_ = 0;
  int64_t size_ = 0, start_ = 0;
};

}  // namespace shadowgraph
