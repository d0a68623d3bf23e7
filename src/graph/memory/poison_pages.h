// Fills memory with poison without touching its pages: each is a page of one poisoned file until
// somebody writes to it. Tested by tests/graph/poison_pages_test.cc.
#pragma once

#include <cstddef>

namespace shadowgraph {

/// Fresh memory and retired bytes hold this: NaN in every float type, -1 in every integer.
inline constexpr int kPoison = 0xFF;

/// From so many bytes on, whole pages are mapped; fewer are written faster.
inline constexpr size_t kPoisonMapFrom = size_t{1} << 20;
/// Makes each of these bytes kPoison. Requires memory that mmap gave, private and anonymous. Never
/// fails: where the system refuses to map the file, the bytes are written.
void poison(std::byte* p, size_t bytes);

}  // namespace shadowgraph
