// Out of memory is an ordinary finding: from the n-th allocation on all fail, for every n; the
// outputs are then as they were.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "kernels/small_attention.h"

namespace {
thread_local long allocations_left = -1;  // negative: no limit

void* allocate(std::size_t size, std::size_t alignment) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  const std::size_t rounded = (size + alignment) / alignment * alignment;
  if (void* p = std::aligned_alloc(alignment, rounded)) return p;
  throw std::bad_alloc();
}
constexpr std::size_t kDefault = alignof(std::max_align_t);
}  // namespace

void* operator new(std::size_t size) { return allocate(size, kDefault); }
void* operator new[](std::size_t size) { return allocate(size, kDefault); }
void* operator new(std::size_t size, std::align_val_t a) {
  return allocate(size, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t size, std::align_val_t a) {
  return allocate(size, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace shadowgraph {
namespace {

class Allocation : public testing::TestWithParam<CaseKernel> {};

TEST_P(Allocation, EveryFailureIsAFindingAndWritesNothing) {
  SmallAttention c(GetParam(), "", SmallShape{.requests = {{2, 9}, {1, 600}}, .qo_heads = 2});
  c.fill_uniform();
  ASSERT_EQ(c.run().to_string(), "ok");  // also lets lazy tables be made
  const auto poisoned = std::vector<std::byte>(c.out_memory.size(), std::byte{0xff});
  for (long n = 0;; ++n) {
    ASSERT_LT(n, 10000);
    c.out_memory.assign(c.out_memory.size(), std::byte{0xff});
    allocations_left = n;
    const Status status =
        c.ragged_kv() ? attention_varlen(c.ragged) : attention_with_kvcache(c.paged);
    allocations_left = -1;
    if (status.ok()) {
      EXPECT_GT(n, 0);
      break;
    }
    ASSERT_EQ(status.findings().size(), 1u);
    EXPECT_EQ(status.findings()[0].id, "input.memory");
    EXPECT_EQ(c.out_memory, poisoned) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Allocation,
                         testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged,
                                         CaseKernel::kPrefillRagged));

}  // namespace
}  // namespace shadowgraph
