// Keys of a row by slot: the text's, a branch's, the encoder's.
#include "attn/row_keys.h"

#include <gtest/gtest.h>

#include <numeric>

namespace shadowgraph::row_keys_test {
namespace {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

/// Two requests in rows 2 and 1; row r, column c is slot 10 r + c.
struct Batch : ForwardBatch {
  Ints rows = {2, 1}, lens, table = Ints(40), encoder;
  Longs drafts;
  Batch(ForwardMode m, Ints seq) : lens(std::move(seq)) {
    std::iota(table.begin(), table.end(), 0);
    mode = m, seq_lens_kind = usual_seq_lens_kind(m);
    req_pool_indices = rows, seq_lens = lens;
    req_to_token = {table, 10};
  }
};

TEST(RowKeys, AreTheFirstColumnsOfTheRequestsRow) {
  const Batch b(ForwardMode::kDecode, {3, 1});
  ASSERT_TRUE(validate(b).ok());
  EXPECT_EQ(rows_a_request(b), 1);
  EXPECT_EQ(row_keys(b, 0), (Ints{20, 21, 22}));
  EXPECT_EQ(row_keys(b, 1), (Ints{10}));
  EXPECT_EQ(encoder_keys(b, 0), Ints{});
}

TEST(RowKeys, BeginBehindTheEncoders) {
  Batch b(ForwardMode::kDecode, {3, 1});
  b.encoder = {4, 0};
  b.encoder_lens = b.encoder;
  ASSERT_TRUE(validate(b).ok());
  EXPECT_EQ(row_keys(b, 0), (Ints{24, 25, 26}));
  EXPECT_EQ(row_keys(b, 1), (Ints{10}));
  EXPECT_EQ(encoder_keys(b, 0), (Ints{20, 21, 22, 23}));
  EXPECT_EQ(encoder_keys(b, 1), Ints{});
}

TEST(RowKeys, ABranchHasThePrefixAndItsOwnTokensUpToThisStep) {
  Batch b(ForwardMode::kDraftDecode, {2, 1});
  b.spec.topk = 2, b.spec.num_steps = 3, b.spec.step = 1;
  b.drafts = {91, 92, 93, 94, 95, 96, 81, 82, 83, 84, 85, 86};
  b.out_cache_loc = b.drafts;
  ASSERT_TRUE(validate(b).ok());
  EXPECT_EQ(rows_a_request(b), 2);
  EXPECT_EQ(row_keys(b, 0, 0), (Ints{20, 21, 91, 92}));
  EXPECT_EQ(row_keys(b, 0, 1), (Ints{20, 21, 94, 95}));
  EXPECT_EQ(row_keys(b, 1, 1), (Ints{10, 84, 85}));
}

TEST(RowKeys, AChainWithoutSlotsGoesOnInTheRow) {
  Batch b(ForwardMode::kDraftDecode, {2, 1});
  b.spec.num_steps = 3, b.spec.step = 1;
  ASSERT_TRUE(validate(b).ok());
  EXPECT_EQ(row_keys(b, 0), (Ints{20, 21, 22, 23}));
}

}  // namespace
}  // namespace shadowgraph::row_keys_test
