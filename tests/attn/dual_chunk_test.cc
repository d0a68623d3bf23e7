// Chunk arithmetic: the ranges are the sets of the predicate, and figures that are known.
#include "attn/dual_chunk.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shadowgraph::dual_chunk_test {
namespace {

TEST(DualChunk, TheRangesAreTheSetsOfThePredicate) {
  for (int32_t len = 1; len <= 5; ++len) {
    const DualChunk chunks{len};
    for (int32_t query = 0; query < 23; ++query) {
      int32_t keys = 0, parts = 0;
      for (const ChunkPart part : kChunkParts) {
        const KvRange range = chunks.range(part, query);
        keys += range.size(), parts += range.size() > 0;
        for (int32_t key = 0; key <= query; ++key)
          EXPECT_EQ(key >= range.begin && key < range.end, chunks.part(query, key) == part)
              << len << ' ' << query << ' ' << key;
      }
      EXPECT_EQ(keys, query + 1);
      EXPECT_EQ(parts, chunks.parts(query));
    }
  }
}

/// Spec 17.8.
TEST(DualChunk, LengthsAreThoseOfTheSpecification) {
  const int32_t golden[][4] = {
      {8, 8, 0, 0}, {9, 1, 8, 0}, {16, 8, 8, 0}, {17, 1, 8, 8}, {20, 4, 8, 8}};
  for (const auto& [len, intra, succ, inter] : golden) {
    const DualChunk chunks{8};
    EXPECT_EQ(chunks.range(ChunkPart::kIntra, len - 1).size(), intra) << len;
    EXPECT_EQ(chunks.range(ChunkPart::kSucc, len - 1).size(), succ) << len;
    EXPECT_EQ(chunks.range(ChunkPart::kInter, len - 1).size(), inter) << len;
  }
}

TEST(DualChunk, AFactorIsOneUpToTheTrainedLengthAndGrowsWithTheLogarithm) {
  EXPECT_EQ(dual_chunk_factor(100, 0), 1);
  EXPECT_EQ(dual_chunk_factor(16, 16), 1);
  EXPECT_EQ(dual_chunk_factor(3, 16), 1);
  EXPECT_GT(dual_chunk_factor(17, 16), 1);
  EXPECT_EQ(dual_chunk_factor(32, 16), 0.1 * std::log(2.0) + 1);
}

}  // namespace
}  // namespace shadowgraph::dual_chunk_test
