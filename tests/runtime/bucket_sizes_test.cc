#include "runtime/bucket_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "graph/capture/buckets.h"

namespace shadowgraph::bucket_sizes_test {
namespace {

using Sizes = std::vector<int32_t>;

BucketRule rule_of(int32_t max_rows, bool speculative) {
  BucketRule rule;
  rule.max_rows = max_rows, rule.speculative = speculative;
  return rule;
}
/// The sizes from low to high.
Sizes between(const Sizes& sizes, int32_t low, int32_t high) {
  Sizes part;
  std::ranges::copy_if(sizes, std::back_inserter(part),
                       [=](int32_t n) { return n >= low && n <= high; });
  return part;
}

TEST(BucketSizes, WithoutSpeculationTheyAreTheEngines) {
  const Sizes sizes = bucket_sizes(rule_of(600, false));
  EXPECT_EQ(between(sizes, 0, 40), (Sizes{1, 2, 4, 8, 12, 16, 24, 32, 40}));
  EXPECT_EQ(between(sizes, 240, 300), (Sizes{240, 248, 256, 272, 288}));
  EXPECT_EQ(between(sizes, 480, 600), (Sizes{480, 496, 512, 544, 576}));
}

TEST(BucketSizes, WithSpeculationTheyAreCloser) {
  const Sizes sizes = bucket_sizes(rule_of(310, true));
  EXPECT_EQ(between(sizes, 0, 14), (Sizes{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14}));
  EXPECT_EQ(between(sizes, 28, 90), (Sizes{28, 30, 32, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88}));
  EXPECT_EQ(between(sizes, 240, 310), (Sizes{240, 248, 256, 272, 288, 304}));
}

TEST(BucketSizes, WithoutPaddingThereIsOneForEverySize) {
  BucketRule rule = rule_of(7, false);
  rule.padding = false;
  EXPECT_EQ(bucket_sizes(rule), (Sizes{1, 2, 3, 4, 5, 6, 7}));
}

TEST(BucketSizes, RanksAndHalvesDivideTheTokens) {
  BucketRule rule = rule_of(12, true);
  rule.token_multiple = 4;
  EXPECT_EQ(bucket_sizes(rule), (Sizes{4, 8, 12}));
  rule.tokens_per_row = 2;
  EXPECT_EQ(bucket_sizes(rule), (Sizes{2, 4, 6, 8, 10, 12}));
  rule.two_batch = true;
  EXPECT_EQ(bucket_sizes(rule), (Sizes{4, 8, 12}));
}

TEST(BucketSizes, ABatchTakesTheSmallestThatHoldsIt) {
  const Sizes sizes = bucket_sizes(rule_of(16, false));
  EXPECT_EQ(bucket_for(sizes, 5), 8);
  EXPECT_EQ(bucket_for(sizes, 8), 8);
  EXPECT_EQ(bucket_for(sizes, 17), std::nullopt);
}

TEST(BucketSizes, AreCapturedFromTheLargest) {
  EXPECT_EQ(capture_order(bucket_sizes(rule_of(8, false))), (Sizes{8, 4, 2, 1}));
}

TEST(TwoBatches, HalveTheBucketNotTheBatch) {
  const std::vector<int32_t> lens{5, 6, 7};
  ForwardBatch batch;
  batch.seq_lens = lens;
  const TwoBatches two = split_in_two(batch, 8);
  EXPECT_EQ(two.rows[0], 4);
  EXPECT_EQ(two.rows[1], 4);
  EXPECT_EQ(two.batch[0].size(), 3);
  EXPECT_EQ(two.batch[1].size(), 0);
  const TwoBatches eager = split_in_two(batch, 3);
  EXPECT_EQ(eager.rows[0], 1);
  EXPECT_EQ(eager.rows[1], 2);
  EXPECT_EQ(eager.batch[0].seq_lens[0], 5);
  EXPECT_EQ(eager.batch[1].seq_lens[0], 6);
  EXPECT_EQ(eager.batch[1].size(), 2);
}

}  // namespace
}  // namespace shadowgraph::bucket_sizes_test
