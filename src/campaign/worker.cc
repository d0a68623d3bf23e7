#include "campaign/worker.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "campaign/child.h"
#include "report/merge.h"
#include "report/read.h"

namespace shadowgraph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPoll = 50;                        // milliseconds
constexpr std::chrono::seconds kTryAgain{1};     // a result that could not be published
constexpr std::chrono::seconds kLook{2};         // between looks at the whole campaign
constexpr std::chrono::milliseconds kTell{200};  // between calls of progress
constexpr double kAskAgain = 0.5;  // seconds until a queue that had nothing is asked again
constexpr uint64_t kDeathsUntilCareful = 3;  // workers lost with a range

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Cases that a child runs in one go.
struct Part {
  CampaignRange cases;
  bool alone = false;  // in a process that ran nothing before
};

/// A range in hand.
struct Job {
  Claim claim;
  std::deque<Part> parts;            // left to run, in order
  std::vector<RangeResult> results;  // of those that have run
  std::map<uint64_t, int> deaths;    // of children, by the case at which they died
  std::string death;                 // how the last one died
  bool was_killed = false;
  bool careful = false;

  bool is_done() const { return parts.empty(); }
};

/// A child and its work.
struct Seat {
  std::unique_ptr<Child> child;
  std::optional<Job> job;
  // A result that is not published yet, and its range
  std::optional<std::pair<uint64_t, RangeResult>> result;
  uint64_t at = 0;                           // case, when last looked at
  double waited = 0;                         // seconds in that case
  std::optional<Clock::time_point> failing;  // since when the result cannot be published
  Clock::time_point try_at;
};

class Worker {
 public:
  Worker(Queue& queue, const RunRange& run, const WorkerOptions& options,
         const std::function<void(const WorkerProgress&)>& progress, const std::atomic<bool>& stop)
      : queue_(queue),
        campaign_(queue.campaign()),
        run_(run),
        options_(options),
        progress_(progress),
        stop_(stop),
        seats_(static_cast<size_t>(options.children)),
        merge_({.checks_parts = false, .most_of_a_law = campaign_.most_of_a_law}) {}

  WorkerResult run() {
    Clock::time_point last = Clock::now();
    while (!stop_ && trouble_.ok() && has_work()) {
      wait();
      const double passed = seconds_since(last);
      last = Clock::now();
      // A process that was stopped meanwhile has not waited.
      for (Seat& seat : seats_) look_at(seat, std::min(passed, 1.0));
      beat_and_tell();
    }
    return end();
  }

 private:
  bool is_idle(const Seat& seat) const { return !seat.job && !seat.result; }
  bool may_claim() const {
    return options_.seconds == 0 || seconds_since(start_) < options_.seconds;
  }

  /// Gives idle children something to do. False: there is nothing left for this worker.
  bool has_work() {
    for (Seat& seat : seats_) {
      if (seat.job || !may_claim() || seconds_since(asked_) < wait_to_ask_) continue;
      next_job(seat);
    }
    if (!std::ranges::all_of(seats_, [&](const Seat& s) { return is_idle(s); })) return true;
    if (!may_claim()) return false;
    // Other workers' ranges may become free.
    return !complete_;
  }

  void next_job(Seat& seat) {
    std::optional<Claim> claim;
    trouble_.add(queue_.claim(&claim));
    asked_ = Clock::now();
    wait_to_ask_ = claim ? 0 : std::min(kAskAgain, campaign_.stale_seconds / 12);
    complete_ = !claim && queue_.state().complete();
    if (!claim) return;
    seat.job = job_of(*claim);
    next_part(seat);
  }

  Job job_of(const Claim& claim) const {
    Job job;
    job.claim = claim;
    const CampaignRange whole = range_of(campaign_, claim.range);
    job.careful = claim.deaths >= kDeathsUntilCareful;
    if (!job.careful) {
      job.parts.push_back({whole});
      return job;
    }
    for (uint64_t i = 0; i < whole.count; ++i)
      job.parts.push_back({{whole.corpus, whole.first + i, 1}, true});
    return job;
  }

  /// Starts the next part of a job, or ends the job.
  void next_part(Seat& seat) {
    Job& job = *seat.job;
    while (!job.is_done() && is_given_up(job)) {
      const CampaignRange lost = job.parts.front().cases;
      job.parts.pop_front();
      job.results.push_back(crashed(
          lost, lost, fmt::format("{} workers that ran it alone were lost", kDeathsUntilCareful)));
    }
    if (job.is_done()) return end_job(seat);
    const Part& part = job.parts.front();
    if (job.careful) queue_.beat(job.claim.range, part.cases.first, true);
    if (!seat.child || !seat.child->death().empty() || part.alone)
      seat.child.reset(), seat.child = std::make_unique<Child>(run_);
    seat.at = part.cases.first, seat.waited = 0;
    seat.child->start(part.cases, files_of(part.cases));
  }

  /// A file that cannot be read is an empty one, which breaks a law of its own.
  std::vector<CaseFile> files_of(const CampaignRange& cases) const {
    std::vector<CaseFile> files(cases.corpus ? cases.count : 0);
    for (size_t i = 0; i < files.size(); ++i) {
      files[i].path = campaign_.corpus[cases.first + i];
      (void)queue_.case_file(files[i].path, &files[i].text);
    }
    return files;
  }

  bool is_given_up(const Job& job) const {
    const auto deaths = job.claim.deaths_alone.find(job.parts.front().cases.first);
    return job.careful && deaths != job.claim.deaths_alone.end() &&
           deaths->second >= kDeathsUntilCareful;
  }

  void wait() const {
    std::vector<pollfd> fds;
    for (const Seat& seat : seats_) {
      if (seat.child && seat.job && !seat.result) fds.push_back({seat.child->fd(), POLLIN, 0});
    }
    (void)::poll(fds.data(), fds.size(), kPoll);
  }

  void look_at(Seat& seat, double passed) {
    if (seat.result) publish(seat);
    if (!seat.job || seat.result) return;
    if (std::optional<RangeResult> result = seat.child->read()) {
      part_ended(seat, std::move(*result));
    } else if (!seat.child->death().empty()) {
      part_died(seat, seat.child->death(), seat.child->was_killed());
    } else if (seat.child->at() != seat.at) {
      seat.at = seat.child->at(), seat.waited = 0;
    } else if ((seat.waited += passed) > campaign_.case_seconds) {
      end_case(seat);
    }
    if (seat.result) publish(seat);
  }

  /// Kills a child whose case does not end, unless it does.
  void end_case(Seat& seat) {
    seat.child->kill();
    std::optional<RangeResult> late;
    while (seat.child->death().empty()) {
      if (std::optional<RangeResult> result = seat.child->read()) late = std::move(result);
      (void)::poll(nullptr, 0, 1);
    }
    if (late) return part_ended(seat, std::move(*late));
    part_died(seat, "", false);
  }

  void part_ended(Seat& seat, RangeResult result) {
    Job& job = *seat.job;
    const Part part = job.parts.front();
    job.parts.pop_front();
    job.results.push_back(std::move(result));
    // Twice it died there behind other cases, and alone it does not.
    const auto died = job.deaths.find(part.cases.first);
    if (part.alone && !job.careful && died != job.deaths.end() && !job.was_killed) {
      const CampaignRange before = sequence_to(job, part.cases.first);
      job.results.push_back(crashed(part.cases, before, job.death));
    }
    next_part(seat);
  }

  /// death: empty where it was killed since a case did not end.
  void part_died(Seat& seat, const std::string& death, bool was_killed) {
    Job& job = *seat.job;
    const Part part = job.parts.front();
    const uint64_t at =
        std::clamp(seat.child->at(), part.cases.first, part.cases.first + part.cases.count - 1);
    job.parts.pop_front();
    job.death = death, job.was_killed = was_killed;
    const int deaths = ++job.deaths[at];
    const auto push = [&](uint64_t first, uint64_t end, bool alone) {
      if (first < end) job.parts.push_front({{part.cases.corpus, first, end - first}, alone});
    };
    const uint64_t first = part.cases.first, end = first + part.cases.count;
    push(at + 1, end, false);
    if (deaths == 1) {
      push(first, at + 1, part.alone);
    } else if (!part.alone) {
      push(at, at + 1, true);
      push(first, at, false);
    } else {
      const CampaignRange lost{part.cases.corpus, at, 1};
      job.results.push_back(crashed(lost, lost, death));
    }
    next_part(seat);
  }

  /// The cases from the range's first, or from behind the last that ended its process, to `at`.
  CampaignRange sequence_to(const Job& job, uint64_t at) const {
    const CampaignRange whole = range_of(campaign_, job.claim.range);
    uint64_t first = whole.first;
    for (const auto& [died_at, deaths] : job.deaths)
      if (died_at < at && deaths > 1) first = died_at + 1;
    return {whole.corpus, first, at - first + 1};
  }

  /// A report of one finding: a case ended its process, or did not end (death empty).
  RangeResult crashed(const CampaignRange& at, const CampaignRange& run,
                      const std::string& death) const {
    Finding f =
        death.empty()
            ? make_finding("run.hang", {},
                           fmt::format("an end within {} s", campaign_.case_seconds), "none")
            : make_finding("run.crash", {}, "an end of the case", death);
    if (run.count > 1)
      f.got += fmt::format(", behind {} other cases; alone it ends", run.count - 1);
    const std::string file = at.corpus ? "corpus/" + campaign_.corpus[at.first] : "";
    f.case_id = at.corpus ? file : options_.name(at);
    f.reproduce = at.corpus ? "shadowgraph replay " + file : options_.reproduce(run);
    Report report = options_.head;
    report.findings.push_back(std::move(f));
    return {body_of(std::move(report), campaign_.most_of_a_law), {}};
  }

  /// Hands the next range to the child first: nobody waits for a disk.
  void end_job(Seat& seat) {
    const uint64_t range = seat.job->claim.range;
    RangeResult result = joined(std::move(seat.job->results));
    seat.job.reset();
    seat.result.emplace(range, std::move(result));
    seat.failing.reset(), seat.try_at = {};
    if (may_claim() && trouble_.ok()) next_job(seat);
  }

  RangeResult joined(std::vector<RangeResult> results) const {
    if (results.size() == 1) return std::move(results[0]);
    Merge merge({.checks_parts = false, .most_of_a_law = campaign_.most_of_a_law});
    RangeResult all;
    for (RangeResult& part : results) {
      Report report;
      if (parse_report(part.body, "a part's report", &report).ok())
        merge.add("", std::move(report));
      for (auto& failure : part.failures) all.failures.push_back(std::move(failure));
    }
    Report report;
    (void)merge.end(false, &report);
    all.body = body_of(std::move(report), campaign_.most_of_a_law);
    return all;
  }

  /// A disk that is full now may have room again: tries for stale_seconds.
  void publish(Seat& seat) {
    if (Clock::now() < seat.try_at) return;
    const auto& [range, result] = *seat.result;
    Status status = queue_.publish(range, result);
    const bool kept =
        status.ok() || status.findings()[0].id == LawId("run.nondeterminism").law().id;
    if (kept) {
      add_to_verdict(result, std::move(status));
      wait_to_ask_ = 0;  // it may have been the last one
      return seat.result.reset();
    }
    seat.try_at = Clock::now() + kTryAgain;
    if (!seat.failing) seat.failing = Clock::now();
    if (seconds_since(*seat.failing) < campaign_.stale_seconds) return;
    trouble_.add(std::move(status));
    queue_.release(range);
    seat.result.reset();
  }

  void add_to_verdict(const RangeResult& result, Status differences) {
    Report report;
    ++ranges_;
    differences_.add(std::move(differences));
    if (!parse_report(result.body, "a range's report", &report).ok()) return;
    told_.cases += static_cast<uint64_t>(report.cases + report.skipped);
    told_.findings += static_cast<uint64_t>(report.open_findings());
    merge_.add("", std::move(report));
  }

  void beat_and_tell() {
    if (seconds_since(beat_) > campaign_.stale_seconds / 12) {
      beat_ = Clock::now();
      for (const Seat& seat : seats_) {
        if (seat.job) queue_.beat(seat.job->claim.range, seat.at, seat.job->careful);
        if (seat.result) queue_.beat(seat.result->first, 0, false);
      }
    }
    if (!progress_ || Clock::now() - last_told_ < kTell) return;
    last_told_ = Clock::now();
    if (last_told_ - looked_ > kLook) told_.campaign = queue_.state(), looked_ = Clock::now();
    progress_(told_);
  }

  WorkerResult end() {
    WorkerResult result;
    for (Seat& seat : seats_) {
      seat.try_at = {};
      if (seat.result) publish(seat);
      if (seat.result) queue_.release(seat.result->first);
      if (seat.job) queue_.release(seat.job->claim.range);
      seat.child.reset();
    }
    result.report = options_.head;
    if (ranges_ > 0) (void)merge_.end(false, &result.report);
    for (Finding& f : differences_.findings()) result.report.findings.push_back(std::move(f));
    result.ranges = ranges_;
    result.campaign = queue_.state();
    result.trouble = std::move(trouble_);
    return result;
  }

  Queue& queue_;
  const Campaign& campaign_;
  const RunRange& run_;
  const WorkerOptions& options_;
  const std::function<void(const WorkerProgress&)>& progress_;
  const std::atomic<bool>& stop_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point asked_, beat_ = start_, last_told_, looked_;
  double wait_to_ask_ = 0;  // seconds
  bool complete_ = false;   // the campaign, when last asked
  std::vector<Seat> seats_;
  Merge merge_;
  uint64_t ranges_ = 0;
  WorkerProgress told_;
  Status trouble_, differences_;
};

}  // namespace

WorkerResult run_worker(Queue& queue, const RunRange& run, const WorkerOptions& options,
                        const std::function<void(const WorkerProgress&)>& progress,
                        const std::atomic<bool>& stop) {
  return Worker(queue, run, options, progress, stop).run();
}

}  // namespace shadowgraph
