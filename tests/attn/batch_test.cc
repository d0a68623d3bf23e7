#include "shadowgraph/engine/batch.h"

#include <gtest/gtest.h>

#include <vector>

#include "attn/finding_ids.h"

namespace shadowgraph::batch_test {
namespace {

struct Batch : ForwardBatch {
  std::vector<int32_t> lens, extends, rows, delimiters_of, indptr;
  std::vector<int64_t> slots;
  Batch(ForwardMode m, SeqLensKind kind, std::vector<int32_t> seq, std::vector<int32_t> extend)
      : lens(std::move(seq)), extends(std::move(extend)) {
    mode = m;
    seq_lens_kind = kind;
    seq_lens = lens;
    extend_lens = extends;
  }
  void set_items(std::vector<int32_t> places, std::vector<int32_t> offsets) {
    item_delimiters = delimiters_of = std::move(places);
    item_indptr = indptr = std::move(offsets);
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

TEST(ForwardBatch, DelimitersAreAscendingPlacesAmongTheNewTokens) {
  Batch b(ForwardMode::kExtend, SeqLensKind::kPrefix, {7, 3, 0}, {6, 2, 3});
  b.set_items({0, 3, 5, 0, 1, 2}, {0, 3, 3, 6});
  EXPECT_EQ(ids(validate(b)), Ids{});
  const auto last = b.delimiters(2);
  EXPECT_EQ(std::vector(last.begin(), last.end()), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_TRUE(b.delimiters(1).empty());
  b.set_items({0, 3, 6, 1, 1, -2}, {0, 3, 3, 6});
  EXPECT_EQ(ids(validate(b)), Ids(3, "mask.items item_delimiters"));
  EXPECT_EQ(validate(b).findings()[1].expected, "2 <= place < 3");
}

TEST(ForwardBatch, OffsetsOfItemsAscendInsideThem) {
  Batch b(ForwardMode::kExtend, SeqLensKind::kPrefix, {7, 3}, {6, 2});
  b.set_items({0, 3}, {});
  EXPECT_EQ(ids(validate(b)), Ids{"len.batch item_indptr"});
  b.set_items({0, 3}, {0, 2});
  EXPECT_EQ(ids(validate(b)), Ids{"len.batch item_indptr"});
  b.set_items({0, 3}, {-1, 3, 1});
  EXPECT_EQ(ids(validate(b)), (Ids{"len.total item_indptr", "len.total item_indptr",
                                   "len.indptr_monotone item_indptr"}));
  b.set_items({9, 0, 3}, {1, 3, 3});
  EXPECT_EQ(ids(validate(b)), Ids{});
}

TEST(ForwardBatch, ExtendsAloneHaveItems) {
  Batch b(ForwardMode::kMixed, SeqLensKind::kPrefix, {7, 3}, {6, 2});
  b.set_items({0, 2}, {0, 1, 2});
  EXPECT_EQ(ids(validate(b)), (Ids{"mask.items item_delimiters", "mask.items item_delimiters"}));
}

TEST(ForwardBatch, ASliceHasTheItemsOfItsRequests) {
  Batch b(ForwardMode::kExtend, SeqLensKind::kPrefix, {7, 3, 0}, {6, 2, 3});
  b.set_items({0, 3, 5, 1}, {0, 3, 3, 4});
  const ForwardBatch rest = b.slice(1, 2);
  EXPECT_EQ(ids(validate(rest)), Ids{});
  EXPECT_TRUE(rest.delimiters(0).empty());
  ASSERT_EQ(rest.delimiters(1).size(), 1u);
  EXPECT_EQ(rest.delimiters(1)[0], 1);
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
}  // namespace shadowgraph::batch_test
