// Work that threads share is done once, by however many threads there are.
#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace shadowgraph::parallel_test {
namespace {

TEST(Parallel, EveryItemRunsOnce) {
  for (const int threads : {1, 2, 5}) {
    for (const int64_t count : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      parallel_for(count, threads, [&](int64_t item, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        ++runs[static_cast<size_t>(item)];
      });
      for (const auto& n : runs) EXPECT_EQ(n, 1);
    }
  }
}

TEST(Parallel, EachThreadOfATeamRunsOnceAndTogetherTheyDoItAll) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(threads)), runs(1000);
    std::atomic<size_t> next = 0;
    parallel_team(threads, [&](int thread) {
      ++calls.at(static_cast<size_t>(thread));
      for (size_t i; (i = next.fetch_add(1)) < runs.size();) ++runs[i];
    });
    EXPECT_EQ(calls[0], 1);
    for (const auto& n : calls) EXPECT_LE(n, 1);
    for (const auto& n : runs) EXPECT_EQ(n, 1);
  }
}

TEST(Parallel, ATeamIsNoLargerThanItsItemsOrTheLimit) {
  EXPECT_EQ(team_size(4, 3), 3);
  EXPECT_EQ(team_size(4, 0), 1);
  EXPECT_EQ(team_size(4, 100), 4);
  EXPECT_EQ(team_size(100000, 100000), kMostThreads);
  EXPECT_EQ(team_size(0, 100000), default_threads());
}

TEST(Parallel, InASerialScopeTheDefaultIsOneThreadAndWhatIsAskedForStays) {
  const int outside = default_threads();
  {
    const SerialScope serial;
    EXPECT_EQ(default_threads(), 1);
    EXPECT_EQ(team_size(0, 100), 1);
    EXPECT_EQ(team_size(4, 100), 4);
    { const SerialScope again; }
    EXPECT_EQ(default_threads(), 1);
    int elsewhere = 0;
    std::thread([&] { elsewhere = default_threads(); }).join();
    EXPECT_EQ(elsewhere, outside);
  }
  EXPECT_EQ(default_threads(), outside);
}

}  // namespace
}  // namespace shadowgraph::parallel_test
