// Out of memory is an ordinary finding: from the n-th allocation on all fail, for every n; the
// outputs are then as they were.
#include <gtest/gtest.h>

#include <thread>

#include "allocations.h"
#include "kernels/small_attention.h"

namespace shadowgraph {
namespace {

class Allocation : public testing::TestWithParam<CaseKernel> {};

Status run(const SmallAttention& c) {
  return c.ragged_kv() ? attention_varlen(c.ragged) : attention_with_kvcache(c.paged);
}

TEST_P(Allocation, EveryFailureIsAFindingAndWritesNothing) {
  SmallAttention c(GetParam(), "", SmallShape{.requests = {{2, 9}, {1, 600}}, .qo_heads = 2});
  c.fill_uniform();
  ASSERT_EQ(c.run().to_string(), "ok");  // also lets lazy tables be made
  const auto poisoned = std::vector<std::byte>(c.out_memory.size(), std::byte{0xff});
  for (long n = 0;; ++n) {
    ASSERT_LT(n, 10000);
    c.out_memory.assign(c.out_memory.size(), std::byte{0xff});
    Status result;
    // A thread that has no scratch yet.
    std::thread fresh([&] {
      allocations::left = n;
      result = run(c);
      allocations::left = -1;
    });
    fresh.join();
    const Status& status = result;
    if (status.ok()) {
      EXPECT_GT(n, 0);
      break;
    }
    ASSERT_EQ(status.findings().size(), 1u);
    EXPECT_EQ(status.findings()[0].id, "input.memory");
    EXPECT_EQ(c.out_memory, poisoned) << n;
  }
}

TEST_P(Allocation, ScratchStaysFromCallToCall) {
  // Some of its splits' states are kept: two threads share a block.
  SmallAttention c(GetParam(), "", SmallShape{.requests = {{1, 8000}}, .qo_heads = 8});
  c.fill_uniform();
  c.settle();
  const auto bytes_of_call = [&c] {
    const long before = allocations::bytes;
    EXPECT_EQ(run(c).to_string(), "ok");
    return allocations::bytes - before;
  };
  std::thread fresh([&] {
    const long first = bytes_of_call(), second = bytes_of_call();
    const int64_t size =
        c.ragged_kv() ? attention_scratch_size(c.ragged) : attention_scratch_size(c.paged);
    EXPECT_GT(first, size / 2);
    EXPECT_LT(second, 2000);
  });
  fresh.join();
}

INSTANTIATE_TEST_SUITE_P(Kernels, Allocation,
                         testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged,
                                         CaseKernel::kPrefillRagged));

}  // namespace
}  // namespace shadowgraph
