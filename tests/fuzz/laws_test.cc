// The ladder sees planted slips: exact data names the foreign key, and one wrong bit is enough.
#include "fuzz/laws.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/float_formats.h"
#include "fuzz/arrange.h"
#include "fuzz/exact.h"
#include "fuzz/guarded.h"

namespace shadowgraph {
namespace {

Case exact_case(CaseData data) {
  Case x;
  x.kernel = CaseKernel::kPrefillPaged;
  x.data = data;
  x.seed = 5;
  x.requests = {{38, 2, 40}, {17, 3, 20}};
  x.num_qo_heads = 4;
  x.num_kv_heads = 2;
  x.page_size = 4;
  x.causal = true;
  x.window_left = 9;
  return x;
}

struct Ran {
  Case x;
  LogicalData data;
  RowResults results;
  explicit Ran(const Case& c) : x(c), data(make_data(x)), results(x) {
    ArrangedCall call(x, data, Arrangement::of(x));
    EXPECT_EQ(call.run().to_string(), "ok");
    call.collect(&results);
  }
  Status check() const { return check_exact(x, data, results); }
  std::byte* row(int64_t row, int64_t head) {
    return results.out.data() + (row * results.heads + head) * results.row_bytes;
  }
};

void expect_exact_finding(const Status& status, const std::string& part_of_got) {
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "num.exact");
  EXPECT_NE(status.findings()[0].got.find(part_of_got), std::string::npos) << status.to_string();
}

class Exact : public testing::TestWithParam<CaseData> {};

TEST_P(Exact, AcceptsWhatTheKernelsGive) {
  EXPECT_EQ(Ran(exact_case(GetParam())).check().to_string(), "ok");
}

TEST_P(Exact, NamesTheForeignKey) {
  Ran run(exact_case(GetParam()));
  // Query 1 of request 0 gets the value of request 1, key 13, KV head 1.
  std::memcpy(run.row(1, 2), run.data.requests[1].v.row(13, 1),
              static_cast<size_t>(run.results.row_bytes));
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
  std::memset(run.row(0, 0), 0xff, static_cast<size_t>(run.results.row_bytes));
  EXPECT_FALSE(run.check().ok());
}

INSTANTIATE_TEST_SUITE_P(Data, Exact, testing::Values(CaseData::kUniform, CaseData::kSelector));

TEST(ExactUniform, SeesAWindowThatIsOneOff) {
  for (int32_t by : {-1, 1}) {
    Ran run(exact_case(CaseData::kUniform));
    run.x.window_left += by;
    EXPECT_FALSE(run.check().ok()) << by;
  }
}

TEST(ExactUniform, SeesAnotherAlignmentHeadOrSink) {
  Ran run(exact_case(CaseData::kUniform));
  const Case x = run.x;
  run.x.causal = false;
  EXPECT_FALSE(run.check().ok());
  run.x = x, run.x.num_kv_heads = 4, run.x.num_qo_heads = 4;
  run.x.num_kv_heads = 1;  // every query head reads KV head 0
  EXPECT_FALSE(run.check().ok());
  run.x = x, run.x.sinks = true, run.data.sinks = {0, 0, 0, 0};
  EXPECT_FALSE(run.check().ok());
  run.x = x;
  EXPECT_TRUE(run.check().ok());
}

TEST(CheckCase, AcceptsEveryKind) {
  for (const CaseKernel kernel :
       {CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged, CaseKernel::kPrefillRagged}) {
    for (const CaseData data :
         {CaseData::kUniform, CaseData::kSelector, CaseData::kRandom, CaseData::kPeaked}) {
      Case x = exact_case(data);
      x.kernel = kernel;
      if (kernel == CaseKernel::kDecodePaged) x.requests = {{39, 1, 40}, {0, 1, 1}};
      EXPECT_EQ(check_case(x, RunOptions()).to_string(), "ok") << x.to_string();
    }
  }
}

TEST(CheckCase, ReportsARefusedCall) {
  Case x = exact_case(CaseData::kRandom);
  x.sm_scale = 0;
  const Status status = check_case(x, RunOptions());
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "param.scale");
}

TEST(MakeData, IsAFunctionOfTheCase) {
  const Case x = exact_case(CaseData::kRandom);
  const LogicalData a = make_data(x), b = make_data(x);
  Case other = x;
  other.seed = 6;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a.requests[i].q.bytes, b.requests[i].q.bytes);
    EXPECT_EQ(a.requests[i].k.bytes, b.requests[i].k.bytes);
    EXPECT_EQ(a.requests[i].v.bytes, b.requests[i].v.bytes);
    EXPECT_NE(a.requests[i].v.bytes, make_data(other).requests[i].v.bytes);
  }
}

TEST(MakeData, MarksTheKeysThatSomeQuerySees) {
  Case x = exact_case(CaseData::kUniform);
  const LogicalData data = make_data(x);
  // Request 0: queries at 38 and 39, a window of 9 before them.
  for (size_t k = 0; k < 40; ++k) EXPECT_EQ(data.requests[0].visible[k] != 0, k >= 29) << k;
}

TEST(GuardedBuffer, NoticesAnyByte) {
  for (int64_t skew : {0, 4, 7}) {
    GuardedBuffer b(10, skew);
    EXPECT_TRUE(b.untouched());
    const uint64_t before = b.fingerprint();
    for (int64_t i : {-64, -1, 0, 9, 10, 73}) {
      b.data()[i] = std::byte{0xfe};
      EXPECT_FALSE(b.untouched()) << i;
      EXPECT_NE(b.fingerprint(), before) << i;
      b.data()[i] = kPoison;
    }
    EXPECT_TRUE(b.untouched());
    EXPECT_EQ(b.fingerprint(), before);
    EXPECT_EQ((reinterpret_cast<uintptr_t>(b.data()) - static_cast<uintptr_t>(skew)) % 64, 0u);
  }
}

}  // namespace
}  // namespace shadowgraph
