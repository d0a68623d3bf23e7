#include "bench/merge_problem.h"

#include <gtest/gtest.h>

#include "core/float_formats.h"

namespace shadowgraph::bench::merge_problem_test {
namespace {

TEST(MergeProblem, HasTheOraclesResult) {
  for (const DType t : {DType::kF32, DType::kBF16}) {
    MergeProblem problem(merge_of(t, 40), 1, 2);
    ASSERT_EQ(problem.run().to_string(), "ok");
    EXPECT_EQ(problem.check().to_string(), "ok");
    EXPECT_EQ(problem.threads(), 2);
  }
}

TEST(MergeProblem, AWrongElementOfARowThatIsJudgedIsSeen) {
  for (const int64_t row : {0, 20, 39}) {
    MergeProblem problem(merge_of(DType::kBF16, 40), 1, 1);
    ASSERT_EQ(problem.run().to_string(), "ok");
    store_float(problem.call().out.at(row, 31, 127), DType::kBF16, 0, 2);
    EXPECT_EQ(problem.check().findings().size(), 1U) << row;
  }
}

TEST(MergeProblem, CountsWhatIsReadAndWritten) {
  EXPECT_EQ(kv_bytes_of(merge_of(DType::kBF16, 10)), 3 * 10 * 32 * (128 * 2 + 4));
  EXPECT_EQ(flop_of(merge_of(DType::kBF16, 10)), 0);
}

}  // namespace
}  // namespace shadowgraph::bench::merge_problem_test
