#include "bench/contention.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <vector>

#include "bench/team.h"

namespace shadowgraph::bench::contention_test {
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
  const Contention before{.involuntary_switches = 7, .wait_ns = {{1, 1000}}, .steal_ticks = 3};
  const auto with = [&](auto change) {
    Contention after = before;
    change(after);
    return disturbance(before, after, 0.1);
  };
  EXPECT_EQ(with([](Contention&) {}), "");
  EXPECT_NE(with([](Contention& c) { ++c.steal_ticks; }), "");
  EXPECT_NE(with([](Contention& c) { c.wait_ns[1] += 600'000; }), "");
  EXPECT_EQ(with([](Contention& c) { c.wait_ns[1] += 400'000; }), "");
}

TEST(Contention, AThreadThatEndsTakesNoWaitOfOthersWithIt) {
  const Contention before{.wait_ns = {{1, 1000}, {2, 7'000'000}, {3, 500}}};
  // 2 ended, 4 is new, and another thread than before has the id 3.
  const Contention after{.wait_ns = {{1, 1200}, {3, 100}, {4, 50}}};
  EXPECT_EQ(waited_ns(before, after), 250);
  EXPECT_EQ(waited_ns(before, before), 0);
}

TEST(Contention, ASwitchCountsByItsCostAndByItselfWhereThatIsNotKnown) {
  const Contention before;
  Contention after{.involuntary_switches = 3, .wait_ns = {{1, 60'000}}};
  EXPECT_EQ(disturbance(before, after, 0.1), "");
  after.wait_ns = {}, after.counts_wait = false;
  EXPECT_NE(disturbance(before, after, 0.1), "");
}

TEST(Contention, MoreBusyThreadsThanProcessorsAreSeen) {
  if (!contention().counts_wait)
    GTEST_SKIP() << "/proc does not say how long threads wait for a processor";
  // Pinned to one processor, four threads must wait for each other.
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::latch all_run(kThreads + 1), counted(1);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      pin_team(1);
      all_run.arrive_and_wait();
      const double end = now() + 0.3;
      while (now() < end) continue;
      counted.wait();  // a thread that has ended has no count
    });
  }
  all_run.arrive_and_wait();
  const Contention before = contention();
  const double start = now();
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  const Contention after = contention();
  const double seconds = now() - start;
  counted.count_down();
  for (std::thread& t : threads) t.join();
  EXPECT_NE(disturbance(before, after, seconds), "");
}

}  // namespace
}  // namespace shadowgraph::bench::contention_test
