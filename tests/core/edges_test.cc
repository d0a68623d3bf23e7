// The list of edges: what is beside a constant, room by room.
#include "core/edges.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/dense/decode_paged.h"
#include "kernels/dense/prefill.h"

namespace shadowgraph::edges_test {
namespace {

TEST(Edges, AreTheConstantsBesideWhichTheyStand) {
  EXPECT_EQ(edges_of("kernels/dense/decode_paged", Axis::kKeys),
            (std::vector<int32_t>{kDecodeTile}));
  EXPECT_EQ(edges_of("kernels/dense/prefill", Axis::kKeys), (std::vector<int32_t>{kPrefillTile}));
  EXPECT_EQ(edges_of("kernels/dense/work_list", Axis::kKeys), (std::vector<int32_t>{kSplit}));
}

TEST(Edges, OfARoomAscendAndEachStandsOnce) {
  const std::vector<int32_t> keys = edges_of("kernels/dense", Axis::kKeys);
  EXPECT_EQ(keys, (std::vector<int32_t>{2 * kPanel, kDecodeTile, kPrefillTile, kSplit}));
  EXPECT_TRUE(edges_of("no such file", Axis::kKeys).empty());
}

TEST(Edges, SizesNearThemAreBelowAtAndAboveMultiples) {
  std::set<int32_t> sizes;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Choices choices{Rng(seed)};
    const int32_t size = near_edge(choices, Axis::kKeys, 1030, 256, 4);
    EXPECT_LE(size, 1031);
    sizes.insert(size);
  }
  EXPECT_EQ(sizes,
            (std::set<int32_t>{255, 256, 257, 511, 512, 513, 767, 768, 769, 1023, 1024, 1025}));
  Choices none{Rng(1)};
  const int32_t at_end = near_edge(none, Axis::kStates, 7);
  EXPECT_TRUE(6 <= at_end && at_end <= 8) << at_end << ": an axis without edges has its end";
}

}  // namespace
}  // namespace shadowgraph::edges_test
