// The list of edges: what is beside a constant, room by room.
#include "core/edges.h"

#include <gtest/gtest.h>

#include "kernels/dense/decode_paged.h"
#include "kernels/dense/prefill.h"

namespace shadowgraph {
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

}  // namespace
}  // namespace shadowgraph
