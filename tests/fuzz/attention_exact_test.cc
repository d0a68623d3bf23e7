// Exact data names the foreign key, and one wrong bit is enough, where a kernel's arithmetic is
// exact.
#include "fuzz/call/attention_exact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>

#include "core/float_formats.h"
#include "fuzz/call/attention_laws.h"
#include "fuzz/small_attention.h"

namespace shadowgraph::attention_exact_test {
namespace {

struct Ran {
  AttentionCase x;
  AttentionData data;
  RowResults results;
  explicit Ran(const Case& c)
      : x(std::get<AttentionCase>(c.call)), data(make_attention_data(c)), results(c) {
    Laid laid(c);
    EXPECT_EQ(laid.scene.run().to_string(), "ok");
    laid.scene.collect(&results);
  }
  Status check() const {
    return check_exact(x, data, results, {*find_arithmetic("ours_portable")});
  }
  static constexpr size_t kBytes = 16 * sizeof(float);  // of a row and head
  std::byte* row(size_t row, size_t head) { return results.out[row].data() + head * kBytes; }
};

void expect_exact_finding(const Status& status, const std::string& part_of_got) {
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "num.exact");
  EXPECT_NE(status.findings()[0].got.find(part_of_got), std::string::npos) << status.to_string();
}

class Exact : public ::testing::TestWithParam<CaseData> {};

TEST_P(Exact, AcceptsWhatTheKernelsGive) {
  EXPECT_EQ(Ran(exact_case(GetParam())).check().to_string(), "ok");
}

TEST_P(Exact, NamesTheForeignKey) {
  Ran run(exact_case(GetParam()));
  // Query 1 of request 0 gets the value of request 1, key 13, KV head 1.
  std::memcpy(run.row(1, 2), run.data.requests[1].v.row(13, 1), Ran::kBytes);
  expect_exact_finding(run.check(), "the value of request 1 key 13");
  EXPECT_NE(run.check().findings()[0].where.field.find("request 0, query 1, head 2"),
            std::string::npos);
}

TEST_P(Exact, SeesNaN) {
  Ran run(exact_case(GetParam()));
  store_float(run.row(3, 1), DType::kF32, 7, std::numeric_limits<float>::quiet_NaN());
  expect_exact_finding(run.check(), "nan");
}

TEST_P(Exact, SeesEveryFlippedBit) {
  Ran run(exact_case(GetParam()));
  for (size_t bit = 0; bit < 32; ++bit) {
    std::byte& byte = run.row(4, 3)[bit / 8];
    byte ^= std::byte{1} << static_cast<int>(bit % 8);
    EXPECT_FALSE(run.check().ok()) << bit;
    byte ^= std::byte{1} << static_cast<int>(bit % 8);
  }
  EXPECT_TRUE(run.check().ok());
}

TEST_P(Exact, SeesARowThatWasNotWritten) {
  Ran run(exact_case(GetParam()));
  std::memset(run.row(0, 0), 0xff, Ran::kBytes);
  EXPECT_FALSE(run.check().ok());
}

INSTANTIATE_TEST_SUITE_P(Data, Exact,
                         ::testing::Values(CaseData::kUniform, CaseData::kSelector,
                                           CaseData::kShifted, CaseData::kHuge));

TEST(ExactUniform, SeesAWindowThatIsOneOff) {
  for (int32_t by : {-1, 1}) {
    Ran run(exact_case(CaseData::kUniform));
    run.x.window_left += by;
    EXPECT_FALSE(run.check().ok()) << by;
  }
}

TEST(ExactUniform, SeesAnotherAlignmentHeadOrSink) {
  Ran run(exact_case(CaseData::kUniform));
  const AttentionCase x = run.x;
  for (RequestData& r : run.data.requests) r.causal = false;
  EXPECT_FALSE(run.check().ok());
  for (RequestData& r : run.data.requests) r.causal = x.causal;
  run.x.num_kv_heads = 4, run.x.num_qo_heads = 4;
  run.x.num_kv_heads = 1;  // every query head reads KV head 0
  EXPECT_FALSE(run.check().ok());
  run.x = x, run.x.sinks = true, run.data.sinks = {0, 0, 0, 0};
  EXPECT_FALSE(run.check().ok());
  run.x = x;
  EXPECT_TRUE(run.check().ok());
}

TEST(ExactUniform, ARoundedDivisionMayBeAsFarOffAsItsRoundings) {
  AttentionCase x = small_attention();
  x.causal = false, x.window_left = -1;
  x.requests = {{1, 1, 3}, {1, 1, 4}};  // rows 0 and 1: a third is rounded, a fourth is not
  const KernelNumbers plain{*find_arithmetic("plain_f32")};
  for (const auto& [row, up, ok] : {std::tuple{0, 0x1p-23f, true},
                                    {0, 0x1p-19f, false},
                                    {1, 0x1p-23f, false},
                                    {1, 0.f, true}}) {
    Ran run(exact_case(CaseData::kUniform, x));
    for (int64_t i = 0; i < 16; ++i) {
      const float value = load_float(run.row(static_cast<size_t>(row), 0), DType::kF32, i);
      store_float(run.row(static_cast<size_t>(row), 0), DType::kF32, i, value * (1 + up));
    }
    EXPECT_EQ(check_exact(run.x, run.data, run.results, plain).ok(), ok) << row << " " << up;
    EXPECT_EQ(run.check().ok(), up == 0) << "ours divides exactly";
  }
}

TEST(ExactSelector, WeightsNearOneAreNotKnownToTheBit) {
  Ran run(exact_case(CaseData::kSelector));
  store_float(run.row(0, 0), DType::kF32, 0, 100);
  EXPECT_FALSE(check_exact(run.x, run.data, run.results, {*find_arithmetic("plain_f32")}).ok());
  // Its maximum is scaled apart from the scores; its parts are rounded.
  for (const char* name : {"fa2", "flashinfer_decode"})
    EXPECT_TRUE(check_exact(run.x, run.data, run.results, {*find_arithmetic(name)}).ok()) << name;
}

TEST(ExactShifted, ALogitHasASignAndASizeOfItsOwnInEachRow) {
  const AttentionCase x = small_attention();
  for (const CaseData kind : {CaseData::kShifted, CaseData::kHuge}) {
    Laid laid(exact_case(kind));
    EXPECT_EQ(laid.scene.run().to_string(), "ok");
    EXPECT_EQ(judge_attention(laid.x, laid.scene).to_string(), "ok");
    const auto& lse = laid.paged().lse.tensor;
    std::set<float> all;
    for (int64_t row = 0; row < 5; ++row)
      for (int64_t head = 0; head < x.num_qo_heads; ++head)
        all.insert(load_float(lse.data, DType::kF32, lse.offset(row, head)));
    EXPECT_GT(all.size(), 6u);
    EXPECT_LT(*all.begin(), -1000);
    EXPECT_GT(*all.rbegin(), 1000);
  }
}

TEST(ExactShifted, EveryTypeBearsLogitsFarFromZero) {
  using enum DType;
  for (const DType q : {kF32, kF16, kBF16}) {
    for (const DType kv : {kF32, kF16, kBF16, kE4M3, kE5M2, kI8}) {
      for (uint64_t seed = 0; seed < 100; ++seed) {
        AttentionCase x = small_attention();
        x.q_dtype = q, x.kv_dtype = kv;
        const Case c{seed % 2 ? CaseData::kShifted : CaseData::kHuge, seed, x};
        const AttentionData data = make_attention_data(c);
        const RequestData& d = data.requests[0];
        const float logit =
            d.q.value(0, 0, x.head_dim_qk - 1) * d.k.value(0, 0, x.head_dim_qk - 1) * x.sm_scale;
        EXPECT_GE(std::abs(logit), 500) << c.to_string();
        EXPECT_LT(std::abs(logit), 0x1p111F) << c.to_string();
        EXPECT_EQ(logit < 0, d.below[0] != 0);
      }
    }
  }
}

TEST(ExactShifted, ASinkOfZeroWeighsAllOrNothing) {
  AttentionCase x = small_attention();
  x.sinks = true;
  for (const CaseData kind : {CaseData::kShifted, CaseData::kHuge}) {
    Ran run(exact_case(kind, x));
    EXPECT_EQ(run.check().to_string(), "ok");
    run.data.sinks.assign(4, -std::numeric_limits<float>::infinity());
    EXPECT_FALSE(run.check().ok()) << "rows below 0 have the values of keys";
  }
}

}  // namespace
}  // namespace shadowgraph::attention_exact_test
