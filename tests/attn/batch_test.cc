#include "shadowgraph/batch.h"

#include <gtest/gtest.h>

#include <vector>

#include "attn/finding_ids.h"

namespace shadowgraph {
namespace {

struct Batch : ForwardBatch {
  std::vector<int32_t> lens, extends, rows;
  std::vector<int64_t> slots;
  Batch(ForwardMode m, SeqLensKind kind, std::vector<int32_t> seq, std::vector<int32_t> extend)
      : lens(std::move(seq)), extends(std::move(extend)) {
    mode = m;
    seq_lens_kind = kind;
    seq_lens = lens;
    extend_lens = extends;
  }
};

TEST(ForwardBatch, FullLensCountTheNewTokens) {
  const Batch b(ForwardMode::kExtend, SeqLensKind::kFull, {5, 3, 4}, {2, 3, 0});
  ASSERT_TRUE(validate(b).ok());
  EXPECT_EQ(b.extent(0), (RequestExtent{3, 2, 5}));
  EXPECT_EQ(b.extent(1), (RequestExtent{0, 3, 3}));
  EXPECT_EQ(b.extent(2), (RequestExtent{4, 0, 4}));
}

TEST(ForwardBatch, PrefixLensDoNot) {
  const Batch b(ForwardMode::kExtend, SeqLensKind::kPrefix, {5, 0}, {2, 3});
  ASSERT_TRUE(validate(b).ok());
  EXPECT_EQ(b.extent(0), (RequestExtent{5, 2, 7}));
  EXPECT_EQ(b.extent(1), (RequestExtent{0, 3, 3}));
}

TEST(ForwardBatch, ADecodeHasOneNewTokenEach) {
  const Batch full(ForwardMode::kDecode, SeqLensKind::kFull, {5, 1}, {});
  ASSERT_TRUE(validate(full).ok());
  EXPECT_EQ(full.extent(0), (RequestExtent{4, 1, 5}));
  const Batch prefix(ForwardMode::kDecode, SeqLensKind::kPrefix, {5, 0}, {});
  ASSERT_TRUE(validate(prefix).ok());
  EXPECT_EQ(prefix.extent(1), (RequestExtent{0, 1, 1}));
}

TEST(ForwardBatch, BothReadingsOfOneStepAreOneExtent) {
  for (int32_t prefix = 0; prefix < 5; ++prefix) {
    for (int32_t fresh = 0; fresh < 5; ++fresh) {
      const Batch a(ForwardMode::kExtend, SeqLensKind::kPrefix, {prefix}, {fresh});
      const Batch b(ForwardMode::kExtend, SeqLensKind::kFull, {prefix + fresh}, {fresh});
      EXPECT_EQ(a.extent(0), b.extent(0));
    }
  }
}

TEST(ForwardBatch, TheEmptyBatchIsFine) {
  EXPECT_TRUE(validate(ForwardBatch{}).ok());
  EXPECT_EQ(ForwardBatch{}.size(), 0);
}

TEST(ForwardBatch, LengthsAreNotNegative) {
  EXPECT_EQ(ids(validate(Batch(ForwardMode::kExtend, SeqLensKind::kPrefix, {-1, 2}, {1, -2}))),
            (Ids{"len.negative seq_lens", "len.negative extend_lens"}));
}

TEST(ForwardBatch, AllKeysHoldAtLeastTheNewTokens) {
  EXPECT_EQ(ids(validate(Batch(ForwardMode::kExtend, SeqLensKind::kFull, {2, 3}, {3, 3}))),
            Ids{"len.extent seq_lens"});
  EXPECT_EQ(ids(validate(Batch(ForwardMode::kDecode, SeqLensKind::kFull, {0}, {}))),
            Ids{"len.extent seq_lens"});
}

TEST(ForwardBatch, PrefixPlusNewFitsInInt32) {
  EXPECT_TRUE(
      validate(Batch(ForwardMode::kDecode, SeqLensKind::kPrefix, {INT32_MAX - 1}, {})).ok());
  EXPECT_EQ(ids(validate(Batch(ForwardMode::kDecode, SeqLensKind::kPrefix, {INT32_MAX}, {}))),
            Ids{"len.overflow seq_lens"});
}

TEST(ForwardBatch, TheSumOfNewTokensFitsInInt32) {
  EXPECT_EQ(ids(validate(
                Batch(ForwardMode::kExtend, SeqLensKind::kFull, {INT32_MAX, 1}, {INT32_MAX, 1}))),
            Ids{"len.overflow extend_lens"});
}

TEST(ForwardBatch, SpansHaveTheBatchsLength) {
  Batch b(ForwardMode::kExtend, SeqLensKind::kFull, {5, 3}, {2});
  b.rows = {1, 2, 3};
  b.req_pool_indices = b.rows;
  EXPECT_EQ(ids(validate(b)), (Ids{"len.batch req_pool_indices", "len.batch extend_lens"}));
  EXPECT_EQ(ids(validate(Batch(ForwardMode::kExtend, SeqLensKind::kFull, {5}, {}))),
            Ids{"len.batch extend_lens"});
}

TEST(ForwardBatch, EveryNewTokenHasASlotOrNoneHas) {
  Batch b(ForwardMode::kExtend, SeqLensKind::kFull, {5, 3}, {2, 3});
  b.slots = {1, 2, 3, 4};
  b.out_cache_loc = b.slots;
  EXPECT_EQ(ids(validate(b)), Ids{"len.total out_cache_loc"});
  b.slots.push_back(-1);
  b.out_cache_loc = b.slots;
  EXPECT_TRUE(validate(b).ok());
}

TEST(ForwardBatch, EveryFaultIsReportedAtOnce) {
  Batch b(ForwardMode::kExtend, SeqLensKind::kFull, {-1, 2, 5}, {0, 3, -4});
  b.rows = {1};
  b.req_pool_indices = b.rows;
  b.slots = {1};
  b.out_cache_loc = b.slots;
  EXPECT_EQ(ids(validate(b)),
            (Ids{"len.batch req_pool_indices", "len.negative seq_lens", "len.extent seq_lens",
                 "len.negative extend_lens", "len.total out_cache_loc"}));
}

}  // namespace
}  // namespace shadowgraph
