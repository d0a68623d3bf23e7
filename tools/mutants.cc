#include "mutants.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "core/laws.h"
#include "io/file.h"
#include "io/strict_json.h"

extern char** environ;

namespace shadowgraph::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Mutant {
  std::string id;      // "runtime.bound.17"
  int64_t number = 0;  // that switches it on
  std::string place;   // "src/runtime/scheduler.cc:55"
  std::string slip;    // "min -> max"
};

struct MutantHunt {
  PlantVerdict verdict = PlantVerdict::kNeverActed;
  std::string why;  // the law that noticed first, or how the process ended; of a miss what changed
  double seconds = 0;
  bool ended = false;  // false: it was interrupted
};

/// A program that runs, and what it prints.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command) {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    std::vector<char*> args;
    for (const std::string& word : command) args.push_back(const_cast<char*>(word.c_str()));
    args.push_back(nullptr);
    if (posix_spawn(&pid_, args[0], &actions, nullptr, args.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    ::close(fds[1]);
    out_ = fds[0];
  }
  ~Process() {
    kill();
    if (pid_ > 0) (void)status();
    if (out_ >= 0) ::close(out_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool started() const { return pid_ > 0; }
  /// Takes what it has printed within some time. False: it prints nothing more.
  bool read(int milliseconds, std::string* text) const {
    pollfd ready{out_, POLLIN, 0};
    if (::poll(&ready, 1, milliseconds) <= 0) return true;
    char buffer[4096];
    const ssize_t n = ::read(out_, buffer, sizeof buffer);
    if (n > 0) text->append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  void kill() const {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }
  /// How it ended; waits for it.
  int status() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

std::string text_of(const JsonValue& mutant, const char* key) {
  const JsonValue* member = mutant.find(key);
  if (member == nullptr) return "";
  const std::string* text = member->as<std::string>();
  return text != nullptr ? *text : member->describe();
}

std::optional<Mutant> mutant_of(const JsonValue& value) {
  const JsonValue* number = value.find("switch");
  const uint64_t* switched = number == nullptr ? nullptr : number->as<uint64_t>();
  Mutant m{text_of(value, "id"), 0, text_of(value, "file") + ":" + text_of(value, "line"),
           text_of(value, "slip")};
  if (switched == nullptr || *switched == 0 || m.id.empty()) return std::nullopt;
  m.number = static_cast<int64_t>(*switched);
  return m;
}

/// The program prints "missed: why".
MutantHunt hunt_of(std::string_view text) {
  MutantHunt hunt;
  hunt.ended = true;
  text = text.substr(0, text.find('\n'));
  const size_t colon = std::min(text.find(':'), text.size());
  const std::optional<PlantVerdict> verdict = plant_verdict_of(text.substr(0, colon));
  hunt.verdict = verdict.value_or(PlantVerdict::kFound);
  text.remove_prefix(std::min(colon + 2, text.size()));
  hunt.why = verdict ? std::string(text) : "crash: no verdict";
  return hunt;
}

/// Reads FOLDER/plan.json. io.*; case.field: it is no such plan.
Status read_mutants(const std::string& folder, std::vector<Mutant>* out) {
  const std::string path = folder + "/plan.json";
  std::vector<std::byte> bytes;
  Status status = read_file(path, &bytes);
  if (!status.ok()) return status;
  JsonDocument json;
  status = parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                             "case.field", path, 0, &json);
  if (!status.ok()) return status;
  const JsonValue* list = json.root.find("mutants");
  const auto* rows = list == nullptr ? nullptr : list->as<JsonValue::Array>();
  std::vector<Mutant> mutants;
  for (size_t i = 0; rows != nullptr && i < rows->size(); ++i) {
    std::optional<Mutant> mutant = mutant_of((*rows)[i]);
    if (mutant) mutants.push_back(*std::move(mutant));
  }
  if (rows == nullptr || mutants.empty() || mutants.size() != rows->size())
    status.add(make_finding("case.field", at(path + " mutants"),
                            "mutants with id, switch, file, line and slip",
                            fmt::format("{} of {}", mutants.size(), rows ? rows->size() : 0)));
  if (status.ok()) *out = std::move(mutants);
  return status;
}

/// How the process ended, where it did not by itself.
std::string end_of(bool late, int status) {
  if (late) return "hang";
  if (WIFSIGNALED(status)) return fmt::format("crash: {}", ::strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("crash: exit code {}", WEXITSTATUS(status));
}

MutantHunt hunt_mutant(const MutantsCommand& options, const Mutant& mutant) {
  constexpr int kLook = 100;  // milliseconds
  const Clock::time_point start = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::vector<std::string> command = {options.folder + "/mutant_verdict",
                                      std::to_string(mutant.number), std::to_string(options.cases)};
  if (!options.backend.empty()) command.push_back(options.backend);
  Process process(command);
  if (!process.started()) return {PlantVerdict::kFound, "crash: it does not start", 0, true};
  std::string text;
  bool late = false;
  while (!interrupted() && !late && process.read(kLook, &text)) late = spent() >= options.seconds;
  if (interrupted()) return {};
  if (late) process.kill();
  const std::string end = end_of(late, process.status());
  MutantHunt hunt = end.empty() ? hunt_of(text) : MutantHunt{PlantVerdict::kFound, end, 0, true};
  hunt.seconds = spent();
  return hunt;
}

void add_mutant(const MutantsCommand& options, const Mutant& mutant, const MutantHunt& hunt,
                Report* report) {
  FaultReport row;
  row.id = mutant.id, row.title = mutant.place + ": " + mutant.slip;
  row.verdict = name_of(hunt.verdict), row.seconds = hunt.seconds;
  row.detected = hunt.verdict == PlantVerdict::kFound;
  row.planted = row.detected || hunt.verdict == PlantVerdict::kMissed;
  if (row.detected) row.by = {hunt.why};
  if (!row.planted) row.why_not = row.verdict;
  row.reproducer =
      fmt::format("SHADOWGRAPH_MUTANT={} {}/shadowgraph fuzz", mutant.number, options.folder);
  ++report->cases;
  if (hunt.verdict == PlantVerdict::kMissed) {
    Finding f = make_finding("fault.missed", at(mutant.id), "a finding",
                             "none: " + hunt.why + "; " + row.title);
    f.case_id = mutant.id, f.reproduce = row.reproducer;
    report->findings.push_back(std::move(f));
  }
  report->faults.push_back(std::move(row));
}

/// Those of the plan that the options name.
std::vector<Mutant> chosen_mutants(const MutantsCommand& options, Report* report) {
  std::vector<Mutant> mutants;
  Status status = read_mutants(options.folder, &mutants);
  report->bad_input = !status.ok();
  for (Finding& f : status.findings()) report->findings.push_back(std::move(f));
  for (const std::string& id : options.ids)
    if (status.ok() && std::ranges::find(mutants, id, &Mutant::id) == mutants.end())
      throw UsageError("--id: the folder has no mutant '" + id + "'");
  std::erase_if(mutants, [&](const Mutant& m) {
    return !options.ids.empty() && std::ranges::find(options.ids, m.id) == options.ids.end();
  });
  return mutants;
}

}  // namespace

void run_mutants(const MutantsCommand& options, const Common& common, Report* report) {
  const std::vector<Mutant> mutants = chosen_mutants(options, report);
  if (!mutants.empty() && ::access((options.folder + "/mutant_verdict").c_str(), X_OK) != 0)
    throw UsageError("--mutants: " + options.folder + " has no program mutant_verdict");
  std::vector<MutantHunt> hunts(mutants.size());
  std::atomic<size_t> next = 0;
  size_t done = 0;
  std::mutex mutex;
  Progress progress(common, "mutants");
  const auto work = [&] {
    for (size_t i = next++; i < mutants.size() && !interrupted(); i = next++) {
      MutantHunt hunt = hunt_mutant(options, mutants[i]);
      const std::lock_guard lock(mutex);
      hunts[i] = std::move(hunt);
      ++done;
      progress.update(static_cast<double>(done) / static_cast<double>(mutants.size()),
                      static_cast<int64_t>(done), 0);
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < common.num_threads(); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  bool any_found = false;
  for (size_t i = 0; i < mutants.size(); ++i) {
    if (!hunts[i].ended) continue;
    add_mutant(options, mutants[i], hunts[i], report);
    any_found |= hunts[i].verdict == PlantVerdict::kFound;
  }
  if (!any_found && !interrupted() && report->findings.empty())
    add_void("nothing was found", "every mutant is inert, or never acted", report);
}

}  // namespace shadowgraph::cli
