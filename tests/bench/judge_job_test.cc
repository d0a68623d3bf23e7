#include "bench/judge_job.h"

#include <gtest/gtest.h>

#include "bench/run_rows.h"
#include "bench/team.h"

namespace shadowgraph::bench::judge_job_test {
namespace {

TEST(JudgeJobs, FindNothingAndCountWhatTheyJudge) {
  for (const Row& row : rows()) {
    if (!row.shape.judges()) continue;
    SCOPED_TRACE(row.id);
    ASSERT_EQ(missing_job(row.shape.judging), "");
    const auto job = make_job(row.shape.judging, 1);
    EXPECT_EQ(job->run().to_string(), "ok");
    EXPECT_GE(job->items(), 1);
    EXPECT_EQ(row.shape.threads, 1);
  }
}

TEST(JudgeJobs, AFigureIsOfOneItem) {
  BenchReport report;
  const Row row{"steps", judge(Judging::kSteps), {.measure = Measure::kMicros}, "steps"};
  EXPECT_TRUE(Bench({.rounds = 1}).run(row, &report).ok());
  const BenchRow& out = report.rows.at(0);
  ASSERT_TRUE(out.ratio && out.ms);
  // One round: the median is its figure, in microseconds and in milliseconds.
  EXPECT_DOUBLE_EQ(*out.ratio, *out.ms * 1e3);
  // All steps take longer than two of them, whatever the machine.
  const auto job = make_job(Judging::kSteps, 1);
  EXPECT_EQ(job->items(), 8 + 64 + 512);
  EXPECT_TRUE(job->run().ok());
  const double start = now();
  EXPECT_TRUE(job->run().ok());
  EXPECT_GT(now() - start, 2e-3 * *out.ms);
  EXPECT_FALSE(out.gbps || out.gflops);
  EXPECT_TRUE(out.at_most);
  EXPECT_EQ(out.of, "microseconds");
}

TEST(JudgeJobs, ThreadsThatWaitForEachOtherDisturbNoRound) {
  EXPECT_TRUE(make_job(Judging::kCalls, 1)->is_crowded());
  EXPECT_FALSE(make_job(Judging::kSteps, 1)->is_crowded());
  const Contention c = contention_of_others();
  EXPECT_TRUE(c.wait_ns.empty());
  EXPECT_EQ(c.involuntary_switches, 0);
  // The hypervisor's part is counted on.
  EXPECT_GE(c.steal_ticks, 0);
  EXPECT_NE(disturbance({}, {.steal_ticks = 1}, 1), "");
}

TEST(JudgeJobs, RatesAndTimesAreOfAnItem) {
  const auto ratio = [](Measure measure) {
    return *ratio_of({"row", judge(Judging::kSteps), {.measure = measure}, ""}, {}, {0.25});
  };
  EXPECT_EQ(ratio(Measure::kItems), 4);
  EXPECT_EQ(ratio(Measure::kMicros), 0.25e6);
}

}  // namespace
}  // namespace shadowgraph::bench::judge_job_test
