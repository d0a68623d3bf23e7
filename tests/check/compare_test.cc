#include "check/compare.h"

#include <gtest/gtest.h>

#include <limits>

#include "oracle/small_call.h"

namespace shadowgraph {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Three causal rows over two keys with equal weights: row 0 sees none, row 1 one, row 2 both.
struct Fixture {
  SmallCall call{3, 2, 1, 1, 1, 1};
  std::vector<float> out = {0, 10, 15}, lse = {-kInf, 0, std::log(2.f)};

  Fixture() {
    call.v = {10, 20};
    call.params().causal = true;
  }
  Judgement judge_as(const JudgeOptions& options, LseBase base = LseBase::kNatural,
                     LseSink sink = LseSink::kExcluded) const {
    const Result result{ConstTensorView(out.data(), DType::kF32, {3, 1, 1}),
                        ConstTensorView(lse.data(), DType::kF32, {3, 1}), base, sink};
    return judge(call.call, result, *find_arithmetic("ours_portable"), options);
  }
};

const Finding* finding_of(const Judgement& j, std::string_view id) {
  for (const Finding& f : j.findings.findings()) {
    if (f.id == id) return &f;
  }
  return nullptr;
}

TEST(Judge, AcceptsTheRightAnswer) {
  const Judgement j = Fixture().judge_as({});
  EXPECT_TRUE(j.findings.ok()) << j.findings.to_string();
  EXPECT_LE(j.error_over_bound, 1);
  EXPECT_EQ(j.rows, 3);
  EXPECT_EQ(j.empty_rows, 1);
  EXPECT_EQ(j.unbounded_rows, 0);
}

TEST(Judge, NamesTheWorstElementAndCountsTheRest) {
  Fixture f;
  f.out[1] = 10.1f;
  f.out[2] = 18;
  const Judgement j = f.judge_as({});
  ASSERT_EQ(j.findings.findings().size(), 1u);
  const Finding& finding = j.findings.findings()[0];
  EXPECT_EQ(finding.id, "num.bound");
  EXPECT_EQ(finding.where, at("out", 2, 0));
  EXPECT_NE(finding.expected.find("15 +- "), std::string::npos) << finding.expected;
  EXPECT_NE(finding.got.find("2 of 2 values"), std::string::npos) << finding.got;
  EXPECT_GT(j.error_over_bound, 1);
}

TEST(Judge, NanIsFoundWhereANumberBelongs) {
  Fixture f;
  f.out[2] = kNaN;
  f.lse[1] = kInf;
  const Judgement j = f.judge_as({});
  EXPECT_NE(finding_of(j, "num.bound"), nullptr);
  EXPECT_NE(finding_of(j, "num.lse_bound"), nullptr);
  EXPECT_EQ(j.error_over_bound, std::numeric_limits<double>::infinity());
}

TEST(Judge, NanBelongsWhereAnInputIsNan) {
  Fixture f;
  f.call.v[1] = kNaN;
  f.out[2] = kNaN;
  EXPECT_TRUE(f.judge_as({}).findings.ok());
  f.out[2] = 15;
  EXPECT_NE(finding_of(f.judge_as({}), "num.bound"), nullptr);
}

TEST(Judge, LseOfAnotherBaseIsFound) {
  Fixture f;
  EXPECT_NE(finding_of(f.judge_as({}, LseBase::kLog2), "num.lse_bound"), nullptr);
  f.lse = {-kInf, 0, 1};
  EXPECT_TRUE(f.judge_as({}, LseBase::kLog2).findings.ok());
  EXPECT_NE(finding_of(f.judge_as({}), "num.lse_bound"), nullptr);
}

TEST(Judge, SinkConventionOfTheLseIsKept) {
  Fixture f;
  f.call.set_sinks({0});
  f.out = {0, 5, 10};
  EXPECT_TRUE(f.judge_as({}).findings.ok());
  EXPECT_FALSE(f.judge_as({}, LseBase::kNatural, LseSink::kIncluded).findings.ok());
  f.lse = {0, std::log(2.f), std::log(3.f)};
  EXPECT_TRUE(f.judge_as({}, LseBase::kNatural, LseSink::kIncluded).findings.ok());
}

TEST(Judge, EmptyRowHasOutZeroAndLseMinusInfinity) {
  Fixture f;
  f.out[0] = 1e-30f;
  EXPECT_NE(finding_of(f.judge_as({}), "num.empty_row"), nullptr);
  f.out[0] = 0;
  f.lse[0] = kInf;
  const Judgement j = f.judge_as({});
  ASSERT_NE(finding_of(j, "num.empty_row"), nullptr);
  EXPECT_EQ(finding_of(j, "num.empty_row")->where.field, "lse");
}

TEST(Judge, RecordedMarkOfEmptyRowsIsANote) {
  for (float mark : {kInf, -5e4f, kNaN}) {
    Fixture f;
    f.lse[0] = mark;
    const Judgement j = f.judge_as({"num.recorded", "num.recorded", true, "gpu."});
    EXPECT_TRUE(j.findings.ok()) << j.findings.to_string();
    ASSERT_EQ(j.notes.size(), 1u);
    EXPECT_NE(j.notes[0].find("1 rows that see no key"), std::string::npos) << j.notes[0];
  }
}

TEST(Judge, RecordedEmptyRowThatSawAKeyIsAFinding) {
  Fixture f;
  f.out[0] = 10;
  f.lse[0] = 0;
  const Judgement j = f.judge_as({"num.recorded", "num.recorded", true, "gpu."});
  ASSERT_NE(finding_of(j, "num.recorded"), nullptr);
  EXPECT_EQ(finding_of(j, "num.recorded")->where.field, "gpu.out");
}

TEST(Judge, MergesAreJudgedInTheirOwnBase) {
  // Two states of mass 1 and 3.
  std::vector<float> v = {1, 5}, s = {0, std::log(3.f)}, out = {4}, lse = {std::log(4.f)};
  MergeStates<LseBase::kNatural> call;
  call.v = ConstTensorView(v.data(), DType::kF32, {1, 2, 1, 1});
  call.s = ConstTensorView(s.data(), DType::kF32, {1, 2, 1});
  const Result result{ConstTensorView(out.data(), DType::kF32, {1, 1, 1}),
                      ConstTensorView(lse.data(), DType::kF32, {1, 1}), LseBase::kNatural,
                      LseSink::kExcluded};
  const Arithmetic& ours = *find_arithmetic("ours_portable");
  EXPECT_TRUE(judge(call, result, ours, {}).findings.ok());
  out[0] = 4.001f;
  EXPECT_FALSE(judge(call, result, ours, {}).findings.ok());
}

}  // namespace
}  // namespace shadowgraph
