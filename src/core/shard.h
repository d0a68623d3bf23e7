// A part of a run of numbered cases: machines that run all parts run every case once.
#pragma once

#include <cstdint>

namespace shadowgraph {

struct Shard {
  uint64_t index = 0, count = 1;  // index < count

  bool has(uint64_t number) const { return number % count == index; }
  /// The first of its numbers from there on.
  uint64_t next(uint64_t number) const { return number + (index + count - number % count) % count; }
};

}  // namespace shadowgraph
