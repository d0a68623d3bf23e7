#include "bench/rounds.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shadowgraph::bench::rounds_test {
namespace {

TEST(Quartiles, LieBetweenNeighbours) {
  const Quartiles q = quartiles({4, 1, 3, 2});
  EXPECT_EQ(q.low, 1.75);
  EXPECT_EQ(q.median, 2.5);
  EXPECT_EQ(q.high, 3.25);
  EXPECT_EQ(median({5}), 5);
  EXPECT_TRUE(std::isnan(median({})));
}

ProbeFigures figures(double stream_read, double fma_peak) {
  ProbeFigures f;
  f[static_cast<size_t>(Probe::kStreamRead)] = stream_read;
  f[static_cast<size_t>(Probe::kFmaPeak)] = fma_peak;
  return f;
}

/// A machine on which round i (from 0) sees counters[i] more than the round before.
struct Machine {
  std::vector<Contention> growth;
  std::vector<double> stream_read;  // of round i; 30 where there is none
  size_t measured = 0, read = 0;
  Contention counted;

  Rounds run(RoundsOptions options, ProbeHistory& history) {
    return run_rounds(
        options, history,
        [&] {
          const size_t i = measured++;
          return Round{figures(i < stream_read.size() ? stream_read[i] : 30, 100),
                       {static_cast<double>(i)}};
        },
        [&] {
          // Read before and after every round: what grew, grew in it.
          if (read++ % 2 == 1 && measured <= growth.size()) {
            const Contention& g = growth[measured - 1];
            for (const auto& [thread, wait] : g.wait_ns) counted.wait_ns[thread] += wait;
            counted.steal_ticks += g.steal_ticks;
          }
          return counted;
        });
  }
  Rounds run(RoundsOptions options) {
    ProbeHistory history;
    return run(options, history);
  }
};

std::vector<double> first_seconds(const Rounds& rounds) {
  std::vector<double> all;
  for (const Round& r : rounds.rounds) all.push_back(r.seconds[0]);
  return all;
}

TEST(Rounds, AQuietMachineNeedsNoMoreThanWereAskedFor) {
  Machine machine;
  const Rounds rounds = machine.run({.rounds = 6, .most = 20});
  EXPECT_TRUE(rounds.quiet);
  EXPECT_EQ(machine.measured, 6u);
  EXPECT_EQ(first_seconds(rounds), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(rounds.rejected.empty());
}

TEST(Rounds, EveryKindOfContentionRejectsItsRoundAndIsCounted) {
  Machine machine;
  machine.growth = {{}, {.wait_ns = {{1, 1'000'000'000}}}, {.steal_ticks = 1}};
  const Rounds rounds = machine.run({.rounds = 5, .most = 20});
  EXPECT_TRUE(rounds.quiet);
  EXPECT_EQ(first_seconds(rounds), (std::vector<double>{0, 3, 4, 5, 6}));
  EXPECT_EQ(rounds.rejected.size(), 2u);
  for (const auto& [why, times] : rounds.rejected) EXPECT_EQ(times, 1) << why;
}

TEST(Rounds, AProbeFarBelowTheSessionsMedianRejectsItsRound) {
  Machine machine;
  machine.stream_read = {30, 31, 30, 29, 30, 25, 26};
  const Rounds rounds = machine.run({.rounds = 7, .most = 20});
  EXPECT_EQ(first_seconds(rounds), (std::vector<double>{0, 1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(rounds.rejected.size(), 1u);
}

TEST(Rounds, TheMedianIsTheSessionsNotTheRows) {
  ProbeHistory history;
  Machine first, second;
  first.run({.rounds = 6, .most = 6}, history);
  second.stream_read = {20, 30, 30, 30, 30, 30};
  EXPECT_EQ(second.run({.rounds = 5, .most = 9}, history).rejected.size(), 1u);
  // Other teams have other figures.
  Machine third;
  third.stream_read = {20, 20, 20, 20, 20};
  EXPECT_TRUE(third.run({.rounds = 5, .most = 9, .threads = 2}, history).rejected.empty());
}

TEST(Rounds, AMachineThatSettlesLowerIsBelievedInTheEnd) {
  Machine machine;
  machine.stream_read = {30, 30, 30, 30, 30};
  machine.stream_read.resize(40, 20);
  const Rounds rounds = machine.run({.rounds = 10, .most = 40});
  EXPECT_TRUE(rounds.quiet);
  EXPECT_EQ(rounds.rounds.size(), 10u);
}

TEST(Rounds, TooFewQuietRoundsAreSaidAndAllAreKept) {
  Machine machine;
  machine.growth.assign(10, {.steal_ticks = 3});
  machine.growth[2] = {};
  const Rounds rounds = machine.run({.rounds = 7, .most = 10});
  EXPECT_FALSE(rounds.quiet);
  EXPECT_EQ(rounds.rounds.size(), 10u);
  EXPECT_FALSE(Machine().run({.rounds = kEnoughRounds - 1, .most = 10}).quiet);
}

TEST(Rounds, StopEndsWithWhatThereIs) {
  const std::atomic<bool> stop = true;
  Machine machine;
  const Rounds rounds = machine.run({.rounds = 7, .most = 21, .threads = 1, .stop = &stop});
  EXPECT_TRUE(rounds.stopped);
  EXPECT_TRUE(rounds.rounds.empty());
  EXPECT_EQ(machine.measured, 0u);
}

}  // namespace
}  // namespace shadowgraph::bench::rounds_test
