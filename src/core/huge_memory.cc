#include "shadowgraph/huge_memory.h"

#include <cstdint>

#include "core/huge_pages.h"

#ifdef __linux__
#include <sys/mman.h>
#else
#include <cstring>
#include <new>
#endif

namespace shadowgraph {
namespace {

constexpr size_t kMost = SIZE_MAX - 2 * kHugePage;

constexpr size_t whole_pages(size_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

#ifdef __linux__

void ask_for_huge_pages(void* p, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  const size_t skipped = (kHugePage - begin % kHugePage) % kHugePage;
  if (bytes < skipped + kHugePage) return;
  madvise(static_cast<std::byte*>(p) + skipped, (bytes - skipped) / kHugePage * kHugePage,
          MADV_HUGEPAGE);
}

HugeMemory::HugeMemory(size_t bytes) noexcept {
  if (bytes == 0 || bytes > kMost) return;
  // One page more than needed holds an aligned place; what lies around it goes back.
  const size_t kept = whole_pages(bytes), mapped = kept + kHugePage;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return;
  auto* const begin = static_cast<std::byte*>(p);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(p) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(begin + before + kept, kHugePage - before);
  data_ = begin + before;
  size_ = bytes;
  ask_for_huge_pages(data_, kept);
}

HugeMemory::~HugeMemory() {
  if (data_ != nullptr) munmap(data_, whole_pages(size_));
}

#else

void ask_for_huge_pages(void*, size_t) {}

HugeMemory::HugeMemory(size_t bytes) noexcept {
  if (bytes == 0 || bytes > kMost) return;
  void* p = ::operator new (whole_pages(bytes), std::align_val_t{kHugePage}, std::nothrow);
  if (p == nullptr) return;
  data_ = static_cast<std::byte*>(std::memset(p, 0, bytes));
  size_ = bytes;
}

HugeMemory::~HugeMemory() { ::operator delete (data_, std::align_val_t{kHugePage}); }

#endif

}  // namespace shadowgraph
