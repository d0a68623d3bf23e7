// Judgements are counted by the thread that asks for it, and where it asks.
#include "core/law_counts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace shadowgraph::law_counts_test {
namespace {

int64_t total(const LawCounts& counts) {
  return std::accumulate(counts.all().begin(), counts.all().end(), int64_t{0});
}

TEST(LawCounts, AreOfTheInnermostThatCounts) {
  LawCounts outer, inner;
  judged("len.total");
  {
    const CountsJudgements counts(&outer);
    judged("len.total");
    {
      const CountsJudgements more(&inner);
      judged("len.total", 3);
    }
    judged("mem.leak");
  }
  judged("mem.leak");
  EXPECT_EQ(outer.of("len.total"), 1);
  EXPECT_EQ(outer.of("mem.leak"), 1);
  EXPECT_EQ(inner.of("len.total"), 3);
  EXPECT_EQ(total(outer) + total(inner), 5);
}

TEST(LawCounts, AnotherThreadCountsNothingHere) {
  LawCounts counts;
  const CountsJudgements here(&counts);
  std::thread([] { judged("len.total"); }).join();
  EXPECT_EQ(total(counts), 0);
}

TEST(LawCounts, OfSeveralThreadsAreTakenOnce) {
  SharedLawCounts counts;
  const auto judge = [] {
    judged("len.total", 2);
    return 7;
  };
  std::thread other([&] { counts.count(judge); });
  EXPECT_EQ(counts.count(judge), 7);
  other.join();
  EXPECT_EQ(total(counts.take()), 4);
  EXPECT_EQ(total(counts.take()), 0);
}

TEST(LawCounts, AddUp) {
  LawCounts a, b;
  a.add("len.total", 2), b.add("len.total", 3), b.add("mem.leak", 1);
  a.add(b);
  EXPECT_EQ(a.of("len.total"), 5);
  EXPECT_EQ(total(a), 6);
}

}  // namespace
}  // namespace shadowgraph::law_counts_test
