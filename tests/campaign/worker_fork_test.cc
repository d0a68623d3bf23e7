#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <set>

#include "campaign/campaign_json.h"
#include "campaign/worker.h"
#include "toy.h"

namespace shadowgraph::worker_fork_test {
namespace {

namespace fs = std::filesystem;

/// A worker in a process of its own. Its exit code: 0, 4 trouble; or minus the signal that ended
/// it.
int wait_for(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
pid_t start_worker(const std::string& folder, const Campaign& campaign, const Toy& toy = {}) {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(work(folder, campaign, toy).trouble.ok() ? 0 : 4);
  return process;
}

/// Findings that a campaign of four ranges has besides those of its cases.
struct Ends {
  std::vector<std::string> findings;
  std::string got, reproduce;  // of the last one
};
Ends ends_of(const std::string& folder) {
  std::unique_ptr<Ledger> ledger;
  EXPECT_TRUE(Ledger::open(folder, &ledger).ok());
  Report report;
  std::vector<uint64_t> missing;
  EXPECT_EQ(ledger->collect(&report, &missing).to_string(), "ok");
  EXPECT_TRUE(missing.empty());
  Ends ends;
  for (const Finding& f : report.findings) {
    if (!f.id.starts_with("run.")) continue;
    ends.findings.push_back(f.id + ' ' + f.case_id);
    ends.got = f.got, ends.reproduce = f.reproduce;
  }
  return ends;
}

/// Cases that a campaign has a verdict on.
int64_t cases_of(const std::string& folder) {
  std::unique_ptr<Ledger> ledger;
  EXPECT_TRUE(Ledger::open(folder, &ledger).ok());
  Report report;
  std::vector<uint64_t> missing;
  EXPECT_TRUE(ledger->collect(&report, &missing).ok());
  return report.cases + report.skipped;
}

TEST(Worker, RunsAllWhateverTheNumbersOfRangesAndChildren) {
  struct Sizes {
    uint64_t cases, range;
    int children;
  };
  for (const Sizes& s : {Sizes{200, 16, 1}, Sizes{200, 16, 3}, Sizes{20, 1, 2}, Sizes{3, 512, 4},
                         Sizes{64, 16, 9}, Sizes{1, 1, 1}, Sizes{300, 1, 2}}) {
    const TemporaryFolder folder;
    const Campaign campaign = toy_campaign(s.cases, s.range);
    const WorkerResult result = work(folder / "l", campaign, {}, s.children);
    EXPECT_TRUE(result.trouble.ok());
    EXPECT_TRUE(result.campaign.complete());
    EXPECT_EQ(result.ranges, campaign.ranges());
    const Collected all = collect(folder / "l");
    EXPECT_EQ(difference(all.body, whole(campaign)), "")
        << s.cases << ' ' << s.range << ' ' << s.children;
    EXPECT_TRUE(all.missing.empty());
    EXPECT_EQ(result.report.cases + result.report.skipped, static_cast<int64_t>(s.cases));
  }
}

TEST(Worker, SaysOfItsOwnRangesWhatTheCampaignSaysOfAll) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  const auto ledger = open_ledger(folder / "l", campaign);
  const RangeResult first = toy_run({})(range_of(campaign, 0), {}, [](uint64_t) {});
  ASSERT_TRUE(ledger->publish(0, first).ok());
  const WorkerResult rest = work(folder / "l", campaign);
  EXPECT_EQ(rest.ranges, 3u);
  EXPECT_EQ(rest.report.cases + rest.report.skipped, 48);
  const WorkerResult nothing = work(folder / "l", campaign);
  EXPECT_EQ(nothing.ranges, 0u);
  EXPECT_EQ(nothing.report.cases, 0);
  EXPECT_TRUE(nothing.campaign.complete());
}

class EveryEnd : public ::testing::TestWithParam<std::pair<Fate, std::string>> {};

TEST_P(EveryEnd, IsAFindingOfItsCaseAndOfNoOther) {
  const auto& [fate, how] = GetParam();
  for (const int children : {1, 3}) {
    const TemporaryFolder folder;
    const Campaign campaign = toy_campaign(64, 16);
    const WorkerResult result = work(folder / "l", campaign, {.fates = {{21, fate}}}, children);
    EXPECT_TRUE(result.campaign.complete());
    const Ends ends = ends_of(folder / "l");
    EXPECT_EQ(ends.findings, std::vector<std::string>{"run.crash seed 7 case 21"});
    EXPECT_EQ(ends.got, how);
    EXPECT_EQ(ends.reproduce, "fuzz --first 21 --cases 1");
    EXPECT_EQ(cases_of(folder / "l"), 63);
  }
}
INSTANTIATE_TEST_SUITE_P(Worker, EveryEnd,
                         ::testing::Values(std::pair(Fate::kAborts, "signal 6 (Aborted)"),
                                           std::pair(Fate::kExits, "exit code 9"),
                                           std::pair(Fate::kThrows, "exit code 4"),
                                           std::pair(Fate::kIsKilled, "signal 9 (Killed)")));

TEST(Worker, TheFirstAndTheLastCaseOfARangeMayEndItsProcess) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  Toy toy;
  for (const uint64_t n : {0, 15, 16, 17, 63}) toy.fates[n] = Fate::kAborts;
  (void)work(folder / "l", campaign, toy, 2);
  EXPECT_EQ(ends_of(folder / "l").findings,
            (std::vector<std::string>{"run.crash seed 7 case 0", "run.crash seed 7 case 15",
                                      "run.crash seed 7 case 16"}));  // most_of_a_law
  EXPECT_EQ(cases_of(folder / "l"), 59);
}

TEST(Worker, AnEndlessCaseIsAFinding) {
  const TemporaryFolder folder;
  Campaign campaign = toy_campaign(64, 16);
  campaign.case_seconds = 0.3;
  (void)work(folder / "l", campaign, {.fates = {{21, Fate::kSpins}}}, 2);
  const Ends ends = ends_of(folder / "l");
  EXPECT_EQ(ends.findings, std::vector<std::string>{"run.hang seed 7 case 21"});
  EXPECT_EQ(ends.got, "none");
  EXPECT_EQ(cases_of(folder / "l"), 63);
}

TEST(Worker, ASlowRangeIsNoEndlessCase) {
  const TemporaryFolder folder;
  Campaign campaign = toy_campaign(12, 12);
  campaign.case_seconds = 0.4;
  (void)work(folder / "l", campaign, {.microseconds = 100'000});
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
}

TEST(Worker, ACaseThatIsKilledOnceIsNoFinding) {
  for (const Fate fate : {Fate::kIsKilled, Fate::kAborts}) {
    const TemporaryFolder folder;
    const Campaign campaign = toy_campaign(64, 16);
    (void)work(folder / "l", campaign,
               {.fates = {{21, fate}, {40, fate}}, .once = folder.path().string()});
    EXPECT_TRUE(fs::exists(folder / "21"));
    EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
  }
}

TEST(Worker, ACaseThatEndsItsProcessBehindOthersIsAFindingWithThem) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  (void)work(folder / "l", campaign, {.fates = {{21, Fate::kAborts}}, .behind = true});
  const Ends ends = ends_of(folder / "l");
  EXPECT_EQ(ends.findings, std::vector<std::string>{"run.crash seed 7 case 21"});
  EXPECT_EQ(ends.got, "signal 6 (Aborted), behind 5 other cases; alone it ends");
  EXPECT_EQ(ends.reproduce, "fuzz --first 16 --cases 6");
  EXPECT_EQ(cases_of(folder / "l"), 64);
}

/// A ledger on a slow disk.
class SlowQueue final : public Queue {
 public:
  explicit SlowQueue(Queue& queue) : queue_(queue) {}
  const Campaign& campaign() const override { return queue_.campaign(); }
  Status case_file(const std::string& path, std::string* text) override {
    return queue_.case_file(path, text);
  }
  Status claim(std::optional<Claim>* claim) override {
    ::usleep(30'000);
    return queue_.claim(claim);
  }
  void beat(uint64_t range, uint64_t at, bool alone) override { queue_.beat(range, at, alone); }
  void release(uint64_t range) override { queue_.release(range); }
  Status publish(uint64_t range, const RangeResult& result) override {
    return queue_.publish(range, result);
  }
  QueueState state() override { return queue_.state(); }

 private:
  Queue& queue_;
};

TEST(Worker, AChildThatIsLostBetweenRangesIsReplaced) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(32, 4);
  const auto ledger = open_ledger(folder / "l", campaign);
  SlowQueue queue(*ledger);
  const RunRange toy = toy_run({});
  const RunRange run = [&](const CampaignRange& range, std::span<const CaseFile> files,
                           const std::function<void(uint64_t)>& at) {
    RangeResult result = toy(range, files, at);
    if (::fork() == 0) {  // kills this process once it has written its result
      ::usleep(5000);
      ::kill(::getppid(), SIGKILL);
      ::_exit(0);
    }
    return result;
  };
  // A signal of a broken pipe would end this process, were there one.
  auto* const before = ::signal(SIGPIPE, SIG_DFL);
  static const std::atomic<bool> never = false;
  const WorkerResult result = run_worker(queue, run, toy_worker(), {}, never);
  ::signal(SIGPIPE, before);
  EXPECT_TRUE(result.trouble.ok());
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
}

TEST(Worker, CasesRunAloneHaveTheSameResult) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  (void)work(folder / "plain", campaign);
  std::string lines;
  for (int i = 0; i < 3; ++i) lines += to_json(ClaimNote{"lost", 3, false}) + '\n';
  for (const char* range : {"0", "1", "2", "3"}) write(folder / "l/lost/" + range, lines);
  write(folder / "l/run.json", read(folder / "plain/run.json"));
  const WorkerResult result =
      work(folder / "l", campaign, {.fates = {{21, Fate::kAborts}}, .behind = true}, 2);
  EXPECT_EQ(result.ranges, 4u);  // no case ran behind another
  EXPECT_EQ(difference(read(folder / "l/seg/0.json"), read(folder / "plain/seg/0.json")), "");
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
}

TEST(Worker, CasesThatEndTheirWorkersAreGivenUpAndTheOthersAreDone) {
  const TemporaryFolder folder;
  Campaign campaign = toy_campaign(12, 6);
  campaign.stale_seconds = 0.4;
  Toy toy;
  toy.fates = {{7, Fate::kKillsItsWorker}, {9, Fate::kKillsItsWorker}};
  int lost = 0;
  while (wait_for(start_worker(folder / "l", campaign, toy)) != 0) ASSERT_LT(++lost, 20);
  EXPECT_EQ(lost, 9);  // three with all, three with each alone
  const Ends ends = ends_of(folder / "l");
  EXPECT_EQ(ends.findings,
            (std::vector<std::string>{"run.crash seed 7 case 7", "run.crash seed 7 case 9"}));
  EXPECT_EQ(ends.got, "3 workers that ran it alone were lost");
  EXPECT_EQ(cases_of(folder / "l"), 10);
}

TEST(Worker, OneThatIsStoppedGivesItsRangesBack) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  const auto ledger = open_ledger(folder / "l", campaign);
  std::atomic<bool> stop = false;
  const WorkerResult result = run_worker(
      *ledger, toy_run({.microseconds = 30'000}), toy_worker(2),
      [&](const WorkerProgress&) { stop = true; }, stop);
  EXPECT_TRUE(result.trouble.ok());
  EXPECT_LT(result.ranges, 4u);
  ASSERT_TRUE(fs::is_empty(folder / "l/seg/0/claim"));
  EXPECT_FALSE(fs::exists(folder / "l/lost"));
  (void)work(folder / "l", campaign);
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
}

TEST(Worker, ABudgetEndsItBehindARange) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(0, 8);
  const auto ledger = open_ledger(folder / "l", campaign);
  WorkerOptions options = toy_worker();
  options.seconds = 0.3;
  const WorkerResult result = work(*ledger, {.microseconds = 1000}, options);
  EXPECT_GT(result.ranges, 0u);
  EXPECT_EQ(result.report.cases + result.report.skipped, static_cast<int64_t>(8 * result.ranges));
  EXPECT_EQ(result.campaign.done, result.ranges);
  EXPECT_FALSE(result.campaign.complete());
  EXPECT_TRUE(collect(folder / "l").missing.empty());
  EXPECT_TRUE(fs::is_empty(folder / "l/seg/0/claim"));
}

TEST(Worker, ACorpusIsPlayedAndAFileThatIsGoneOrNoCaseStopsNothing) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(20, 3);
  const std::vector<CaseFile> files = {{"num.bound/a.json", "good"},
                                       {"num.bound/b.json", ""},
                                       {"num.bound/c.json", "bad"},
                                       {"num.lse/d.json", "good"},
                                       {"num.lse/e.json", std::string(300'000, 'x')}};
  for (const CaseFile& file : files) write(folder / "l/corpus/" + file.path, file.text);
  (void)open_ledger(folder / "l", campaign);
  fs::remove(folder / "l/corpus/num.bound/b.json");
  const WorkerResult result = work(folder / "l", campaign, {}, 2);
  EXPECT_TRUE(result.campaign.complete());
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign, files)), "");
}

TEST(Worker, ALedgerThatIsRemovedEndsItsWorkers) {
  const TemporaryFolder folder;
  Campaign campaign = toy_campaign(0, 4);
  campaign.stale_seconds = 0.5;
  const auto ledger = open_ledger(folder / "l", campaign);
  static const std::atomic<bool> never = false;
  const WorkerResult result = run_worker(
      *ledger, toy_run({.microseconds = 1000}), toy_worker(2),
      [&](const WorkerProgress& p) {
        if (p.cases > 10) fs::remove_all(folder / "l");
      },
      never);
  EXPECT_FALSE(result.trouble.ok());
  EXPECT_FALSE(fs::exists(folder / "l"));
}

/// ledger_stale: the owner is stopped, its range is taken, and the owner goes on.
TEST(Worker, AnOwnerThatGoesOnBehindAnotherBringsTheSameResult) {
  const TemporaryFolder folder;
  Campaign campaign = toy_campaign(16, 16);
  campaign.stale_seconds = 0.4;
  const pid_t owner = start_worker(folder / "l", campaign, {.microseconds = 50'000});
  while (read(folder / "l/seg/0/claim/0").empty()) ::usleep(1000);
  ::kill(owner, SIGSTOP);
  const WorkerResult other = work(folder / "l", campaign);
  EXPECT_EQ(other.ranges, 1u);
  const std::string first = read(folder / "l/seg/0.json");
  ::kill(owner, SIGCONT);
  EXPECT_EQ(wait_for(owner), 0);
  EXPECT_EQ(difference(read(folder / "l/seg/0.json"), first), "");
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
  EXPECT_EQ(parse_notes(read(folder / "l/lost/0")).size(), 1u);
}

}  // namespace
}  // namespace shadowgraph::worker_fork_test
