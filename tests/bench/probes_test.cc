#include "bench/probes.h"

#include <gtest/gtest.h>

#include "bench/team.h"

namespace shadowgraph::bench::probes_test {
namespace {

constexpr auto at(Probe p) { return static_cast<size_t>(p); }

/// What two threads of a machine in order measure.
struct Healthy {
  ProbeFigures figures;
  ProbeFacts facts;

  Healthy() {
    figures[at(Probe::kStreamRead)] = 33e9;
    figures[at(Probe::kPageGather)] = 30e9;
    figures[at(Probe::kFmaPeak)] = 230e9;
    figures[at(Probe::kBf16Peak)] = 460e9;
    facts.threads = 2;
    facts.huge_page_share = 1;
    facts.fma_per_clock = 0.99;
    for (const Probe p : {Probe::kFmaPeak, Probe::kBf16Peak}) {
      facts.choices[at(p)].best = 1;
      facts.choices[at(p)].second = 0.99;
    }
  }
  std::string below(Probe p) const { return below_floor(p, figures, facts); }
};

TEST(Floors, AMachineInOrderIsAboveThem) {
  for (const Probe p : kAllProbes) EXPECT_EQ(Healthy().below(p), "") << name_of(p);
}

TEST(Floors, GatherMustReachFourFifthsOfTheStreamOnTwoThreads) {
  Healthy m;
  m.figures[at(Probe::kPageGather)] = 0.79 * 33e9;
  EXPECT_NE(m.below(Probe::kPageGather), "");
  EXPECT_EQ(m.below(Probe::kStreamRead), "");
  m.facts.threads = 1;
  EXPECT_EQ(m.below(Probe::kPageGather), "");
  m.figures[at(Probe::kPageGather)] = 0.51 * 33e9;
  EXPECT_EQ(m.below(Probe::kPageGather), "");
  m.figures[at(Probe::kPageGather)] = 0.49 * 33e9;
  EXPECT_NE(m.below(Probe::kPageGather), "");
}

TEST(Floors, AStreamMustBeInHugePages) {
  Healthy m;
  m.facts.huge_page_share = 0.89;
  EXPECT_NE(m.below(Probe::kStreamRead), "");
  EXPECT_NE(m.below(Probe::kStreamUpdate), "");
}

TEST(Floors, APeakIsAWholeNumberOfOperationsAClockThatTwoUnrollsReach) {
  for (const double per_clock : {0.9, 1.5, 0.5, 1.2, 1.4, 1.06, 1.89, 2.11}) {
    Healthy m;
    m.facts.fma_per_clock = per_clock;
    EXPECT_NE(m.below(Probe::kFmaPeak), "") << per_clock;
  }
  for (const double per_clock : {0.0, 0.96, 1.0, 1.04, 1.91, 2.0, 2.09}) {
    Healthy m;
    m.facts.fma_per_clock = per_clock;
    EXPECT_EQ(m.below(Probe::kFmaPeak), "") << per_clock;
  }
  for (const Probe p : {Probe::kFmaPeak, Probe::kBf16Peak}) {
    Healthy m;
    m.facts.choices[at(p)].second = 0.94;
    EXPECT_NE(m.below(p), "");
    m.facts.choices[at(p)].second = 0.96;
    EXPECT_EQ(m.below(p), "");
  }
}

TEST(Floors, APeakOfTheseRoundsIsNearTheBestThatWasSeen) {
  for (const Probe p : {Probe::kFmaPeak, Probe::kBf16Peak}) {
    Healthy m;
    m.facts.choices[at(p)].best = m.facts.choices[at(p)].second = *m.figures[at(p)] / 0.89;
    EXPECT_NE(m.below(p), "");
    m.facts.choices[at(p)].best = m.facts.choices[at(p)].second = *m.figures[at(p)] / 0.91;
    EXPECT_EQ(m.below(p), "");
  }
}

TEST(Floors, BytesThatSomeCacheMayHoldAreNoLimit) {
  Healthy m;
  m.facts.cold_share = 0.9;
  for (const Probe p : kAllProbes) EXPECT_EQ(m.below(p).empty(), !counts_bytes(p)) << name_of(p);
}

TEST(Floors, ADotProductIsAWholeNumberOfOperationsInTwoClocks) {
  for (const double per_clock : {0.25, 0.45, 0.7, 0.75, 0.9, 1.2}) {
    Healthy m;
    m.facts.dot_per_clock = per_clock;
    EXPECT_NE(m.below(Probe::kBf16Peak), "") << per_clock;
  }
  for (const double per_clock : {0.0, 0.48, 0.5, 0.52, 0.96, 1.0, 1.04, 2.0}) {
    Healthy m;
    m.facts.dot_per_clock = per_clock;
    EXPECT_EQ(m.below(Probe::kBf16Peak), "") << per_clock;
  }
}

TEST(Limits, OfMemoryIsTheBetterOfStreamAndGather) {
  Healthy m;
  EXPECT_EQ(limit_of(Probe::kStreamRead, m.figures), 33e9);
  EXPECT_EQ(limit_of(Probe::kPageGather, m.figures), 30e9);
  m.figures[at(Probe::kPageGather)] = 40e9;
  EXPECT_EQ(limit_of(Probe::kStreamRead, m.figures), 40e9);
  EXPECT_EQ(limit_below_floor(Probe::kStreamRead, m.figures, m.facts), "");
  // A gather that is no limit by itself changes nothing where the stream is the better.
  m.figures[at(Probe::kPageGather)] = 20e9;
  EXPECT_NE(m.below(Probe::kPageGather), "");
  EXPECT_EQ(limit_below_floor(Probe::kStreamRead, m.figures, m.facts), "");
  m.facts.huge_page_share = 0.5;
  EXPECT_NE(limit_below_floor(Probe::kStreamRead, m.figures, m.facts), "");
}

TEST(Limits, OfFastArithmeticAreTheBetterOfDotAndMultiplyAdd) {
  Healthy m;
  EXPECT_EQ(limit_of(Probe::kBf16Peak, m.figures), 460e9);
  EXPECT_EQ(limit_of(Probe::kFmaPeak, m.figures), 230e9);
  // A dot product at half the rate.
  m.figures[at(Probe::kBf16Peak)] = 115e9, m.facts.dot_per_clock = 0.5;
  EXPECT_EQ(limit_of(Probe::kBf16Peak, m.figures), 230e9);
  EXPECT_EQ(limit_below_floor(Probe::kBf16Peak, m.figures, m.facts), "");
  m.facts.fma_per_clock = 1.5;
  EXPECT_NE(limit_below_floor(Probe::kBf16Peak, m.figures, m.facts), "");
  // None at all.
  m.facts.fma_per_clock = 1;
  m.figures[at(Probe::kBf16Peak)].reset();
  m.facts.choices[at(Probe::kBf16Peak)].absent = "none here";
  EXPECT_EQ(limit_of(Probe::kBf16Peak, m.figures), 230e9);
  EXPECT_EQ(limit_below_floor(Probe::kBf16Peak, m.figures, m.facts), "");
  m.figures[at(Probe::kFmaPeak)].reset();
  EXPECT_FALSE(limit_of(Probe::kBf16Peak, m.figures));
  EXPECT_EQ(limit_below_floor(Probe::kBf16Peak, m.figures, m.facts), "none here");
}

TEST(Limits, OfFastArithmeticAreTilesWhereThereAreAny) {
  Healthy m;
  m.figures[at(Probe::kAmxPeak)] = 2000e9, m.facts.choices[at(Probe::kAmxPeak)].absent = "";
  EXPECT_EQ(limit_of(Probe::kBf16Peak, m.figures), 2000e9);
  EXPECT_EQ(limit_of(Probe::kFmaPeak, m.figures), 230e9);
  m.facts.dot_per_clock = 0.8;
  EXPECT_EQ(limit_below_floor(Probe::kBf16Peak, m.figures, m.facts), "");
}

TEST(Limits, ADisturbedDotProductIsNotReplacedBySlowerArithmetic) {
  Healthy m;
  m.facts.dot_per_clock = 0.8;
  EXPECT_NE(limit_below_floor(Probe::kBf16Peak, m.figures, m.facts), "");
}

TEST(Floors, WhatAProcessorDoesNotHaveIsSaid) {
  Healthy m;
  m.facts.choices[at(Probe::kBf16Peak)].absent = "this processor has no bf16 dot product";
  EXPECT_EQ(m.below(Probe::kBf16Peak), "this processor has no bf16 dot product");
}

TEST(Probes, MeasureWhatTheProcessorHas) {
  Probes probes(1, 1, int64_t{8} << 20);
  const ProbeFacts& facts = probes.facts(1);
  const ProbeFigures figures = probes.measure(1);
  for (const Probe p : kAllProbes) {
    SCOPED_TRACE(name_of(p));
    const ProbeChoice& choice = facts.choices[at(p)];
    EXPECT_EQ(figures[at(p)].has_value(), choice.absent.empty());
    EXPECT_NE(choice.variant.empty(), choice.absent.empty());
    EXPECT_TRUE(!figures[at(p)] || *figures[at(p)] > 0);
    EXPECT_GE(choice.best, choice.second);
  }
}

TEST(Team, EveryThreadRunsOnceAndTheTimeCoversTheSlowest) {
  std::array<int, 2> ran{};
  const double seconds = time_team(2, [&](int thread) {
    ++ran[static_cast<size_t>(thread)];
    const double end = now() + (thread == 0 ? 0.02 : 0);
    while (now() < end) continue;
  });
  EXPECT_EQ(ran[0], 1);
  EXPECT_LE(ran[1], 1);  // without OpenMP there is one thread
  EXPECT_GE(seconds, 0.02);
}

TEST(Team, EveryCpuIsListedOnce) {
  std::vector<int> sorted = cpus();
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
  EXPECT_GE(num_cores(), 1);
  EXPECT_LE(num_cores(), static_cast<int>(sorted.size()));
}

}  // namespace
}  // namespace shadowgraph::bench::probes_test
