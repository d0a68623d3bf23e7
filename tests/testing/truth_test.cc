// What is true of a step, on worked examples.
#include <gtest/gtest.h>

#include <numeric>

#include "shadowgraph/testing.h"

namespace shadowgraph::testing::truth_test {
namespace {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;
using Bytes = std::vector<uint8_t>;
using Lists = std::vector<Ints>;

/// Two requests in rows 2 and 1; row r, column c is slot 10 r + c, and 100 more in the window pool.
struct Batch : ForwardBatch {
  Ints rows = {2, 1}, lens, extends, encoder, table = Ints(40);
  Longs drafts, swa = Longs(40);
  Batch(ForwardMode m, Ints seq, Ints extend = {})
      : lens(std::move(seq)), extends(std::move(extend)) {
    std::iota(table.begin(), table.end(), 0);
    std::iota(swa.begin(), swa.end(), 100);
    mode = m, seq_lens_kind = usual_seq_lens_kind(m);
    req_pool_indices = rows, seq_lens = lens, extend_lens = extends, full_to_swa = swa;
    req_to_token = {table, 10};
  }
};

TEST(Truth, OfAnExtendNewTokensAreTheLastKeys) {
  const Truth t = truth_of(Batch(ForwardMode::kExtend, {4, 2}, {1, 2}));
  EXPECT_EQ(t.q_lens, (Ints{1, 2}));
  EXPECT_EQ(t.kv_lens, (Ints{4, 2}));
  EXPECT_EQ(t.cu_seqlens_q, (Ints{0, 1, 3}));
  EXPECT_EQ(t.keys, (Lists{{20, 21, 22, 23}, {10, 11}}));
  EXPECT_EQ(t.stored, (Ints{23, 10, 11}));
  EXPECT_EQ(t.mask, (Bytes{1, 1, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(t.num_pages(1), (Ints{4, 2}));
  EXPECT_EQ(t.num_pages(3), (Ints{2, 1}));
  EXPECT_EQ(t.rows(), 2);
}

TEST(Truth, OfATargetVerifyTheDraftsAreNew) {
  Batch b(ForwardMode::kTargetVerify, {3, 1});
  b.spec.num_steps = 1, b.spec.num_draft_tokens = 2;
  const Truth t = truth_of(b);
  EXPECT_EQ(t.kv_lens, (Ints{5, 3}));
  EXPECT_EQ(t.cu_seqlens_q, (Ints{0, 2, 4}));
  EXPECT_EQ(t.stored, (Ints{23, 24, 11, 12}));
  EXPECT_EQ(t.mask, (Bytes{1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1}));
}

TEST(Truth, OfADraftTreeTheMaskIsTheTrees) {
  Batch b(ForwardMode::kTargetVerify, {2, 0});
  b.spec.topk = 2, b.spec.num_steps = 1, b.spec.num_draft_tokens = 3;
  const Bytes tree = {1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1,  //
                      1, 0, 0, 1, 1, 0, 1, 0, 1};
  b.spec.custom_mask = tree;
  ASSERT_TRUE(validate(b).ok());
  EXPECT_EQ(truth_of(b).mask, tree);
}

TEST(Truth, OfADraftDecodeEveryBranchIsARow) {
  Batch b(ForwardMode::kDraftDecode, {2, 1});
  b.spec.topk = 2, b.spec.num_steps = 3, b.spec.step = 1;
  b.drafts = {31, 32, 33, 34, 35, 36, 25, 26, 27, 28, 29, 30};
  b.out_cache_loc = b.drafts;
  const Truth t = truth_of(b);
  EXPECT_EQ(t.q_lens, (Ints{1, 1, 1, 1}));
  EXPECT_EQ(t.kv_lens, (Ints{4, 4, 3, 3}));
  EXPECT_EQ(t.keys, (Lists{{20, 21, 31, 32}, {20, 21, 34, 35}, {10, 25, 26}, {10, 28, 29}}));
  EXPECT_EQ(t.stored, (Ints{32, 35, 26, 29}));
}

TEST(Truth, OfTheWindowPoolSlotsAreItsOwn) {
  const Truth t = truth_of(Batch(ForwardMode::kDecode, {2, 1}), Pool::kWindow);
  EXPECT_EQ(t.keys, (Lists{{120, 121}, {110}}));
  EXPECT_EQ(t.stored, (Ints{121, 110}));
}

TEST(Truth, OfAnEncoderKeysAreItsTokensAndNoneIsNew) {
  Batch b(ForwardMode::kDecode, {2, 1});
  b.encoder = {3, 0};
  b.encoder_lens = b.encoder;
  const Truth t = truth_of(b, Pool::kEncoder);
  EXPECT_EQ(t.q_lens, (Ints{1, 1}));
  EXPECT_EQ(t.kv_lens, (Ints{3, 0}));
  EXPECT_EQ(t.keys, (Lists{{20, 21, 22}, {}}));
  EXPECT_TRUE(t.stored.empty());
  EXPECT_EQ(t.mask, (Bytes{1, 1, 1}));
  EXPECT_EQ(truth_of(b).keys, (Lists{{23, 24}, {10}}));
}

}  // namespace
}  // namespace shadowgraph::testing::truth_test
