// KV heads that are computed together, and layers that differ in them: units are a matter of how
// the work is done, never of its result, and one plan serves all layers of a kind.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "kernels/dense/attend_blocks.h"
#include "kernels/planned_attention.h"

namespace shadowgraph::joined_heads_test {
namespace {

/// A batch, the first row of which is long enough to be cut. HND: KV heads one by one.
SmallShape batch(int32_t kv_heads, int32_t group, bool hnd) {
  SmallShape s{.requests = {{1, 1700}, {1, 20}, {1, 0}, {1, 513}},
               .qo_heads = kv_heads * group,
               .kv_heads = kv_heads,
               .dim_qk = 20,
               .dim_vo = 24,
               .page_size = 16};
  s.hnd = hnd;
  return s;
}

struct Joined {
  int32_t kv_heads, group, units;
};
class JoinedHeads : public ::testing::TestWithParam<Joined> {};

TEST_P(JoinedHeads, HaveTheBitsOfHeadsOneByOne) {
  const auto [kv_heads, group, units] = GetParam();
  PlannedAttention joined(CaseKernel::kDecodePaged, batch(kv_heads, group, false));
  PlannedAttention apart(CaseKernel::kDecodePaged, batch(kv_heads, group, true));
  const auto expected = apart.expected();
  ASSERT_EQ(joined.expected(), expected);
  const CallShape shape = call_shape(joined.call.paged);
  EXPECT_EQ(shape.units, units);
  EXPECT_EQ(shape.kv_heads, kv_heads / units);
  EXPECT_EQ(call_shape(apart.call.paged).units, kv_heads);
  for (const int threads : {2, 5, 64}) {
    ASSERT_EQ(joined.run({}, threads).to_string(), "ok");
    EXPECT_EQ(joined.results(), expected) << threads;
  }
  for (const int planned : {1, 8, 64}) {
    const Plan plan = joined.plan(planned);
    if (planned > 1) {
      EXPECT_GT(plan[kPieces], 4);
    }
    ASSERT_EQ(joined.run(plan, 3).to_string(), "ok");
    EXPECT_EQ(joined.results(), expected) << planned;
  }
}

// One unit; two of two heads; three that do not join evenly; more rows than a unit joins.
INSTANTIATE_TEST_SUITE_P(Shapes, JoinedHeads,
                         ::testing::Values(Joined{8, 2, 1}, Joined{4, 64, 2}, Joined{3, 64, 3},
                                           Joined{2, 130, 2}));

TEST(JoinedHeads, AreFewerWhereThreadsWouldHaveNoWork) {
  SmallShape s = batch(8, 2, false);
  s.requests = {{1, 2048}};  // four splits
  PlannedAttention one(CaseKernel::kDecodePaged, s);
  const auto expected = one.expected();
  for (const auto& [threads, units] : {std::pair{1, 1}, {2, 1}, {3, 2}, {4, 2}, {8, 4}, {64, 8}}) {
    one.call.paged.options.num_threads = threads;
    EXPECT_EQ(spread_heads(make_problem(one.call.paged), call_shape(one.call.paged)).units, units)
        << threads;
    ASSERT_EQ(one.run({}, threads).to_string(), "ok");
    EXPECT_EQ(one.results(), expected) << threads;
  }
}

class OnePlan : public ::testing::TestWithParam<CaseKernel> {};

TEST_P(OnePlan, ServesLayersWhoseKvHeadsAndLayoutDiffer) {
  std::vector<std::unique_ptr<PlannedAttention>> layers;
  std::set<size_t> made;
  for (const int32_t kv_heads : {1, 3, 8}) {
    for (const bool hnd : {false, true}) {
      SmallShape shape = batch(kv_heads, 2, hnd);
      shape.requests[0] = {3, 16384};
      layers.push_back(std::make_unique<PlannedAttention>(GetParam(), shape));
    }
  }
  for (const auto& planner : layers) {
    const Plan plan = planner->plan(4);
    made.insert(PlannedAttention::pieces(plan).size());
    for (const auto& layer : layers) {
      const auto expected = layer->expected();
      ASSERT_EQ(layer->run(plan, 4).to_string(), "ok");
      EXPECT_EQ(layer->results(), expected);
    }
  }
  EXPECT_GT(made.size(), 1u);  // what units a layer has does show in how it would cut
}

INSTANTIATE_TEST_SUITE_P(Kernels, OnePlan,
                         ::testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged));

}  // namespace
}  // namespace shadowgraph::joined_heads_test
