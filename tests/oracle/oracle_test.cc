// Cases whose answer can be worked out by hand.
#include "oracle/oracle.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/float_formats.h"
#include "oracle/small_call.h"

namespace shadowgraph::oracle_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// Errors are counted in units: an operation is off by one of its result at most, a function of the
// libraries (exp, log, tanh) by four, which is 2 ulp.
constexpr double kUnit = 0x1p-53;

using Keys = std::vector<int32_t>;

TEST(Oracle, ZeroQueryGivesTheMean) {
  SmallCall c(1, 4, 1, 1, 2, 2);
  c.v = {1, 10, 2, 20, 3, 30, 6, 60};
  const OracleRow row = c.rows()[0];
  // Four weights of exp(0) = 1: all sums are small integers.
  EXPECT_EQ(row.out[0], 3);
  EXPECT_EQ(row.out[1], 30);
  EXPECT_EQ(row.lse, std::log(4.0));
  EXPECT_EQ(row.lse_with_sink, row.lse);
}

TEST(Oracle, SingleKeyIsItsValue) {
  SmallCall c(1, 1, 1, 1, 2, 3);
  c.q = {3, 4};
  c.k = {0.5, 0.25};
  c.v = {7, -8, 9};
  c.params().sm_scale = 0.5;
  const OracleRow row = c.rows()[0];
  EXPECT_EQ(row.out[0], 7);
  EXPECT_EQ(row.out[1], -8);
  EXPECT_EQ(row.out[2], 9);
  EXPECT_EQ(row.lse, 1.25);
  EXPECT_EQ(row.magnitudes[0], 1.25);
}

TEST(Oracle, SelectorReadsTheKeyItPoints) {
  for (int32_t pick = 0; pick < 5; ++pick) {
    SmallCall c(1, 5, 1, 1, 1, 1);
    c.q = {1};
    c.k[static_cast<size_t>(pick)] = 1024;
    c.v = {10, 11, 12, 13, 14};
    EXPECT_EQ(c.rows()[0].out[0], 10 + pick);
  }
}

TEST(Oracle, WeightsAreTheSoftmax) {
  SmallCall c(1, 2, 1, 1, 1, 1);
  c.q = {1};
  c.k = {0, 1};
  c.v = {0, 1};
  c.params().sm_scale = 2;
  const OracleRow row = c.rows()[0];
  // 2 + log(1 + e^-2): the sum of 1.14 is off by 0.6 and 1.2, its logarithm of 0.13 by that over
  // 1.14 and 0.6, the whole by 2.2 more. Expected: the sum of 8.4 by 29.6 and 8.4, its logarithm by
  // that over 8.4 and 8.6.
  const double lse = 1.8 / 1.13 + 0.6 + 2.2;
  EXPECT_LE(std::abs(row.lse - std::log(1 + std::exp(2))), (lse + 38 / 8.38 + 8.6) * kUnit);
  // The weight is 0.89: e^(2 - lse), times 1. Expected: e^2 counts 4 / (1 + e^2), then two
  // operations.
  EXPECT_LE(std::abs(row.out[0] - std::exp(2) / (1 + std::exp(2))),
            0.89 * (lse + 4 + 0.5 + 2) * kUnit);
}

TEST(Oracle, SoftCapBendsTheScaledLogit) {
  SmallCall c(1, 2, 1, 1, 1, 1);
  c.q = {1};
  c.k = {-100, 3};
  c.params().sm_scale = 2;
  c.params().logits_soft_cap = 5;
  const OracleRow row = c.rows()[0];
  EXPECT_EQ(row.logits[0], -5);  // tanh(-40) is -1
  // Below 5, of the same quotient: a tanh and a product on either side.
  EXPECT_LE(std::abs(row.logits[1] - 5 * std::tanh(6.0 / 5)), 5 * (2 * (4 + 1)) * kUnit);
  EXPECT_EQ(row.magnitudes[0], 200);
}

TEST(Oracle, WindowZeroSeesOnlySelf) {
  SmallCall c(3, 5, 1, 1, 1, 1);
  c.params().causal = true;
  c.params().window_left = 0;
  for (const OracleRow& row : c.rows()) {
    EXPECT_EQ(row.keys, Keys{static_cast<int32_t>(row.row) + 2});
  }
}

TEST(Oracle, CausalIsBottomRight) {
  SmallCall c(2, 4, 1, 1, 1, 1);
  c.params().causal = true;
  const auto rows = c.rows();
  EXPECT_EQ(rows[0].keys, (Keys{0, 1, 2}));
  EXPECT_EQ(rows[1].keys, (Keys{0, 1, 2, 3}));
}

TEST(Oracle, WindowRightIsTheOtherEdge) {
  SmallCall c(4, 4, 1, 1, 1, 1);
  c.params().window_right = 1;
  c.params().window_left = 1;
  EXPECT_EQ(c.rows()[1].keys, (Keys{0, 1, 2}));
  EXPECT_EQ(c.rows()[3].keys, (Keys{2, 3}));
}

TEST(Oracle, RowWithoutKeysIsEmpty) {
  SmallCall c(3, 1, 1, 1, 1, 2);
  c.v = {5, 6};
  c.params().causal = true;
  const auto rows = c.rows();
  for (size_t i : {size_t{0}, size_t{1}}) {
    EXPECT_TRUE(rows[i].empty());
    EXPECT_EQ(rows[i].out[0], 0);
    EXPECT_EQ(rows[i].lse, -kInfinity);
  }
  EXPECT_EQ(rows[2].out[1], 6);
}

TEST(Oracle, RequestWithoutKeysIsEmpty) {
  SmallCall c(2, 0, 1, 1, 1, 1);
  ASSERT_EQ(c.rows().size(), 2u);
  for (const OracleRow& row : c.rows()) EXPECT_TRUE(row.empty());
}

TEST(Oracle, SinkWithEqualLogitHalves) {
  SmallCall c(1, 1, 2, 1, 1, 1);
  c.v = {6};
  c.set_sinks({0, -std::numeric_limits<float>::infinity()});
  const auto rows = c.rows();
  EXPECT_EQ(rows[0].out[0], 3);
  EXPECT_EQ(rows[0].lse, 0);
  EXPECT_EQ(rows[0].lse_with_sink, std::log(2.0));
  EXPECT_EQ(rows[1].out[0], 6);
  EXPECT_EQ(rows[1].lse_with_sink, 0);
}

TEST(Oracle, QueryHeadsShareTheirKvHead) {
  SmallCall c(1, 1, 6, 2, 1, 1);
  c.v = {100, 200};
  const auto rows = c.rows();
  ASSERT_EQ(rows.size(), 6u);
  for (const OracleRow& row : rows) EXPECT_EQ(row.out[0], row.head < 3 ? 100 : 200);
}

TEST(Oracle, PackedMaskStartsAtTheLowestBit) {
  SmallCall c(1, 10, 1, 1, 1, 1);
  c.set_mask(CustomMask::Kind::kPacked, {0b00100001, 0b00000010});
  EXPECT_EQ(c.rows()[0].keys, (Keys{0, 5, 9}));
}

TEST(Oracle, BoolMaskIsRowMajorAndJoinsCausal) {
  SmallCall c(2, 3, 1, 1, 1, 1);
  c.set_mask(CustomMask::Kind::kBool, {0, 1, 1, 1, 0, 255});
  EXPECT_EQ(c.rows()[0].keys, (Keys{1, 2}));
  EXPECT_EQ(c.rows()[1].keys, (Keys{0, 2}));
  c.params().causal = true;
  EXPECT_EQ(c.rows()[0].keys, (Keys{1}));
}

TEST(Oracle, MaskedKeysAreNeverRead) {
  SmallCall c(2, 4, 1, 1, 1, 1);
  c.q = {1, 1};
  c.k = {kNaN, kNaN, 1, 1};
  c.v = {kNaN, kNaN, 3, 5};
  c.set_mask(CustomMask::Kind::kBool, {0, 0, 1, 0, 0, 0, 1, 1});
  EXPECT_EQ(c.rows()[0].out[0], 3);
  // Two weights e^(1 - lse) of 1/2, lse = 1 + log(2) = 1.7: the logarithm of 0.7 is off by 2.8, the
  // sum by 1.7, the exponential by 4. Then a product and a sum.
  const double error = 4 * (2.8 + 1.7 + 4 + 2) * kUnit;
  EXPECT_LE(std::abs(c.rows()[1].out[0] - 4), error);
  // Seen by one row, hidden from the other: the other's result must not notice.
  c.set_mask(CustomMask::Kind::kBool, {0, 1, 1, 0, 0, 0, 1, 1});
  EXPECT_TRUE(std::isnan(c.rows()[0].out[0]));
  EXPECT_LE(std::abs(c.rows()[1].out[0] - 4), error);
}

TEST(Oracle, ScalesOfFp8KvApplyToKeysAndValues) {
  const uint8_t k[] = {0x38}, v[] = {0x40};  // e4m3: 1 and 2
  SmallCall c(1, 1, 1, 1, 1, 1);
  c.q = {3};
  c.call.k = ConstTensorView(k, DType::kE4M3, {1, 1, 1});
  c.call.v = ConstTensorView(v, DType::kE4M3, {1, 1, 1});
  c.call.k_scale = 0.5;
  c.call.v_scale = 4;
  EXPECT_EQ(c.rows()[0].lse, 1.5);
  EXPECT_EQ(c.rows()[0].out[0], 8);
}

TEST(Oracle, PagesAreReadThroughTheTable) {
  // Two pages of two tokens, used in the order 2, 0; page 1 is poison.
  std::vector<float> k = {0, 0, kNaN, kNaN, 0, 0}, v = {30, kNaN, kNaN, kNaN, 10, 20}, q = {1};
  const std::vector<int32_t> table = {2, 0}, seqlens = {3};
  PagedAttention call;
  call.q = ConstTensorView(q.data(), DType::kF32, {1, 1, 1});
  call.cache = KvCache::nhd(TensorView(k.data(), DType::kF32, {3, 2, 1, 1}),
                            TensorView(v.data(), DType::kF32, {3, 2, 1, 1}));
  call.pages = PageTable::dense(table, 2, seqlens);
  call.params = {.num_qo_heads = 1,
                 .num_kv_heads = 1,
                 .head_dim_qk = 1,
                 .head_dim_vo = 1,
                 .sm_scale = 1,
                 .sinks = {},
                 .custom_mask = {}};
  int rows = 0;
  for_each_row(call, [&](const OracleRow& row) {
    ++rows;
    EXPECT_EQ(row.out[0], 20);
    EXPECT_EQ(row.lse, std::log(3.0));
  });
  EXPECT_EQ(rows, 1);
}

TEST(Oracle, MergeOfEqualStatesIsTheMeanAndEmptyStatesDoNotCount) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> v = {2, 4, kNaN, kNaN, kNaN, kNaN}, s = {3, 3, -inf, inf, -inf, -inf};
  MergeStates<LseBase::kLog2> call;
  call.v = ConstTensorView(v.data(), DType::kF32, {2, 3, 1, 1});
  call.s = ConstTensorView(s.data(), DType::kF32, {2, 3, 1});
  std::vector<OracleRow> rows;
  for_each_row(call, [&](const OracleRow& row) { rows.push_back(row); });
  ASSERT_EQ(rows.size(), 2u);
  // Both logits are x = 3 log(2) = 2.1, off by 5 of it; lse = x + log(2) = 2.8 is off from it by
  // 2.8 of the logarithm and 2.8 of the sum. The weights of 1/2 have 4 of the exponential, their
  // products with 2 and 4 are exact, and the sum is one operation.
  const double lse = 2.8 + 2.8;
  EXPECT_LE(std::abs(rows[0].out[0] - 3), 3 * (lse + 4 + 1) * kUnit);
  EXPECT_LE(std::abs(rows[0].lse - 4 * std::log(2)), (5 * 2.1 + lse + 4 * 2.8) * kUnit);
  EXPECT_TRUE(rows[1].empty());
  EXPECT_EQ(rows[1].lse, -kInfinity);
}

}  // namespace
}  // namespace shadowgraph::oracle_test
