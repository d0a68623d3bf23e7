#include "bench/contention.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "bench/team.h"

namespace shadowgraph::bench {
namespace {

TEST(Contention, FieldsOfProcAreThese) {
  EXPECT_EQ(wait_of("1234 567 89"), 567);
  EXPECT_EQ(wait_of("1234 0 89"), 0);
  EXPECT_EQ(wait_of(""), -1);
  EXPECT_EQ(steal_of("cpu  1 2 3 4 5 6 7 88 9 10"), 88);
  EXPECT_EQ(steal_of("cpu0 1 2 3 4 5 6 7 88 9 10"), 0);
  EXPECT_EQ(steal_of("cpu 1 2 3"), 0);
}

TEST(Contention, TimeThatOthersTookIsADisturbance) {
  const Contention before{.involuntary_switches = 7, .wait_ns = 1000, .steal_ticks = 3};
  const auto with = [&](auto change) {
    Contention after = before;
    change(after);
    return disturbance(before, after, 0.1);
  };
  EXPECT_EQ(with([](Contention&) {}), "");
  EXPECT_NE(with([](Contention& c) { ++c.steal_ticks; }), "");
  EXPECT_NE(with([](Contention& c) { c.wait_ns += 600'000; }), "");
  EXPECT_EQ(with([](Contention& c) { c.wait_ns += 400'000; }), "");
}

TEST(Contention, ASwitchCountsByItsCostAndByItselfWhereThatIsNotKnown) {
  const Contention before;
  Contention after{.involuntary_switches = 3, .wait_ns = 60'000};
  EXPECT_EQ(disturbance(before, after, 0.1), "");
  after.wait_ns = 0, after.counts_wait = false;
  EXPECT_NE(disturbance(before, after, 0.1), "");
}

TEST(Contention, MoreBusyThreadsThanProcessorsAreSeen) {
#ifndef __linux__
  GTEST_SKIP() << "how long threads wait for a processor is told in /proc, which Linux has";
#endif
  // Pinned to one processor, four threads must wait for each other.
  std::vector<std::thread> threads;
  const Contention before = contention();
  const double start = now(), end = start + 0.3;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([end] {
      pin_team(1);
      while (now() < end) continue;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  const Contention after = contention();
  for (std::thread& t : threads) t.join();
  EXPECT_NE(disturbance(before, after, now() - start), "");
}

}  // namespace
}  // namespace shadowgraph::bench
