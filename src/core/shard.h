// A part of a run of numbered cases: machines that run all parts run every case once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace shadowgraph {

struct Shard {
  uint64_t index = 0, count = 1;  // index < count

  bool has(uint64_t number) const { return number % count == index; }
  /// The first of its numbers from there on.
  uint64_t next(uint64_t number) const { return number + (index + count - number % count) % count; }
};

/// Cases by their numbers, and of these the ones that a shard has.
struct CaseRange {
  static constexpr uint64_t kNoEnd = std::numeric_limits<uint64_t>::max();

  uint64_t first = 0, count = kNoEnd;
  Shard shard = {};

  /// The number behind the last one.
  uint64_t end() const { return first + std::min(count, kNoEnd - first); }
  bool has(uint64_t number) const { return number >= first && number < end() && shard.has(number); }
  /// The first of its numbers from there on; end() if there is none.
  uint64_t next(uint64_t number) const {
    const uint64_t from = std::max(first, number), at = shard.next(from);
    return at < from ? end() : std::min(at, end());  // less: beyond all numbers
  }
  /// How many numbers it has.
  uint64_t size() const {
    const uint64_t at = next(0);
    return at < end() ? (end() - at - 1) / shard.count + 1 : 0;
  }
  /// Those of its numbers that are from or more, and less than to.
  CaseRange within(uint64_t from, uint64_t to) const {
    from = std::max(first, from), to = std::min(end(), to);
    return {from, to - std::min(from, to), shard};
  }
};

}  // namespace shadowgraph
