#include "bench/compare.h"

#include <gtest/gtest.h>

#include "bench/rounds.h"
#include "core/choices.h"

namespace shadowgraph::bench::compare_test {
namespace {

/// A quiet row whose quartiles lie `half` of the ratio around it.
BenchRow quiet(double ratio, double half = 0.01, bool at_most = false) {
  BenchRow r;
  r.shape = "row", r.of = at_most ? "self" : "stream_read";
  r.ratio = ratio, r.low = ratio * (1 - half), r.high = ratio * (1 + half);
  r.quiet = true, r.at_most = at_most;
  r.isa = "generic", r.arith = "portable", r.threads = 2, r.rounds = 7;
  return r;
}

Report report_of(const BenchRow& row) {
  Report r;
  r.verb = "bench", r.isa = "generic", r.arith = "portable", r.threads = 2, r.cases = 1;
  r.bench.emplace().machine = {{"cpu", "abacus"}};
  r.bench->rows = {row};
  return r;
}

std::string verdict(const BenchRow& was, const BenchRow& is) {
  return compare(report_of(was), report_of(is)).rows.at(0).verdict;
}

BenchRow slower(BenchRow r, double times) {
  for (auto* figure : {&r.ratio, &r.low, &r.high}) **figure *= times;
  return r;
}

TEST(Compare, ALossOfFivePercentIsFoundOnQuietRows) {
  for (const double half : {0.0, 0.005, 0.01, 0.014}) {
    EXPECT_EQ(verdict(quiet(0.8, half), slower(quiet(0.8, half), 0.95)), "lost") << half;
    EXPECT_EQ(verdict(quiet(1.1, half, true), slower(quiet(1.1, half, true), 1.05)), "lost");
    EXPECT_EQ(verdict(quiet(0.8, half), slower(quiet(0.8, half), 1.06)), "gained") << half;
    EXPECT_EQ(verdict(quiet(1.1, half, true), slower(quiet(1.1, half, true), 0.94)), "gained");
  }
}

TEST(Compare, TheSameRunIsTheSame) {
  EXPECT_EQ(verdict(quiet(0.8), quiet(0.8)), "same");
  EXPECT_EQ(verdict(quiet(1.1, 0.01, true), quiet(1.1, 0.01, true)), "same");
}

TEST(Compare, ARowLiesBeyondTheQuartilesAndTheNoiseBeforeItIsLost) {
  // The distance of the quartiles, and nothing else: half a percent to either side of the noise.
  EXPECT_EQ(verdict(quiet(1, 0), quiet(1 - kRunNoise - 0.005, 0)), "lost");
  EXPECT_EQ(verdict(quiet(1, 0), quiet(1 - kRunNoise + 0.005, 0)), "same");
  EXPECT_EQ(verdict(quiet(1, 0.01), quiet(1 - kRunNoise - 0.005, 0.01)), "same");
}

TEST(Compare, QuartilesThatHideALossAreNotTheSame) {
  EXPECT_EQ(verdict(quiet(0.8, 0.02), slower(quiet(0.8, 0.02), 0.95)), "wide");
  EXPECT_EQ(verdict(quiet(0.8, 0.02), quiet(0.8, 0.02)), "wide");
  EXPECT_EQ(verdict(quiet(0.8, 0.02), slower(quiet(0.8, 0.02), 0.9)), "lost");
}

TEST(Compare, EqualBuildsLoseNoRow) {
  // Seven rounds, each within 2 % of one ratio.
  Rng rng(1);
  const auto run = [&] {
    std::vector<double> ratios(7);
    for (double& ratio : ratios) ratio = 0.8 * (1 + 0.02 * rng.signed_unit());
    const Quartiles q = quartiles(ratios);
    BenchRow r = quiet(q.median);
    r.low = q.low, r.high = q.high;
    return r;
  };
  for (int i = 0; i < 1000; ++i) {
    const BenchRow was = run(), is = run();
    EXPECT_NE(verdict(was, is), "lost") << i;
    EXPECT_NE(verdict(was, is), "gained") << i;
  }
}

TEST(Compare, WhatIsNoFigureOrOfSomethingElseIsNotCompared) {
  const BenchRow row = quiet(0.8);
  BenchRow loud = row, missed = row, gone = row;
  loud.quiet = false, missed.void_reason = "none here", gone.shape = "another";
  const auto pair = [](const BenchRow& was, const BenchRow& is) {
    const BenchPair p = compare(report_of(was), report_of(is)).rows.at(0);
    EXPECT_EQ(p.verdict, "not compared");
    return p.why;
  };
  EXPECT_EQ(pair(loud, row), "old is not quiet");
  EXPECT_EQ(pair(row, loud), "new is not quiet");
  EXPECT_EQ(pair(missed, row), "old is void");
  EXPECT_EQ(pair(row, missed), "new is void");
  EXPECT_EQ(pair(gone, row), "not in the older run");
  BenchRow other = row;
  other.of = "fma_peak";
  EXPECT_EQ(pair(row, other), "of stream_read, now fma_peak");
  other = row, other.threads = 1;
  EXPECT_EQ(pair(row, other), "threads 2, now 1");
  other = row, other.isa = "avx2";
  EXPECT_EQ(pair(row, other), "isa generic, now avx2");
  other = row, other.arith = "fast";
  EXPECT_EQ(pair(row, other), "arith portable, now fast");
  other = row, other.at_most = true;
  EXPECT_EQ(pair(row, other), "the goal has another side");
}

TEST(Compare, ALostRowIsAFindingWithBothFigures) {
  Report is = report_of(slower(quiet(0.8), 0.9));
  compare_with(report_of(quiet(0.8)), "old.json", &is);
  EXPECT_EQ(is.exit_code(), 1);
  ASSERT_EQ(is.findings.size(), 1u);
  EXPECT_EQ(is.findings[0].id, "bench.lost");
  EXPECT_EQ(is.findings[0].case_id, "bench row");
  EXPECT_EQ(is.findings[0].expected, "0.800 (0.792..0.808), as in old.json");
  EXPECT_EQ(is.findings[0].got, "0.720 (0.713..0.727)");
  EXPECT_EQ(is.findings[0].reproduce, "shadowgraph bench --rows row --against old.json");
  EXPECT_TRUE(is.warnings.empty());
  Report same = report_of(quiet(0.8));
  compare_with(report_of(quiet(0.8)), "old.json", &same);
  EXPECT_EQ(same.exit_code(), 0);
}

TEST(Compare, AnotherMachineOrOptionIsSaidAndNoRowInCommonProvesNothing) {
  Report was = report_of(quiet(0.8)), is = report_of(quiet(0.8));
  was.bench->machine[0].second = "slide rule";
  was.threads = 1, was.arith = "fast", was.isa = "avx2", was.seed = 7;
  was.bench->rows[0].shape = "another";
  compare_with(was, "old.json", &is);
  EXPECT_EQ(is.exit_code(), 3);
  EXPECT_EQ(is.void_verdict, "nothing was compared");
  EXPECT_EQ(is.warnings, (std::vector<std::string>{
                             "the older run differs: cpu: slide rule, now abacus",
                             "the older run differs: threads: 1, now 2",
                             "the older run differs: isa: avx2, now generic",
                             "the older run differs: arith: fast, now portable",
                             "the older run differs: seed: 7, now 0",
                             "nothing was compared: no row has a quiet figure in both runs"}));
}

}  // namespace
}  // namespace shadowgraph::bench::compare_test
