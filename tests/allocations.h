// Allocations that are counted, and that fail when a test wants it. Replaces operator new and
// delete: for one source of a program.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace shadowgraph::allocations {

/// What this thread has allocated since it began.
inline thread_local long count = 0, bytes = 0;
/// How many more succeed; negative: all.
inline thread_local long left = -1;
/// After the one that fails.
enum class Then { kAllFail, kNoneFails };
inline thread_local Then then = Then::kAllFail;

inline void* allocate(std::size_t size, std::size_t alignment) {
  ++count, bytes += static_cast<long>(size);
  const std::size_t rounded = (size + alignment) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded);
}

inline void* allocate_or_fail(std::size_t size, std::size_t alignment) {
  if (left == 0) {
    if (then == Then::kNoneFails) left = -1;
    throw std::bad_alloc();
  }
  if (left > 0) --left;
  if (void* p = allocate(size, alignment)) return p;
  throw std::bad_alloc();
}

/// Not inlined: gcc warns where it sees that std::free meets what operator new gave.
[[gnu::noinline]] inline void release(void* p) { std::free(p); }

inline constexpr std::size_t kDefault = alignof(std::max_align_t);

}  // namespace shadowgraph::allocations

void* operator new(std::size_t size) {
  return shadowgraph::allocations::allocate_or_fail(size, shadowgraph::allocations::kDefault);
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, std::align_val_t a) {
  return shadowgraph::allocations::allocate_or_fail(size, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t size, std::align_val_t a) { return operator new(size, a); }
// Never fails: who asks so, as std::stable_sort does, has another way.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return shadowgraph::allocations::allocate(size, shadowgraph::allocations::kDefault);
}
void* operator new[](std::size_t size, const std::nothrow_t& t) noexcept {
  return operator new(size, t);
}
void operator delete(void* p) noexcept { shadowgraph::allocations::release(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
void operator delete[](void* p, std::size_t) noexcept { operator delete(p); }
void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
void operator delete[](void* p, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { operator delete(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { operator delete(p); }
