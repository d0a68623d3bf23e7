#include "shadowgraph/fuzz_backend.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/laws.h"
#include "core/nearest.h"
#include "fuzz/fuzz.h"
#include "testing/tries.h"

namespace shadowgraph::testing {
namespace {

class BackendFuzz {
 public:
  BackendFuzz(const Backend& backend, const BackendFuzzOptions& options)
      : backend_(backend), options_(options) {}

  Status run() {
    Status status = check_options();
    if (!status.ok()) return status;
    const Planted planted(faults_);
    histories_.backends = {&backend_};
    histories_.tap = planted.tap();
    histories_.steps = options_.steps;
    histories_.shrink.tries = options_.shrink_tries;
    histories_.refs = planted.refs();
    const Repetition repetition{.seed = options_.seed,
                                .shrink_seconds = 0,
                                .choices = options_.choices,
                                .command = options_.command};
    Tries tries(repetition, "history", [this](Choices& choices) { return one(choices); });
    if (std::optional<Status> given = tries.given()) return *std::move(given);
    return random();
  }

  BackendFuzzCounts& counts() { return counts_; }

 private:
  Status check_options() {
    Status status;
    const auto refuse = [&](const char* field, std::string expected, std::string got) {
      status.add(make_finding("test.options", at(field), std::move(expected), std::move(got)));
    };
    if (backend_.info().name.empty()) refuse("info.name", "a name", "none");
    if (backend_.info().modes.empty()) refuse("info.modes", "a mode", "none");
    if (options_.histories == 0 && !(options_.seconds > 0))
      refuse("histories", "histories, or seconds", "neither");
    if (options_.steps < 1) refuse("steps", ">= 1", std::to_string(options_.steps));
    std::vector<std::string> ids;
    for (const Fault& fault : all_faults())
      if (fault.tap != nullptr) ids.emplace_back(fault.id);
    for (const std::string& id : options_.faults) {
      if (std::ranges::find(ids, id) == ids.end())
        refuse("faults", "ids of `shadowgraph list faults`", id + did_you_mean(id, ids));
      else
        faults_.push_back(find_fault(id));
    }
    return status;
  }

  Outcome one(Choices& choices) const {
    History h = generate_history(choices, histories_);
    h.runner.diagnose = true;
    HistoryResult result = run_history(h, choices, histories_.tap);
    std::string what = h.to_string() + ": step " + std::to_string(result.steps);
    return {std::move(result.findings), std::move(what)};
  }

  Status random() {
    FuzzOptions fuzz;
    fuzz.seed = options_.seed, fuzz.cases = options_.histories, fuzz.seconds = options_.seconds;
    fuzz.threads = options_.threads, fuzz.max_findings = 1;
    fuzz.kernels = false;
    fuzz.histories = histories_;
    fuzz.histories.repeat = "SHADOWGRAPH_CHOICES=";
    fuzz.histories.flags = (options_.command.empty() ? "" : " ") + options_.command;
    const std::atomic<bool> stop = false;
    FuzzResult result = run_fuzz(fuzz, {}, stop);
    counts_.histories = result.cases, counts_.skipped = result.skipped;
    for (const auto& [name, steps] : result.coverage)
      counts_.steps[name.substr(backend_.info().name.size() + 1)] = steps;
    if (!faults_.empty()) add_verdict(result);
    Status status = first_history(result.findings);
    if (status.ok() && faults_.empty()) add_nothing(&status);
    return status;
  }

  /// Histories at once may fail at once: which was first depends on no clock.
  static Status first_history(const Status& all) {
    const auto name = [](const Finding& f) { return f.case_id.substr(0, f.case_id.find(':')); };
    Status first;
    for (const Finding& f : all.findings())
      if (name(f) == name(all.findings().front())) first.add(f);
    return first;
  }

  void add_verdict(FuzzResult& result) {
    const PlantVerdict verdict = verdict_of(result);
    counts_.faults = name_of(verdict);
    if (verdict != PlantVerdict::kMissed) return;
    for (const Fault* fault : faults_) {
      Finding f = make_finding("fault.missed", at(std::string(fault->id)), "a finding",
                               "none: " + result.unnoticed->what);
      f.reproduce = "SHADOWGRAPH_CHOICES=" + to_text(result.unnoticed->choices);
      f.refs.emplace_back(fault->id);
      result.findings.add(std::move(f));
    }
  }

  void add_nothing(Status* status) const {
    for (const ForwardMode mode : backend_.info().modes) {
      const std::string name(name_of(mode));
      if (!counts_.steps.contains(name + " eager"))
        status->add(make_finding("test.nothing", at("info.modes"), "a step of " + name, "none"));
    }
  }

  const Backend& backend_;
  const BackendFuzzOptions& options_;
  std::vector<const Fault*> faults_;
  HistoryOptions histories_;
  BackendFuzzCounts counts_;
};

}  // namespace

Status fuzz_backend(const Backend& backend, const BackendFuzzOptions& options,
                    BackendFuzzCounts* counts) {
  BackendFuzz fuzz(backend, options);
  Status status = fuzz.run();
  if (counts != nullptr) *counts = std::move(fuzz.counts());
  return status;
}

}  // namespace shadowgraph::testing
