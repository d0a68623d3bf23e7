// Fills memory with poison without touching its pages: they are copies of one poisoned file until
// somebody writes to them. Tested by tests/graph/poison_pages_test.cc.
#pragma once

#include <cstddef>

namespace shadowgraph {

/// Fresh memory and retired bytes hold this: NaN in every float type, -1 in every integer.
inline constexpr int kPoison = 0xFF;

/// Requires memory that mmap gave, private and anonymous. The pages that lie whole in it are mapped
/// anew from kPoisonMapFrom bytes on; the rest, and all where the system refuses, is written.
inline constexpr size_t kPoisonMapFrom = size_t{1} << 20;
void poison(std::byte* p, size_t bytes);

}  // namespace shadowgraph
