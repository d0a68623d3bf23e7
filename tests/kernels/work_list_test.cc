// The work list: whatever cuts the work and whoever does it, the bits stay; and no plan, however
// wrong, is more than refused.
#include "kernels/dense/work_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "check/bounds/arithmetic.h"
#include "kernels/dense/attend_blocks.h"
#include "kernels/dense/decode_paged.h"
#include "kernels/dense/prefill.h"
#include "kernels/planned_attention.h"

namespace shadowgraph::work_list_test {
namespace {

using Pieces = std::vector<Piece>;

/// Queries of one request and keys up to several splits.
SmallShape long_and_short(CaseKernel kernel) {
  SmallShape s{.requests = {{40, 1700}, {3, 20}, {1, 0}, {5, 513}, {0, 9}, {2, 2}},
               .qo_heads = 4,
               .kv_heads = 2,
               .dim_qk = 20,
               .dim_vo = 24,
               .page_size = 16};
  if (kernel == CaseKernel::kDecodePaged) s.requests[4] = {1, 9};
  return s;
}

class WorkLists : public ::testing::TestWithParam<CaseKernel> {
 protected:
  PlannedAttention attention{GetParam(), long_and_short(GetParam())};
};

TEST_P(WorkLists, NoBitDependsOnAPlanOrItsThreads) {
  const auto expected = attention.expected();
  const auto blocks = PlannedAttention::pieces(attention.plan(1)).size();
  for (const int planned : {1, 2, 3, 16, 64}) {
    const Plan plan = attention.plan(planned);
    if (planned >= 16) {
      EXPECT_GT(PlannedAttention::pieces(plan).size(), blocks);
    }
    for (const int threads : {1, 2, 5}) {
      ASSERT_EQ(attention.run(plan, threads).to_string(), "ok");
      EXPECT_EQ(attention.results(), expected) << planned << " planned, " << threads;
    }
  }
}

TEST_P(WorkLists, NoBitDependsOnTheThreadsOfACallWithoutPlan) {
  const auto expected = attention.expected();
  for (const int threads : {2, 3, 16, 64}) {
    ASSERT_EQ(attention.run({}, threads).to_string(), "ok");
    EXPECT_EQ(attention.results(), expected) << threads;
  }
}

TEST_P(WorkLists, NoBitDependsOnWhereBlocksAreCutOrOnTheirOrder) {
  const auto expected = attention.expected();
  const Plan whole = attention.plan(1);
  Rng rng(3);
  for (int round = 0; round < 20; ++round) {
    Pieces blocks = PlannedAttention::pieces(whole), cut;
    shuffle(blocks, rng);
    for (Piece p : blocks) {
      for (int32_t s = p.split_begin + 1; s < p.split_end; ++s) {
        if (rng.below(2) == 0) continue;
        cut.push_back({p.request, p.q_begin, p.split_begin, s});
        p.split_begin = s;
      }
      cut.push_back(p);
    }
    ASSERT_EQ(attention.run(PlannedAttention::with(whole, cut), 1 + round % 3).to_string(), "ok");
    ASSERT_EQ(attention.results(), expected) << round;
  }
}

TEST_P(WorkLists, APlanLivesAsLongAsNoSplitIsAdded) {
  const bool decode = GetParam() == CaseKernel::kDecodePaged;
  const Plan plan = attention.plan(8);
  SmallShape longer = attention.call.shape;
  longer.requests[0].second = 1792;
  longer.requests[5].second = 512;
  PlannedAttention same(GetParam(), longer);
  ASSERT_EQ(same.run(plan, 2).to_string(), "ok");
  const auto results = same.results();
  EXPECT_EQ(results, same.expected());
  longer.requests[5].second = 513;
  PlannedAttention stale(GetParam(), longer);
  const Status status = stale.run(plan, 2);
  ASSERT_EQ(status.findings().size(), 1u) << status.to_string();
  EXPECT_EQ(status.findings()[0].id, "input.plan");
  EXPECT_NE(status.to_string().find("expected request 5, query 0, splits 1..2"), std::string::npos)
      << status.to_string();
  EXPECT_TRUE(stale.untouched());
  // One query more is one block more where it does not fit into the last one.
  if (decode) return;
  longer = attention.call.shape;
  longer.requests[3].first = prefill_blocks(2).tokens + 1;
  PlannedAttention more(GetParam(), longer);
  EXPECT_NE(more.run(plan, 2).to_string().find("input.plan"), std::string::npos);
  EXPECT_TRUE(more.untouched());
}

TEST_P(WorkLists, AKeyLeftOutOrReadTwiceIsRefused) {
  const Plan plan = attention.plan(16);
  const Pieces pieces = PlannedAttention::pieces(plan);
  const auto refused = [&](const Pieces& wrong) {
    const Status status = attention.run(PlannedAttention::with(plan, wrong), 2);
    EXPECT_NE(status.ok(), attention.untouched());
    return !status.ok() && status.findings()[0].id == "input.plan";
  };
  EXPECT_FALSE(refused(pieces));
  for (size_t i = 0; i < pieces.size(); ++i) {
    Pieces without = pieces, twice = pieces, swapped = pieces;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(refused(without)) << i;
    twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), pieces[i]);
    EXPECT_TRUE(refused(twice)) << i;
    twice = pieces;
    twice.push_back(pieces[i]);
    EXPECT_TRUE(refused(twice)) << i;
    if (i == 0 || pieces[i].split_begin == 0) continue;
    std::swap(swapped[i], swapped[i - 1]);
    EXPECT_TRUE(refused(swapped)) << i;
  }
}

TEST_P(WorkLists, WhateverAPlanHoldsItIsRunRightOrRefused) {
  const auto expected = attention.expected();
  const Plan plan = attention.plan(16);
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  int refused = 0, ran = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    for (const int32_t value : {plan[i] - 1, plan[i] + 1, -1, 0, 7, 512, kMax, -kMax - 1}) {
      if (value == plan[i]) continue;
      Plan wrong = plan;
      wrong[i] = value;
      const Status status = attention.run(wrong, 2);
      if (status.ok()) {
        ++ran;
        EXPECT_EQ(attention.results(), expected) << "plan[" << i << "] = " << value;
      } else {
        ++refused;
        for (const Finding& f : status.findings()) EXPECT_EQ(f.id, "input.plan");
        EXPECT_TRUE(attention.untouched()) << "plan[" << i << "] = " << value;
      }
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(ran, 0);  // another number of threads
  for (size_t size = 1; size < plan.size(); ++size) {
    const Plan shorter(plan.begin(), plan.begin() + static_cast<std::ptrdiff_t>(size));
    const bool enough = size >= kPlanHeader + 4 * static_cast<size_t>(plan[kPieces]);
    EXPECT_EQ(attention.run(shorter, 1).ok(), enough) << size;
  }
}

TEST_P(WorkLists, ABlockWithoutKeysHasNoSplitsWhateverItsPiecesSay) {
  const Plan plan = attention.plan(1);
  for (const int32_t edge : {-5, -1, 0, 1, std::numeric_limits<int32_t>::min()}) {
    Pieces pieces = PlannedAttention::pieces(plan);
    const auto empty = std::ranges::find(pieces, 2, &Piece::request);
    ASSERT_NE(empty, pieces.end());
    ASSERT_EQ(empty->split_end, 0);
    *empty = {2, 0, edge, 0};
    pieces.insert(empty, {2, 0, 0, edge});
    const Status status = attention.run(PlannedAttention::with(plan, pieces), 2);
    EXPECT_FALSE(status.ok()) << edge;
    for (const Finding& f : status.findings()) EXPECT_EQ(f.id, "input.plan");
    EXPECT_TRUE(attention.untouched()) << edge;
  }
}

TEST_P(WorkLists, WhateverTwoPiecesSayTheyAreRunRightOrRefused) {
  const auto expected = attention.expected();
  const Plan plan = attention.plan(16);
  Rng rng(11);
  int refused = 0, ran = 0;
  for (int round = 0; round < 2000; ++round) {
    Pieces pieces = PlannedAttention::pieces(plan);
    // Two of one block, or any neighbours.
    const bool twice = rng.below(2) == 0;
    const size_t first = rng.below(static_cast<uint32_t>(pieces.size() - (twice ? 0 : 1)));
    const Piece whole = pieces[first];
    if (twice) pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(first), whole);
    const auto small = [&rng] {
      return (static_cast<int32_t>(rng.below(9)) - 4) * (rng.below(4) == 0 ? 64 : 1);
    };
    Piece &a = pieces[first], &b = pieces[first + 1];
    if (rng.below(2) == 0) b.request = a.request, b.q_begin = a.q_begin;
    if (rng.below(2) == 0) a.split_begin = small();
    a.split_end = small();
    b.split_begin = rng.below(4) == 0 ? small() : a.split_end;
    if (rng.below(2) == 0) b.split_end = small();
    const Status status = attention.run(PlannedAttention::with(plan, pieces), 2);
    if (status.ok()) {
      ++ran;
      ASSERT_EQ(attention.results(), expected) << round;
    } else {
      ++refused;
      for (const Finding& f : status.findings()) ASSERT_EQ(f.id, "input.plan");
      ASSERT_TRUE(attention.untouched()) << round;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(ran, 0);
}

TEST_P(WorkLists, APlanHasNoMorePiecesThanItsThreadsMake) {
  const Plan cut = attention.plan(16);
  const int64_t blocks = call_shape(attention.call.paged).most_blocks();
  Plan claimed = cut;
  claimed[kThreads] = 1;
  EXPECT_EQ(attention.run(cut, 1).to_string(), "ok");
  const Status status = attention.run(claimed, 1);
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].expected, "0.." + std::to_string(blocks) + ", pieces");
  EXPECT_TRUE(attention.untouched());
}

TEST_P(WorkLists, AHeaderIsReportedBesideOtherFaults) {
  Plan plan = attention.plan(2);
  plan[kMagic] = 0, plan[kSplitKeys] = 64;
  attention.call.params.sm_scale = 0;
  const Status status = attention.run(plan, 2);
  ASSERT_EQ(status.findings().size(), 3u) << status.to_string();
  EXPECT_EQ(status.findings()[0].id, "param.scale");
  EXPECT_EQ(status.findings()[1].where.row, kMagic);
  EXPECT_EQ(status.findings()[2].where.row, kSplitKeys);
  // Where heads make no sense there is nothing to hold it against.
  attention.call.params.sm_scale = 1;
  attention.call.params.num_kv_heads = 3;
  const Status no_heads = attention.run(plan, 2);
  for (const Finding& f : no_heads.findings()) EXPECT_NE(f.id, "input.plan");
}

TEST_P(WorkLists, APlanIsForOneKernelAndGroupSize) {
  const Plan plan = attention.plan(2);
  SmallShape shape = attention.call.shape;
  const bool decode = GetParam() == CaseKernel::kDecodePaged;
  PlannedAttention other(decode ? CaseKernel::kPrefillPaged : CaseKernel::kDecodePaged, shape);
  EXPECT_NE(other.run(plan, 1).to_string().find("queries of a block"), std::string::npos);
  EXPECT_TRUE(other.untouched());
  shape.kv_heads = 1;
  PlannedAttention groups(GetParam(), shape);
  EXPECT_EQ(groups.run(plan, 1).ok(), decode);  // blocks of one query are the same for any group
}

TEST_P(WorkLists, ARoomAsLargeAsSaidHoldsEveryPlanAndASmallerOneIsRefused) {
  Rng rng(9);
  for (int round = 0; round < 50; ++round) {
    SmallShape shape{.requests = {}, .qo_heads = 2, .kv_heads = 1, .page_size = 16};
    for (uint32_t i = rng.below(6); i > 0; --i)
      shape.requests.emplace_back(rng.below(150), rng.below(2) ? rng.below(4000) : rng.below(20));
    shape.requests.emplace_back(1, 4000);
    PlannedAttention a(GetParam(), shape);
    const Plan plan = a.plan(1 + static_cast<int>(rng.below(40)));
    const size_t used = used_part(plan).size();
    ASSERT_LE(used, plan.size());
    Plan room(used - 1, -1);
    const Status status = plan_attention(a.call.paged, room);
    ASSERT_EQ(status.findings().size(), 1u);
    EXPECT_EQ(status.findings()[0].id, "input.plan");
    EXPECT_TRUE(std::ranges::all_of(room, [](int32_t x) { return x == -1; }));
  }
}

TEST_P(WorkLists, PlanningChecksTheCall) {
  attention.call.params.sm_scale = 0;
  attention.call.paged.params = attention.call.params;
  Plan plan(1000, -1);
  const Status status = plan_attention(attention.call.paged, plan);
  EXPECT_EQ(status.findings()[0].id, "param.scale");
  EXPECT_EQ(plan, Plan(1000, -1));
}

TEST_P(WorkLists, PlanningWritesToMemoryOfItsOwn) {
  SmallAttention& c = attention.call;
  const auto size = static_cast<size_t>(attention.plan(2).size());
  const auto refused = [&](std::span<int32_t> room) {
    const Status status = plan_attention(c.paged, room);
    return status.ok() ? std::string() : status.findings()[0].id;
  };
  EXPECT_EQ(refused({static_cast<int32_t*>(nullptr), 100}), "input.null");
  // Ids and lengths, and rows of q and of the output.
  const auto ids = c.paged.pages.page_table;
  const Plan before(ids.begin(), ids.end());
  ASSERT_GE(before.size(), size);
  EXPECT_EQ(refused({const_cast<int32_t*>(ids.data()), size}), "input.alias");
  EXPECT_TRUE(std::ranges::equal(ids, before));
  EXPECT_EQ(refused({const_cast<int32_t*>(c.paged.pages.cache_seqlens.data()), 1}), "input.alias");
  for (auto* memory : {&c.q_memory, &c.k_memory, &c.out_memory})
    EXPECT_EQ(refused({reinterpret_cast<int32_t*>(memory->data()), 1}), "input.alias");
}

TEST_P(WorkLists, CostlyPiecesComeFirst) {
  for (const int threads : {1, 2, 32}) {
    const Plan plan = attention.plan(threads);
    const Pieces pieces = PlannedAttention::pieces(plan);
    EXPECT_EQ(pieces.front().request, 0);
    const auto splits = [](const Piece& p) { return p.split_end - p.split_begin; };
    for (size_t i = 1; i < pieces.size(); ++i) {
      EXPECT_LE(splits(pieces[i]), splits(pieces[i - 1]) + 1) << i;
    }
    EXPECT_LE(splits(pieces.back()), 1);
  }
}

TEST_P(WorkLists, APlanHasMemoryOfItsOwn) {
  SmallAttention& c = attention.call;
  c.paged.plan = {static_cast<const int32_t*>(nullptr), 3};
  EXPECT_EQ(c.run().findings()[0].id, "input.null");
  c.paged.plan = {reinterpret_cast<const int32_t*>(c.paged.out.data), 3};
  EXPECT_EQ(c.run().findings()[0].id, "input.alias");
}

INSTANTIATE_TEST_SUITE_P(Kernels, WorkLists,
                         ::testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged));

// How the work is cut.

Pieces plan_of(std::vector<std::pair<int32_t, int32_t>> requests, int32_t kv_heads, int threads,
               bool side_by_side = false) {
  SmallShape shape{.requests = std::move(requests), .qo_heads = 8, .kv_heads = kv_heads};
  shape.page_size = 256;
  shape.hnd = !side_by_side;
  PlannedAttention a(CaseKernel::kDecodePaged, shape);
  return PlannedAttention::pieces(a.plan(threads));
}

TEST(WorkList, TheErrorBoundKnowsTilesAndSplits) {
  for (const char* kernel : {"ours_portable", "ours_fast"}) {
    const Arithmetic& a = *find_arithmetic(kernel);
    EXPECT_EQ(a.split, kSplit);
    // A tile that is a multiple of another's looks at the maximum less often.
    EXPECT_EQ(kDecodeTile % a.tile, 0);
    EXPECT_EQ(kPrefillTile % a.tile, 0);
  }
}

TEST(WorkList, ALongRowIsCutAcrossThreads) {
  const Pieces pieces = plan_of({{1, 16384}}, 1, 4);
  ASSERT_EQ(pieces.size(), 16u);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(pieces[i].split_begin, static_cast<int32_t>(2 * i));
    EXPECT_EQ(pieces[i].split_end, static_cast<int32_t>(2 * i + 2));
  }
}

// No key is read: all lie at one place.
TEST(WorkList, TheLongestRowIsCutToo) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  std::vector<float> rows(4);
  const std::vector<int32_t> table = {0}, lens = {kMost};
  PagedAttention c;
  c.q = ConstTensorView(rows.data(), DType::kF32, {1, 1, 1});
  c.out = TensorView(rows.data() + 1, DType::kF32, {1, 1, 1});
  const TensorView keys(rows.data() + 2, DType::kF32, {1, kMost, 1, 1}, {0, 0, 0, 1});
  c.cache = KvCache::nhd(keys, keys);
  c.pages = PageTable::dense(table, 1, lens);
  c.params = {.num_qo_heads = 1, .num_kv_heads = 1, .head_dim_qk = 1, .head_dim_vo = 1};
  c.params.sm_scale = 1;
  c.options.num_threads = 4;
  Plan plan(static_cast<size_t>(attention_plan_size(c)));
  ASSERT_EQ(plan_attention(c, plan).to_string(), "ok");
  EXPECT_EQ(plan[kPieces], 16);
}

TEST(WorkList, HeadsAreItemsToo) {
  EXPECT_EQ(plan_of({{1, 16384}}, 8, 2).size(), 1u);
  EXPECT_EQ(plan_of({{1, 16384}}, 8, 4).size(), 2u);
}

TEST(WorkList, HeadsWhoseRowsLieSideBySideAreOneItem) {
  EXPECT_EQ(plan_of({{1, 16384}}, 8, 2, true).size(), 8u);
  EXPECT_EQ(plan_of({{1, 16384}}, 8, 4, true).size(), 16u);
}

TEST(WorkList, NothingIsCutForOneThreadOrWithinASplit) {
  EXPECT_EQ(plan_of({{1, 16384}}, 1, 1).size(), 1u);
  EXPECT_EQ(plan_of({{1, 512}}, 1, 64).size(), 1u);
}

TEST(WorkList, OnlyTheLongRowsOfABatchAreCut) {
  const Pieces pieces = plan_of({{1, 600}, {1, 16384}, {1, 600}, {1, 600}}, 1, 2);
  const auto of = [&](int32_t request) {
    return std::ranges::count(pieces, request, &Piece::request);
  };
  EXPECT_GE(of(1), 6);
  for (const int32_t request : {0, 2, 3}) EXPECT_EQ(of(request), 1);
}

TEST(WorkList, EqualBlocksStayInTheOrderOfTheBatch) {
  const Pieces pieces = plan_of({{1, 300}, {1, 300}, {1, 300}}, 1, 2);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(pieces[static_cast<size_t>(i)].request, i);
}

}  // namespace
}  // namespace shadowgraph::work_list_test
