#include "check/bounds/compare.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "oracle/small_call.h"

namespace shadowgraph::compare_test {
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
  Judgement judge_with(const Arithmetic& arithmetic, const JudgeOptions& options) const {
    const Result result{ConstTensorView(out.data(), DType::kF32, {3, 1, 1}),
                        ConstTensorView(lse.data(), DType::kF32, {3, 1})};
    return judge(call.call, result, arithmetic, options);
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
  EXPECT_EQ(finding.where, at("out", std::vector<int64_t>{2, 0, 0}));
  EXPECT_NE(finding.expected.find("15 +- "), std::string::npos) << finding.expected;
  EXPECT_NE(finding.got.find("2 of 2 judged values of out"), std::string::npos) << finding.got;
  EXPECT_TRUE(finding.got.starts_with("18 (")) << finding.got;
  EXPECT_GT(j.error_over_bound, 1);
}

TEST(Judge, EveryRowHasTheBoundOfItsOwnParts) {
  // Off by as much in two rows, of which one was merged from many parts.
  Fixture f;
  const auto errors = [&](std::vector<int32_t> parts) {
    JudgeOptions options;
    options.parts = std::move(parts);
    return f.judge_with(*find_arithmetic("ours_merged"), options).error_over_bound;
  };
  f.out[2] = std::nextafter(f.out[2], 100.f);
  const double whole = errors({1, 1, 1}), merged = errors({1, 1, 40});
  EXPECT_GT(whole, merged);
  EXPECT_GT(merged, 0);
  EXPECT_EQ(errors({1, 40, 1}), whole);
}

TEST(Judge, ExactDataHasNoOtherNeighbour) {
  Fixture f;
  JudgeOptions exact;
  exact.exact = true;
  const auto judged = [&] { return f.judge_with(*find_arithmetic("ours_portable"), exact); };
  EXPECT_TRUE(judged().findings.ok());
  f.lse[1] += 1;  // not judged
  EXPECT_TRUE(judged().findings.ok());
  f.out[2] = std::nextafter(f.out[2], 100.f);
  EXPECT_NE(finding_of(judged(), "num.bound"), nullptr);
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

/// Products that are no number of f32.
struct Unbounded {
  SmallCall call{1, 2, 1, 1, 1, 1};
  std::vector<float> out = {1}, lse = {1};
  Unbounded() {
    call.q = {1e20f};
    call.k = {1e19f, -1e19f};
    call.v = {1, 2};
  }
  Judgement judge_as(bool with_out, bool with_lse, const JudgeOptions& options = {}) const {
    Result result;
    if (with_out) result.out = ConstTensorView(out.data(), DType::kF32, {1, 1, 1});
    if (with_lse) result.lse = ConstTensorView(lse.data(), DType::kF32, {1, 1});
    return judge(call.call, result, *find_arithmetic("ours_portable"), options);
  }
};

TEST(Judge, AnInfiniteBoundAsksForANumber) {
  Unbounded f;
  EXPECT_TRUE(f.judge_as(true, false).findings.ok());
  for (float bad : {kNaN, kInf, -kInf}) {
    f.out = f.lse = {bad};
    EXPECT_NE(finding_of(f.judge_as(true, false), "num.bound"), nullptr) << bad;
    EXPECT_NE(finding_of(f.judge_as(false, true), "num.lse_bound"), nullptr) << bad;
  }
}

TEST(Judge, RowsWithoutABoundAreCounted) {
  const Unbounded f;
  EXPECT_EQ(f.judge_as(true, true).unbounded_rows, 1);
  EXPECT_EQ(f.judge_as(true, false).unbounded_rows, 1);
  EXPECT_EQ(f.judge_as(false, true).unbounded_rows, 1);
  EXPECT_EQ(f.judge_as(false, false).unbounded_rows, 0);
}

TEST(Judge, ARowWithoutABoundIsAFindingWhereAllMustHaveOne) {
  JudgeOptions options;
  options.bounded = true;
  const Judgement j = Unbounded().judge_as(true, true, options);
  ASSERT_NE(finding_of(j, "num.bound"), nullptr);
  EXPECT_EQ(finding_of(j, "num.bound")->got, "an infinite one for 1 rows");
  EXPECT_TRUE(Fixture().judge_as(options).findings.ok());
}

TEST(Judge, ARowThatBiasesMaskWhollyNeedsNoBound) {
  JudgeOptions options;
  options.bounded = true;
  const auto findings_with = [&](float first, float second) {
    Fixture f;
    const std::vector<float> bias = {first, second};
    f.call.params().terms.key_bias = bias;
    f.out = {0, 10, first < second ? 20.0F : 10.0F};
    return f.judge_as(options).findings.to_string();
  };
  const std::string unbounded = "an infinite one for ";
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  EXPECT_EQ(findings_with(-1e9F, -1e9F).find(unbounded), std::string::npos);
  EXPECT_EQ(findings_with(kLowest, kLowest).find(unbounded), std::string::npos);
  EXPECT_EQ(findings_with(-1e9F, 0).find(unbounded), std::string::npos);
  Unbounded f;
  const std::vector<float> some = {0, std::numeric_limits<float>::lowest()};
  f.call.params().terms.key_bias = some;
  EXPECT_NE(f.judge_as(true, true, options).findings.to_string().find(unbounded),
            std::string::npos);
}

TEST(Judge, ARowThatBiasesMaskIsJudgedByTheValuesItSees) {
  for (const float bias : {-1e4F, -5e4F, -1e9F, -1e30F}) {
    Fixture f;
    const std::vector<float> all = {bias, bias};
    f.call.params().terms.key_bias = all;
    EXPECT_EQ(f.judge_as({}).unbounded_rows, 0) << bias;
    f.out = {0, 1000, 1000};
    EXPECT_NE(finding_of(f.judge_as({}), "num.bound"), nullptr) << bias;
  }
}

TEST(Judge, AnInfinityIsWhatLiesPastTheLargestFinite) {
  // f16 ends at 65504, and 65520 rounds to infinity.
  Fixture f;
  const auto judge_f16 = [&](float value, uint16_t bits) {
    f.call.v = {value, value};
    const std::vector<uint16_t> out = {0, bits, bits};
    const Result result{ConstTensorView(out.data(), DType::kF16, {3, 1, 1}),
                        {},
                        LseBase::kNatural,
                        LseSink::kExcluded};
    return judge(f.call.call, result, *find_arithmetic("ours_portable"), {}).findings.ok();
  };
  constexpr uint16_t kLargest = 0x7bff, kInfinite = 0x7c00, kMinusInfinite = 0xfc00;
  EXPECT_TRUE(judge_f16(65504, kLargest));
  EXPECT_TRUE(judge_f16(65519, kLargest));
  EXPECT_TRUE(judge_f16(65519, kInfinite));  // a rounding away from it
  EXPECT_TRUE(judge_f16(1e6f, kInfinite));
  EXPECT_FALSE(judge_f16(1e6f, kLargest));
  EXPECT_FALSE(judge_f16(1e6f, kMinusInfinite));
  EXPECT_FALSE(judge_f16(60000, kInfinite));
  EXPECT_FALSE(judge_f16(-65519, kInfinite));
}

TEST(Judge, OnlyADecodeBatchIsSplit) {
  // A long row: split, its sums are shorter, and its bound is smaller.
  SmallCall c(1, 4096, 1, 1, 4, 1);
  for (size_t i = 0; i < c.v.size(); ++i) c.v[i] = static_cast<float>(i % 7) - 3;
  std::vector<int32_t> pages(4096 / 16), lens = {4096};
  std::iota(pages.begin(), pages.end(), 0);
  const TensorView k(c.k.data(), DType::kF32, {256, 16, 1, 4}),
      v(c.v.data(), DType::kF32, {256, 16, 1, 1});
  PagedAttention call;
  call.q = c.call.q;
  call.cache = KvCache::nhd(k, v);
  call.pages = PageTable::dense(pages, 256, lens);
  call.params = c.params();
  float sum = 0;
  for (float value : c.v) sum += value;
  const float out = sum / 4096 + 1e-3f;
  const Result result{
      ConstTensorView(&out, DType::kF32, {1, 1, 1}), {}, LseBase::kNatural, LseSink::kExcluded};
  const Arithmetic& ours = *find_arithmetic("ours_portable");
  const double decode = judge(call, result, ours, {}).error_over_bound;
  call.cu_seqlens_q = c.cu_seqlens_q;
  const double prefill = judge(call, result, ours, {}).error_over_bound;
  EXPECT_GT(decode, 4 * prefill);
  EXPECT_EQ(prefill, judge(c.call, result, ours, {}).error_over_bound);
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

TEST(Judge, AnExactRowWithoutKeysHasItsSinkWhereTheLseCountsIt) {
  Fixture f;
  f.call.set_sinks({0});
  f.out = {0, 5, 10};
  f.lse = {0, std::log(2.f), std::log(3.f)};
  JudgeOptions exact{"num.recorded", "num.recorded", true, "gpu."};
  exact.empty_mark.lse = -kInf;
  const auto judged = [&] {
    return f.judge_as(exact, LseBase::kNatural, LseSink::kIncluded).findings.ok();
  };
  EXPECT_TRUE(judged());
  for (const float mark : {kInf, -kInf, -5e4F, kNaN}) {
    f.lse[0] = mark;
    EXPECT_FALSE(judged()) << mark;
  }
}

TEST(Judge, NaNInAnEmptyRowIsANoteOnlyOfAKernelThatIsKnownForIt) {
  Fixture f;
  f.out[0] = kNaN;
  JudgeOptions recorded{"num.recorded", "num.recorded", true, "gpu."};
  EXPECT_NE(finding_of(f.judge_as(recorded), "num.recorded"), nullptr);
  recorded.empty_mark.nan_out = true;
  const Judgement j = f.judge_as(recorded);
  EXPECT_TRUE(j.findings.ok()) << j.findings.to_string();
  EXPECT_EQ(j.notes, std::vector<std::string>{"1 rows that see no key have out nan"});
  EXPECT_EQ(j.marked_rows, 1);
  EXPECT_FALSE(f.judge_as({}).findings.ok()) << "ours is 0";
}

TEST(Judge, AnEmptyRowMayHaveNothingButItsLse) {
  Fixture f;
  Result result{{},
                ConstTensorView(f.lse.data(), DType::kF32, {3, 1}),
                LseBase::kNatural,
                LseSink::kExcluded};
  const Arithmetic& ours = *find_arithmetic("ours_portable");
  Judgement j = judge(f.call.call, result, ours, {});
  EXPECT_TRUE(j.findings.ok()) << j.findings.to_string();
  EXPECT_EQ(j.empty_rows, 1);
  f.lse[0] = 0;
  j = judge(f.call.call, result, ours, {});
  ASSERT_NE(finding_of(j, "num.empty_row"), nullptr);
  EXPECT_EQ(finding_of(j, "num.empty_row")->where.field, "lse");
}

TEST(Judge, ExactlyJudgedAreRowsThatAKeyWins) {
  // The third row sees three keys alike: which one should it be?
  SmallCall c(3, 3, 1, 1, 1, 1);
  c.v = {1, 2, 3};
  c.params().causal = true;
  const JudgeOptions exact{.exact = true};
  const Arithmetic& ours = *find_arithmetic("ours_portable");
  std::vector<float> out = {1, 1.5f, 77}, lse = {5, 5, 5};
  Result result{ConstTensorView(out.data(), DType::kF32, {3, 1, 1}),
                ConstTensorView(lse.data(), DType::kF32, {3, 1}), LseBase::kNatural,
                LseSink::kExcluded};
  EXPECT_TRUE(judge(c.call, result, ours, exact).findings.ok());
  out[0] = 1.0000001f;
  const Judgement j = judge(c.call, result, ours, exact);
  ASSERT_NE(finding_of(j, "num.bound"), nullptr);
  EXPECT_EQ(finding_of(j, "num.bound")->where.row, 0);
  result.out = {};
  EXPECT_TRUE(judge(c.call, result, ours, exact).findings.ok()) << "LSEs are not judged";
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
}  // namespace shadowgraph::compare_test
