// Scratch: as much as is said suffices, whatever the lengths; nothing beyond it is written; and it
// grows as the formula says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "kernels/decode_paged.h"
#include "kernels/planned_attention.h"
#include "kernels/prefill.h"

namespace shadowgraph {
namespace {

class Scratch : public testing::TestWithParam<CaseKernel> {
 protected:
  static int64_t size_of_call(SmallAttention& c) {
    c.settle();
    return c.ragged_kv() ? attention_scratch_size(c.ragged) : attention_scratch_size(c.paged);
  }
  static std::vector<std::pair<int32_t, int32_t>> random_requests(Rng& rng) {
    std::vector<std::pair<int32_t, int32_t>> requests = {{1 + rng.below(40), rng.below(3000)}};
    for (uint32_t i = rng.below(5); i > 0; --i)
      requests.emplace_back(rng.below(150), rng.below(2) ? rng.below(3000) : rng.below(20));
    return requests;
  }
};

TEST_P(Scratch, WhatIsSaidSufficesAndNothingBeyondIsWritten) {
  Rng rng(1);
  constexpr std::byte kCanary{0xa5};
  constexpr size_t kMargin = 256;
  for (int round = 0; round < 30; ++round) {
    PlannedAttention a(GetParam(), {.requests = random_requests(rng),
                                    .qo_heads = 4,
                                    .kv_heads = 1 + static_cast<int32_t>(rng.below(2)),
                                    .dim_qk = 20,
                                    .dim_vo = 24,
                                    .page_size = 16});
    const auto expected = a.expected();
    a.call.options.num_threads = 1 + static_cast<int>(rng.below(5));
    const auto size = static_cast<size_t>(size_of_call(a.call)), start = kMargin + rng.below(65);
    std::vector<std::byte> memory(start + size + kMargin, kCanary);
    a.call.options.scratch = {memory.data() + start, size};
    ASSERT_EQ(a.call.run().to_string(), "ok");
    EXPECT_EQ(a.results(), expected);
    const auto canary = [](std::byte b) { return b == kCanary; };
    const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(start);
    EXPECT_TRUE(std::all_of(memory.begin(), begin, canary));
    EXPECT_TRUE(std::all_of(begin + static_cast<std::ptrdiff_t>(size), memory.end(), canary));
  }
}

TEST_P(Scratch, TooLittleIsAFindingAndWritesNothing) {
  PlannedAttention a(GetParam(), {.requests = {{20, 1500}, {1, 7}}, .qo_heads = 2});
  const auto expected = a.expected();
  a.call.options.num_threads = 2;
  const auto enough = static_cast<size_t>(size_of_call(a.call));
  std::vector<std::byte> memory(enough);
  int refused = 0;
  for (size_t size = 1; size <= enough; size += enough / 40) {
    a.call.options.scratch = {memory.data(), size};
    const Status status = a.call.run();
    if (status.ok()) {
      EXPECT_EQ(a.results(), expected);
      continue;
    }
    ++refused;
    ASSERT_EQ(status.findings().size(), 1u);
    EXPECT_EQ(status.findings()[0].id, "input.memory");
    EXPECT_EQ(status.findings()[0].expected, ">= " + std::to_string(enough) + " bytes");
    EXPECT_TRUE(a.untouched());
  }
  EXPECT_GT(refused, 10);
}

TEST_P(Scratch, MayNotOverlapWhatTheCallReadsOrWrites) {
  PlannedAttention a(GetParam(), {.requests = {{2, 9}}});
  for (auto* memory : {&a.call.out_memory, &a.call.q_memory, &a.call.k_memory}) {
    a.call.options.scratch = {memory->data(), 1};
    EXPECT_EQ(a.call.run().findings()[0].id, "input.alias");
  }
}

/// A call of these shapes; its memory is never looked at.
struct Shapes {
  int64_t q_len, kv_len;
  int threads = 2;
  int32_t kv_heads = 8;

  int64_t scratch() const {
    constexpr int64_t kPageSize = 16;
    const AttentionParams params{.num_qo_heads = 4 * kv_heads,
                                 .num_kv_heads = kv_heads,
                                 .head_dim_qk = 128,
                                 .head_dim_vo = 128,
                                 .sm_scale = 1};
    const std::vector<int32_t> lens = {0}, cu = {0, 0};
    PagedAttention c;
    c.q = ConstTensorView(nullptr, DType::kF32, {q_len, 4 * kv_heads, 128});
    c.cache.page_size = kPageSize;
    c.pages = PageTable::dense({}, kv_len / kPageSize, lens);
    if (q_len > 1) c.cu_seqlens_q = cu;
    c.params = params;
    c.options.num_threads = threads;
    return attention_scratch_size(c);
  }
  /// Bytes of one block's state.
  int64_t state() const {
    const int64_t rows = 4 * (q_len > 1 ? prefill_blocks(4).tokens : 1);
    return (rows * 128 + 2 * round_up(rows, 16)) * 4;
  }
};

TEST(ScratchSize, GrowsWithTheKeysByTheStatesOfCutBlocksAlone) {
  for (const int64_t q_len : {1, 16, 4096}) {
    for (const int threads : {1, 2, 64}) {
      const Shapes small{q_len, 1024, threads}, large{q_len, 65536, threads};
      const int64_t splits = (65536 - 1024) / 512;
      const int64_t cut = threads == 1 ? 0 : 4 * threads + small.kv_heads;
      EXPECT_LE(large.scratch() - small.scratch(), cut * splits * small.state());
    }
  }
  EXPECT_EQ((Shapes{1, 65536, 1}.scratch()), (Shapes{1, 1024, 1}.scratch()));
}

TEST(ScratchSize, GrowsWithTheQueriesByAListEntryABlock) {
  const Shapes small{1024, 1024}, large{65536, 65536};
  const int64_t blocks = (65536 - 1024) / prefill_blocks(4).tokens;
  const int64_t splits = (65536 - 1024) / 512, cut = 4 * 2 + 8;
  EXPECT_LE(large.scratch() - small.scratch(), 96 * blocks + cut * splits * small.state());
}

TEST(ScratchSize, ThreadsHaveRoomForATileAndTwoStates) {
  const Shapes one{1, 512, 1}, many{1, 512, 33};
  const int64_t tile = attend_scratch(4, 128, 128, kDecodeTile).total * 4;
  const int64_t cut = (4 * 33 + 8) * (one.state() + 64 + 64);
  EXPECT_LE(many.scratch() - one.scratch(), 32 * (tile + 2 * one.state() + 2 * 4096) + cut);
}

TEST(ScratchSize, NonsenseIsNoCrash) {
  for (const int64_t n : {int64_t{-1}, int64_t{0}, int64_t{1} << 31, int64_t{1} << 62}) {
    for (const int32_t heads : {-1, 0, 1, INT32_MAX}) {
      PagedAttention c;
      c.q.shape[0] = n;
      c.pages.max_pages = n;
      c.cache.page_size = heads;
      c.params = {
          .num_qo_heads = heads, .num_kv_heads = heads, .head_dim_qk = heads, .head_dim_vo = heads};
      EXPECT_GT(attention_scratch_size(c), 0);
      EXPECT_GT(attention_plan_size(c), 0);
      c.params.num_kv_heads = 1;
      EXPECT_GT(attention_scratch_size(c), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Scratch,
                         testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged,
                                         CaseKernel::kPrefillRagged));

}  // namespace
}  // namespace shadowgraph
