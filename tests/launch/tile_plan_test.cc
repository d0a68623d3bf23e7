// A tile's packed rows as whole tokens and heads: each once, and no more pieces than there must be.
#include "launch/tile_plan.h"

#include <gtest/gtest.h>

#include <numeric>

namespace shadowgraph::tile_plan_test {
namespace {

TEST(TilePlan, SegmentsAreTheRowsOfATileEachOnceInOrder) {
  for (int64_t group = 1; group <= 5; ++group) {
    for (int64_t begin = 0; begin <= 12; ++begin) {
      for (int64_t end = begin; end <= 17; ++end) {
        std::vector<int64_t> rows, expected(static_cast<size_t>(end - begin));
        const std::vector<TileSegment> segments = segments_of({begin, end}, group);
        EXPECT_LE(segments.size(), 3u);
        for (const TileSegment& s : segments) {
          const TileRange heads = s.heads.size() > 0 ? s.heads : TileRange{0, group};
          EXPECT_TRUE(s.heads.size() == 0 || s.tokens.size() == 1);
          for (int64_t token = s.tokens.begin; token < s.tokens.end; ++token) {
            for (int64_t head = heads.begin; head < heads.end; ++head)
              rows.push_back(token * group + head);
          }
        }
        std::iota(expected.begin(), expected.end(), begin);
        ASSERT_EQ(rows, expected) << group << ": " << begin << " to " << end;
      }
    }
  }
}

}  // namespace
}  // namespace shadowgraph::tile_plan_test
