// Workers that are killed and stopped at random, until all is done.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <set>

#include "core/choices.h"
#include "toy.h"

namespace shadowgraph::kill_fork_test {
namespace {

TEST(LedgerKill, TheReportIsThatOfAnUninterruptedRun) {
  const TemporaryFolder folder;
  Campaign campaign = toy_campaign(2400, 4);  // three segments
  campaign.stale_seconds = 0.5;
  Toy toy;
  toy.microseconds = 2000;
  for (uint64_t n = 0; n < campaign.cases; n += 97) toy.fates[n] = Fate::kIsKilled;
  toy.once = folder.path().string();
  Rng rng(20);
  std::set<pid_t> running, stopped;
  int killed = 0, workers = 0;
  const auto start = std::chrono::steady_clock::now();
  for (bool complete = false; !complete;) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(5));
    while (running.size() < 3) {
      ++workers;
      const pid_t process = ::fork();
      if (process == 0) {
        const WorkerResult result = work(folder / "l", campaign, toy, 1 + workers % 2);
        ::_exit(!result.trouble.ok() ? 4 : result.campaign.complete() ? 0 : 5);
      }
      running.insert(process);
    }
    ::usleep(static_cast<useconds_t>(20'000 + rng.below(100'000)));
    const pid_t one = *std::next(running.begin(), rng.below(3));
    const bool was_stopped = stopped.erase(one) > 0;
    if (was_stopped) {
      ::kill(one, SIGCONT);
    } else if (rng.below(3) == 0) {
      ::kill(one, SIGSTOP), stopped.insert(one);
    } else {
      ::kill(one, SIGKILL);
      ++killed;
    }
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      running.erase(ended), stopped.erase(ended);
      EXPECT_TRUE(!WIFEXITED(status) || WEXITSTATUS(status) == 0) << status;
      complete |= WIFEXITED(status);
    }
  }
  for (const pid_t process : running) ::kill(process, SIGKILL), ::waitpid(process, nullptr, 0);
  const Collected all = collect(folder / "l");
  EXPECT_TRUE(all.missing.empty());
  EXPECT_EQ(difference(all.body, whole(campaign)), "");
  EXPECT_GT(killed, 10);
}

}  // namespace
}  // namespace shadowgraph::kill_fork_test
