// A campaign of cases that take no time, whose results are known, and that end their process where
// they are told to.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "campaign/campaign.h"
#include "campaign/ledger.h"
#include "campaign/worker.h"
#include "core/laws.h"
#include "io/temporary_folder.h"

namespace shadowgraph {

enum class Fate { kAborts, kSpins, kExits, kThrows, kIsKilled, kKillsItsWorker };

struct Toy {
  std::map<uint64_t, Fate> fates = {};  // by case
  std::string once = {};  // a folder: a fate comes once, and leaves a file there; empty: each time
  bool behind = false;    // a fate comes only in a process that ran a case before
  int microseconds = 0;   // that a case takes
};

inline Campaign toy_campaign(uint64_t cases, uint64_t range) {
  Campaign c;
  c.options = {{"verb", "fuzz"}, {"seed", "7"}};
  c.cases = cases, c.range = range;
  c.most_of_a_law = 3;
  c.stale_seconds = 60, c.case_seconds = 60;
  return c;
}

inline Report toy_head() {
  Report head;
  head.verb = "fuzz", head.version = "1.2.3", head.seed = 7, head.arith = "portable";
  head.isa = "avx2", head.threads = 5, head.seconds = 0.25;  // which no result has
  return head;
}

/// Cases and files of a corpus say this, one after the other.
class ToyCases {
 public:
  explicit ToyCases(size_t most_of_a_law) : most_(most_of_a_law) {
    report_.laws = {{"len.total", 0}, {"num.bound", 0}};
    report_.features = {{"histories topk", 0}};
  }

  void add(uint64_t n) {
    ++(n % 7 == 5 ? report_.skipped : report_.cases);
    ++coverage_[n % 3];
    ++keys_[static_cast<int64_t>(n % 11)];
    report_.laws["num.bound"] += n % 2;
    report_.features["histories topk"] += n % 4 == 0;
    if (n % 10 == 3) fail("num.bound", fmt::format("seed 7 case {}: a call", n));
    if (n % 25 == 4) fail("table.slot", fmt::format("seed 7 case {}: a history", n));
  }
  void add(const CaseFile& file) {
    ++report_.cases;
    if (file.text != "good") fail("num.bound", "corpus/" + file.path);
  }

  RangeResult result() {
    for (const auto& [backend, cases] : coverage_)
      report_.coverage.push_back({fmt::format("b{}", backend), "decode", "eager", cases});
    report_.histograms = {{"keys", median_of(keys_), {{"0..5", 0}, {"6+", 0}}, keys_}};
    for (const auto& [keys, cases] : keys_) report_.histograms[0].bins[keys > 5].second += cases;
    return {body_of(std::move(report_), most_), std::move(failures_)};
  }

 private:
  void fail(const std::string& law, const std::string& name) {
    if (++failing_[law] > most_) {
      ++report_.unlisted;
      return;
    }
    for (const std::string& id : {law, std::string("table.slot")}) {
      Finding f;
      f.id = id, f.title = "A law.", f.expected = "1", f.got = "2";
      f.case_id = name, f.reproduce = "shadowgraph fuzz";
      report_.findings.push_back(std::move(f));
    }
    failures_.emplace_back(law, name);
  }

  const size_t most_;
  Report report_ = toy_head();
  std::map<uint64_t, int64_t> coverage_;
  std::map<int64_t, int64_t> keys_;
  std::map<std::string, size_t> failing_;
  std::vector<std::pair<std::string, std::string>> failures_;
};

/// True once, for all processes: creates the file.
inline bool is_first(const std::string& path) {
  const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

inline void meet(Fate fate) {
  switch (fate) {
    case Fate::kAborts: {
      struct sigaction no_handler {};
      no_handler.sa_handler = SIG_DFL;
      ::sigaction(SIGABRT, &no_handler, nullptr);
      std::abort();
    }
    case Fate::kSpins:
      for (;;) ::pause();
    case Fate::kExits: ::_exit(9);
    case Fate::kThrows: throw std::runtime_error("a case that throws");
    case Fate::kIsKilled: ::kill(::getpid(), SIGKILL); return;
    case Fate::kKillsItsWorker: ::kill(::getppid(), SIGKILL); ::sleep(60);
  }
}

inline RunRange toy_run(const Toy& toy, size_t most_of_a_law = 3) {
  return [toy, most_of_a_law](const CampaignRange& range, std::span<const CaseFile> files,
                              const std::function<void(uint64_t)>& at) {
    static pid_t process = 0;
    static uint64_t ran = 0;  // cases in this process
    if (process != ::getpid()) process = ::getpid(), ran = 0;
    ToyCases cases(most_of_a_law);
    for (uint64_t n = range.first; n < range.first + range.count; ++n) {
      at(n);
      const auto fate = toy.fates.find(n);
      const bool comes = fate != toy.fates.end() && !range.corpus && (!toy.behind || ran > 0) &&
                         (toy.once.empty() || is_first(fmt::format("{}/{}", toy.once, n)));
      if (comes) meet(fate->second);
      if (toy.microseconds > 0) ::usleep(static_cast<useconds_t>(toy.microseconds));
      if (range.corpus) {
        cases.add(files[n - range.first]);
      } else {
        cases.add(n);
      }
      ++ran;
    }
    return cases.result();
  };
}

/// The bytes of the report of an uninterrupted run.
inline std::string whole(const Campaign& campaign, std::span<const CaseFile> files = {}) {
  ToyCases cases(campaign.most_of_a_law);
  for (const CaseFile& file : files) cases.add(file);
  for (uint64_t n = 0; n < campaign.cases; ++n) cases.add(n);
  return cases.result().body;
}

inline WorkerOptions toy_worker(int children = 1) {
  WorkerOptions options;
  options.children = children;
  options.head = toy_head();
  options.name = [](const CampaignRange& r) { return fmt::format("seed 7 case {}", r.first); };
  options.reproduce = [](const CampaignRange& r) {
    return fmt::format("fuzz --first {} --cases {}", r.first, r.count);
  };
  return options;
}

inline std::unique_ptr<Ledger> open_ledger(const std::string& folder, const Campaign& campaign) {
  std::unique_ptr<Ledger> ledger;
  const Status status = Ledger::open(folder, campaign, &ledger);
  if (!status.ok()) throw std::runtime_error(status.to_string());
  return ledger;
}

inline WorkerResult work(Queue& queue, const Toy& toy, const WorkerOptions& options) {
  static const std::atomic<bool> never = false;
  return run_worker(queue, toy_run(toy, queue.campaign().most_of_a_law), options, {}, never);
}
inline WorkerResult work(const std::string& folder, const Campaign& campaign, const Toy& toy = {},
                         int children = 1) {
  const std::unique_ptr<Ledger> ledger = open_ledger(folder, campaign);
  return work(*ledger, toy, toy_worker(children));
}

/// A ledger's contents, as bytes; its findings, and the ranges that are missing.
struct Collected {
  std::string body;
  std::vector<std::string> findings;  // "run.crash seed 7 case 3"
  std::vector<uint64_t> missing;
  std::string status;
};
inline Collected collect(const std::string& folder) {
  Collected c;
  std::unique_ptr<Ledger> ledger;
  Status status = Ledger::open(folder, &ledger);
  Report report;
  if (status.ok()) status = ledger->collect(&report, &c.missing);
  c.status = status.to_string();
  for (const Finding& f : report.findings) c.findings.push_back(f.id + ' ' + f.case_id);
  c.body = body_of(std::move(report), 0);
  return c;
}

/// The first line in which two texts differ; empty: none.
inline std::string difference(const std::string& a, const std::string& b) {
  if (a == b) return "";
  std::istringstream of_a(a), of_b(b);
  std::string in_a, in_b;
  do {
    in_a = in_b = "(its end)";
    std::getline(of_a, in_a), std::getline(of_b, in_b);
  } while (in_a == in_b && of_a && of_b);
  return fmt::format("{} | {}", in_a, in_b);
}

inline void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}
inline std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
/// Makes a claim as old as if nobody had touched it for so long.
inline void age(const std::string& path, double seconds) {
  namespace fs = std::filesystem;
  fs::last_write_time(path, fs::file_time_type::clock::now() -
                                std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds)));
}

}  // namespace shadowgraph
