// Scratch: as much as is said suffices, whatever the lengths; nothing beyond it is written; and it
// grows as the formula says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "kernels/dense/attend_blocks.h"
#include "kernels/dense/decode_paged.h"
#include "kernels/dense/prefill.h"
#include "kernels/planned_attention.h"

namespace shadowgraph::scratch_test {
namespace {

/// Memory of exactly that size between canaries.
class Guarded {
 public:
  Guarded(int64_t size, size_t offset)
      : size_(static_cast<size_t>(size)),
        start_(kMargin + offset),
        memory_(start_ + size_ + kMargin, kCanary) {}
  std::span<std::byte> inside() { return {memory_.data() + start_, size_}; }
  bool sound() const {
    const auto canary = [](std::byte b) { return b == kCanary; };
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(start_);
    return std::all_of(memory_.begin(), begin, canary) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(size_), memory_.end(), canary);
  }

 private:
  static constexpr std::byte kCanary{0xa5};
  static constexpr size_t kMargin = 256;
  size_t size_, start_;
  std::vector<std::byte> memory_;
};

class Scratch : public ::testing::TestWithParam<CaseKernel> {
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
  for (int round = 0; round < 30; ++round) {
    PlannedAttention a(GetParam(), {.requests = random_requests(rng),
                                    .qo_heads = 4,
                                    .kv_heads = 1 + static_cast<int32_t>(rng.below(2)),
                                    .dim_qk = 20,
                                    .dim_vo = 24,
                                    .page_size = 16});
    const auto expected = a.expected();
    a.call.options.num_threads = 1 + static_cast<int>(rng.below(5));
    Guarded memory(size_of_call(a.call), rng.below(65));
    a.call.options.scratch = memory.inside();
    ASSERT_EQ(a.call.run().to_string(), "ok");
    EXPECT_EQ(a.results(), expected);
    EXPECT_TRUE(memory.sound());
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

class PlannedScratch : public Scratch {
 protected:
  static SmallShape shape(Rng& rng, bool hnd) {
    SmallShape s{.requests = random_requests(rng), .qo_heads = 4, .kv_heads = 2, .page_size = 16};
    s.hnd = hnd;
    return s;
  }
  /// With `more` pieces beyond one a block: block after block is cut at every split.
  static std::vector<Piece> cut(const std::vector<Piece>& blocks, int64_t more) {
    std::vector<Piece> pieces;
    for (Piece p : blocks) {
      for (int32_t s = p.split_begin + 1; s < p.split_end && more > 0; ++s, --more) {
        pieces.push_back({p.request, p.q_begin, p.split_begin, s});
        p.split_begin = s;
      }
      pieces.push_back(p);
    }
    return pieces;
  }
  /// As cut, one piece more a block while there are any.
  static std::vector<Piece> cut_many(const std::vector<Piece>& blocks, int64_t more) {
    std::vector<Piece> pieces;
    for (const Piece& p : blocks) {
      const std::vector<Piece> some = cut({p}, std::min<int64_t>(more, 1));
      more -= static_cast<int64_t>(some.size()) - 1;
      pieces.insert(pieces.end(), some.begin(), some.end());
    }
    return pieces;
  }
};

TEST_P(PlannedScratch, WhatIsSaidSufficesForEveryPlanOfNoMoreThreads) {
  Rng rng(2);
  for (int round = 0; round < 24; ++round) {
    PlannedAttention a(GetParam(), shape(rng, round % 2 == 0));
    const auto expected = a.expected();
    const int threads = 1 + static_cast<int>(rng.below(5));
    const std::vector<Piece> blocks = PlannedAttention::pieces(a.plan(1));
    std::vector<Plan> plans;
    for (int t = 1; t <= threads; ++t) plans.push_back(a.plan(t));
    const int64_t most = call_shape(a.call.paged).most_cuts();  // of `threads`
    for (const auto& pieces : {cut(blocks, most), cut_many(blocks, most)}) {
      plans.push_back(PlannedAttention::with(plans.back(), pieces));
      plans.back()[kThreads] = threads;
    }
    Guarded memory(size_of_call(a.call), rng.below(65));
    a.call.options.scratch = memory.inside();
    for (const Plan& plan : plans) {
      ASSERT_EQ(a.run(plan, threads).to_string(), "ok");
      EXPECT_EQ(a.results(), expected);
      EXPECT_TRUE(memory.sound());
    }
  }
}

TEST_P(PlannedScratch, APlanThatSharesMoreOutIsRefusedAndToldHowMuchItNeeds) {
  SmallShape shape{.requests = {}, .qo_heads = 4, .kv_heads = 2, .page_size = 16, .hnd = true};
  shape.requests.assign(12, {1, 1500});
  PlannedAttention a(GetParam(), shape);
  const auto expected = a.expected();
  const Plan whole = a.plan(2);
  const Plan plan = PlannedAttention::with(whole, cut(PlannedAttention::pieces(whole), 1000));
  Guarded said(size_of_call(a.call), 1);
  a.call.options.scratch = said.inside();
  const Status status = a.run(plan, 2);
  ASSERT_EQ(status.findings().size(), 1u) << status.to_string();
  EXPECT_EQ(status.findings()[0].id, "input.memory");
  EXPECT_TRUE(a.untouched());
  EXPECT_TRUE(said.sound());
  Guarded enough(std::stoll(status.findings()[0].expected.substr(3)), 1);
  a.call.options.scratch = enough.inside();
  ASSERT_EQ(a.run(plan, 2).to_string(), "ok");
  EXPECT_EQ(a.results(), expected);
  EXPECT_TRUE(enough.sound());
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
  bool nhd = false;

  bool decode() const { return q_len == 1; }
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
    const auto plane = [&](int64_t a, int64_t b) {
      return TensorView(nullptr, DType::kF32, {kv_len / kPageSize, a, b, 128});
    };
    const TensorView k = nhd ? plane(kPageSize, kv_heads) : plane(kv_heads, kPageSize);
    c.cache = nhd ? KvCache::nhd(k, k) : KvCache::hnd(k, k);
    c.pages = PageTable::dense({}, kv_len / kPageSize, lens);
    if (!decode()) c.cu_seqlens_q = cu;
    c.params = params;
    c.options.num_threads = threads;
    return attention_scratch_size(c);
  }
  /// KV heads of a unit: they divide, and 4 query heads of each are at most 128.
  int32_t joined() const {
    int32_t joined = decode() && nhd ? std::min(kv_heads, 32) : 1;
    while (kv_heads % joined != 0) --joined;
    return joined;
  }
  int64_t rows() const { return 4 * joined() * (decode() ? 1 : prefill_blocks(4).tokens); }
  /// Bytes of one block's state: of a unit; of one KV head, whose rows are padded on their own.
  int64_t state() const { return bytes(rows()); }
  int64_t head_state() const { return bytes(rows() / joined()); }

 private:
  static int64_t bytes(int64_t rows) { return (rows * 128 + 2 * round_up(rows, 16)) * 4; }
};

TEST(ScratchSize, IsTheDocumentedFormulaToTheLists) {
  constexpr int64_t kMemoryPage = 4096;
  for (const int64_t q_len : {1, 16, 4096}) {
    for (const int64_t kv_len : {1024, 65536}) {
      for (const int threads : {1, 2, 64}) {
        for (const int32_t kv_heads : {1, 3, 8, 33, 64}) {
          for (const bool nhd : {false, true}) {
            const Shapes s{q_len, kv_len, threads, kv_heads, nhd};
            const int64_t tokens = s.decode() ? 1 : prefill_blocks(4).tokens;
            const int64_t blocks = q_len / tokens + (s.decode() ? 0 : 1);
            const int64_t units = kv_heads / s.joined();
            const int64_t more = threads == 1 ? 0 : 4 * threads / units + 1;
            const int64_t tile = s.decode() ? kDecodeTile : kPrefillTile;
            const int64_t thread = attend_scratch(s.rows(), 128, 128, tile).total * 4 +
                                   2 * s.state() + tokens * int64_t{sizeof(RowMask)};
            const int64_t cuts = std::min(blocks, more), splits = kv_len / 512;
            const int64_t least = cuts * units * (splits * s.state() + 64);
            const int64_t most = cuts * kv_heads * (splits * s.head_state() + 64);
            const int64_t lists = 96 * blocks + 8 * 1 + 48 * more;
            EXPECT_GE(s.scratch(), threads * thread + least);
            EXPECT_LE(s.scratch(),
                      threads * (thread + kMemoryPage) + most + lists + 2 * kMemoryPage)
                << q_len << " " << kv_len << " " << threads << " " << kv_heads << " " << nhd;
          }
        }
      }
    }
  }
}

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

INSTANTIATE_TEST_SUITE_P(Kernels, PlannedScratch,
                         ::testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged));
INSTANTIATE_TEST_SUITE_P(Kernels, Scratch,
                         ::testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged,
                                           CaseKernel::kPrefillRagged));

}  // namespace
}  // namespace shadowgraph::scratch_test
