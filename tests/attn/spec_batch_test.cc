// Batches of speculation, encoders and pool rows: extents, checks, slices.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "attn/finding_ids.h"
#include "shadowgraph/engine/batch.h"

namespace shadowgraph::spec_batch_test {
namespace {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

/// Two requests of a pool with rows of 8 columns.
struct Batch : ForwardBatch {
  Ints lens, rows{1, 2}, extends, encoder, table = Ints(3 * 8);
  Longs slots, position, encoder_slots;
  std::vector<uint8_t> mask;

  Batch(ForwardMode m, Ints seq) : lens(std::move(seq)) {
    mode = m;
    seq_lens_kind = usual_seq_lens_kind(m);
    view();
  }
  Batch(const Batch&) = delete;
  void draft(int32_t topk, int32_t steps) { spec.topk = topk, spec.num_steps = steps; }
  void view() {
    seq_lens = lens, req_pool_indices = rows, extend_lens = extends, encoder_lens = encoder;
    out_cache_loc = slots, positions = position, encoder_out_cache_loc = encoder_slots;
    req_to_token = {table, 8};
    spec.custom_mask = mask;
  }
};

Longs counted(int64_t n) {
  Longs v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 0);
  return v;
}
template <class T>
std::vector<T> list(std::span<const T> s) {
  return {s.begin(), s.end()};
}

TEST(SpecBatch, FullLengthsOfADraftCountTheStepsBefore) {
  Batch b(ForwardMode::kDraftDecode, {3, 3});
  b.seq_lens_kind = SeqLensKind::kFull;
  b.spec = {.topk = 1, .num_steps = 4, .step = 2, .custom_mask = {}};
  EXPECT_TRUE(validate(b).ok()) << validate(b).to_string();
  b.spec.step = 3;
  EXPECT_EQ(ids(validate(b)), (Ids{"len.extent seq_lens", "len.extent seq_lens"}));
}

TEST(SpecBatch, AVerifyAddsItsDraftsToThePrefix) {
  Batch b(ForwardMode::kTargetVerify, {4, 0});
  b.spec.num_draft_tokens = 3;
  ASSERT_TRUE(validate(b).ok()) << validate(b).to_string();
  EXPECT_EQ(b.extent(0), (RequestExtent{4, 3, 7}));
  EXPECT_EQ(b.extent(1), (RequestExtent{0, 3, 3}));
  b.spec.num_draft_tokens = 0;
  EXPECT_EQ(ids(validate(b)), Ids{"len.spec spec.num_draft_tokens"});
}

TEST(SpecBatch, AVerifyMayBeRagged) {
  Batch b(ForwardMode::kTargetVerify, {4, 2});
  b.spec.num_draft_tokens = 3;
  b.extends = {1, 3};
  b.slots = counted(4);
  b.view();
  ASSERT_TRUE(validate(b).ok()) << validate(b).to_string();
  EXPECT_EQ(b.extent(0), (RequestExtent{4, 1, 5}));
}

TEST(SpecBatch, EachStepOfADraftSeesOneKeyMore) {
  Batch b(ForwardMode::kDraftDecode, {4, 2});
  b.draft(2, 3);
  b.slots = counted(2 * 2 * 3);
  b.position = counted(2 * 2);
  b.view();
  for (b.spec.step = 0; b.spec.step < 3; ++b.spec.step) {
    ASSERT_TRUE(validate(b).ok()) << validate(b).to_string();
    EXPECT_EQ(b.extent(0), (RequestExtent{4 + b.spec.step, 1, 5 + b.spec.step}));
  }
  EXPECT_EQ(ids(validate(b)), Ids{"len.spec spec.step"});
  b.spec.step = -1;
  EXPECT_EQ(ids(validate(b)), Ids{"len.spec spec.step"});
  b.spec.step = 0, b.spec.topk = 0;
  EXPECT_EQ(ids(validate(b))[0], "len.spec spec.step");
}

TEST(SpecBatch, ADraftHasTheSlotsOfAllItsSteps) {
  Batch b(ForwardMode::kDraftDecode, {4, 2});
  b.draft(2, 3);
  b.slots = counted(2 * 2);
  b.position = counted(2);
  b.view();
  EXPECT_EQ(ids(validate(b)), (Ids{"len.total out_cache_loc", "len.total positions"}));
}

TEST(SpecBatch, OnlyAChainHasItsDraftsInTheRow) {
  Batch b(ForwardMode::kDraftDecode, {7, 8});
  b.draft(1, 3);
  EXPECT_EQ(ids(validate(b)), Ids{"table.row_width req_to_token"});
  b.spec.topk = 2;
  EXPECT_TRUE(validate(b).ok()) << validate(b).to_string();
}

TEST(SpecBatch, AMaskHasARowOfKeysForEachDraft) {
  Batch b(ForwardMode::kTargetVerify, {4, 2});
  b.spec.num_draft_tokens = 3;
  b.mask.resize(3 * 7 + 3 * 5);
  b.view();
  EXPECT_TRUE(validate(b).ok()) << validate(b).to_string();
  b.mask.pop_back();
  b.view();
  EXPECT_EQ(ids(validate(b)), Ids{"mask.size custom_mask"});
}

TEST(EncoderBatch, TheRowHoldsTheEncoderFirst) {
  Batch b(ForwardMode::kDecode, {4, 5});
  b.encoder = {4, 4};
  b.view();
  EXPECT_EQ(ids(validate(b)), Ids{"table.row_width req_to_token"});
  b.encoder = {4, -1};
  b.view();
  EXPECT_EQ(ids(validate(b)), Ids{"len.negative encoder_lens"});
  b.encoder = {4};
  b.view();
  EXPECT_EQ(ids(validate(b)), Ids{"len.batch encoder_lens"});
}

TEST(EncoderBatch, AllItsTokensHaveASlotOrNoneHas) {
  Batch b(ForwardMode::kExtend, {3, 2});
  b.extends = {3, 1}, b.encoder = {2, 3};
  b.encoder_slots = counted(5);
  b.view();
  EXPECT_TRUE(validate(b).ok()) << validate(b).to_string();
  b.encoder_slots.pop_back();
  b.view();
  EXPECT_EQ(ids(validate(b)), Ids{"len.total encoder_out_cache_loc"});
}

TEST(PoolRows, AreRowsOfTheTable) {
  Batch b(ForwardMode::kDecode, {4, 5});
  b.rows = {3, -1};
  b.view();
  EXPECT_EQ(ids(validate(b)),
            (Ids{"table.pool_row req_pool_indices", "table.pool_row req_pool_indices"}));
  EXPECT_EQ((TokenTable{b.table, 8}).rows(), 3);
  b.table[8] = 5;
  EXPECT_EQ((TokenTable{b.table, 8}).row(1)[0], 5);
  EXPECT_EQ(TokenTable{}.rows(), 0);
}

/// fa.I-76, fi.I-68: a half is a slice.
TEST(Slice, TakesTokensAndMaskWithTheRequests) {
  Batch b(ForwardMode::kTargetVerify, {4, 2});
  b.spec.num_draft_tokens = 2;
  b.slots = b.position = counted(4);
  b.mask.resize(2 * 6 + 2 * 4);
  std::iota(b.mask.begin(), b.mask.end(), uint8_t{0});
  b.view();
  const ForwardBatch s = b.slice(1, 1);
  ASSERT_TRUE(validate(s).ok()) << validate(s).to_string();
  EXPECT_EQ(list(s.seq_lens), Ints{2});
  EXPECT_EQ(list(s.req_pool_indices), Ints{2});
  EXPECT_EQ(list(s.out_cache_loc), (Longs{2, 3}));
  EXPECT_EQ(list(s.positions), (Longs{2, 3}));
  EXPECT_EQ(s.spec.custom_mask.size(), 8U);
  EXPECT_EQ(s.spec.custom_mask[0], 12);
  EXPECT_TRUE(validate(b.slice(2, 0)).ok());
  EXPECT_EQ(b.slice(2, 0).size(), 0);
}

TEST(Slice, OfADraftTakesAllStepsOfItsBranches) {
  Batch b(ForwardMode::kDraftDecode, {4, 2});
  b.draft(2, 3);
  b.slots = counted(12);
  b.position = counted(4);
  b.view();
  const ForwardBatch s = b.slice(1, 1);
  ASSERT_TRUE(validate(s).ok()) << validate(s).to_string();
  EXPECT_EQ(list(s.out_cache_loc), (Longs{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(list(s.positions), (Longs{2, 3}));
}

TEST(Slice, OfExtendsTakesTheirTokensAndEncoders) {
  Batch b(ForwardMode::kExtend, {3, 2});
  b.extends = {3, 1}, b.encoder = {2, 3};
  b.slots = b.position = counted(4);
  b.encoder_slots = counted(5);
  b.view();
  const ForwardBatch s = b.slice(1, 1);
  ASSERT_TRUE(validate(s).ok()) << validate(s).to_string();
  EXPECT_EQ(list(s.extend_lens), Ints{1});
  EXPECT_EQ(list(s.out_cache_loc), Longs{3});
  EXPECT_EQ(list(s.encoder_lens), Ints{3});
  EXPECT_EQ(list(s.encoder_out_cache_loc), (Longs{2, 3, 4}));
}

}  // namespace
}  // namespace shadowgraph::spec_batch_test
