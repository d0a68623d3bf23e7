// Out of memory is an ordinary finding: from the n-th allocation on all fail, for every n; the
// outputs are then as they were.
#include <gtest/gtest.h>

#include <thread>
#include <tuple>
#include <vector>

#include "allocations.h"
#include "core/parallel.h"
#include "kernels/small_attention.h"
#include "kernels/small_conv.h"
#include "kernels/small_sparse.h"

namespace shadowgraph::allocation_test {
namespace {

class Allocation : public ::testing::TestWithParam<CaseKernel> {};

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

/// call(world) with 0, 1, ... allocations until it has all that it wants: before that it is
/// refused, and written(world) is as it was.
template <class World, class Call, class Written>
void fail_until_done(const World& before, const Call& call, const Written& written) {
  World warm = before;  // lazy tables are made
  ASSERT_EQ(call(warm).to_string(), "ok");
  for (long n = 0;; ++n) {
    ASSERT_LT(n, 1000);
    World world = before;
    allocations::left = n;
    const Status status = call(world);
    allocations::left = -1;
    if (status.ok()) {
      EXPECT_GT(n, 0);
      EXPECT_EQ(written(world), written(warm));
      return;
    }
    ASSERT_EQ(status.findings().size(), 1u);
    EXPECT_EQ(status.findings()[0].id, "input.memory");
    EXPECT_EQ(written(world), written(before)) << n;
  }
}

TEST(Allocation, AConvolutionThatFailsWritesNothing) {
  SmallConv conv;
  conv.add_row(5, 3), conv.add_row(2, 1);
  conv.places = 2, conv.steps = 5;
  conv.options.num_threads = 1;
  conv.fill_random(1);
  fail_until_done(
      conv, [](SmallConv& c) { return causal_conv1d(c.call()); },
      [](const SmallConv& c) { return std::tie(c.out, c.states, c.windows); });
}

TEST(Allocation, GatesAndTreesThatFailWriteNothing) {
  using Floats = std::vector<float>;
  const auto gate = [](Floats& f) {
    const SerialScope one_thread;
    DecayGate g;
    g.x = ConstTensorView(f.data(), DType::kF32, {2, 2});
    g.a_log = ConstTensorView(f.data() + 4, DType::kF32, {2});
    g.log_decay = TensorView(f.data() + 6, DType::kF32, {2, 2});
    return decay_gate(g);
  };
  fail_until_done(Floats(10, 0.5F), gate, [](const Floats& f) { return f; });
  using Ints = std::vector<int32_t>;
  const auto tree = [](Ints& i) {
    const std::span<int32_t> all = i;
    return tree_parents(all.subspan(0, 3), all.subspan(3, 3), 3, all.subspan(6, 3));
  };
  fail_until_done(Ints{1, 2, -1, -1, -1, -1, 9, 9, 9}, tree, [](const Ints& i) { return i; });
}

TEST(Allocation, ChosenKeysThatFailWriteNothing) {
  SmallSparse x(v4_shape());
  x.call.options.num_threads = 1;
  using Bytes = std::vector<std::byte>;
  const auto attend = [&x](Bytes& out) {
    x.call.out.data = out.data();
    return sparse_attention(x.call);
  };
  fail_until_done(x.out, attend, [](const Bytes& out) { return out; });
}

INSTANTIATE_TEST_SUITE_P(Kernels, Allocation,
                         ::testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged,
                                           CaseKernel::kPrefillRagged));

}  // namespace
}  // namespace shadowgraph::allocation_test
