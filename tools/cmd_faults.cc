// faults: every fault of the catalogue planted in turn, and what noticed it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "cli.h"
#include "core/laws.h"
#include "fuzz/history/fault_hunt.h"
#include "gpu.h"

namespace shadowgraph::cli {
namespace {

struct FaultsCommand {
  Common common;
  std::vector<std::string> ids;  // empty: all
  double budget_seconds = 60;
  uint64_t clean_cases = 0;
  bool diagnose = false;
  DeviceKind device = DeviceKind::kSim;
};

// Histories until a fault's wrong output is waited for in vain.
constexpr uint64_t kDiagnosedCases = 4000;
constexpr size_t kMostNamed = 3;  // mistakes
// Histories of each fault on a GPU.
constexpr uint64_t kTwinCases = 100;

constexpr char kFaultsExamples[] =
    "  shadowgraph faults                           the whole catalogue, a minute for each at "
    "most\n"
    "  shadowgraph faults --id K31 --id K36\n"
    "  shadowgraph faults --format json --output faults.json\n"
    "  shadowgraph faults --device cuda             on a GPU, too: does it give the numbers that "
    "are found here?\n"
    "Each fault is planted from outside, and ordinary histories run, of all backends and the same "
    "for every fault,\n"
    "until something notices it. The history that did, and the smallest one that still does, are "
    "then run without the\n"
    "fault: they must be clean. `shadowgraph list faults` has the catalogue, `shadowgraph explain "
    "K31` one entry.";

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::vector<const Fault*> chosen_faults(const FaultsCommand& options) {
  std::vector<const Fault*> chosen;
  for (const std::string& id : options.ids) {
    const Fault* fault = find_fault(id);
    if (fault == nullptr)
      throw UsageError("--id: there is no '" + id + "'; `shadowgraph list faults`");
    chosen.push_back(fault);
  }
  if (!options.ids.empty()) return chosen;
  for (const Fault& fault : all_faults()) chosen.push_back(&fault);
  return chosen;
}

class FaultsRun {
 public:
  explicit FaultsRun(const FaultsCommand& options)
      : options_(options), report_(start_report("faults", options.common)), gpu_(options.device) {}

  int run() {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<const Fault*> faults = chosen_faults(options_);
    {
      Progress progress(options_.common, "faults");
      for (size_t i = 0; i < faults.size() && !interrupted(); ++i) {
        add(*faults[i]);
        progress.update(static_cast<double>(i + 1) / static_cast<double>(faults.size()),
                        static_cast<int64_t>(i + 1), static_cast<int64_t>(report_.findings.size()));
      }
    }
    if (options_.clean_cases > 0 && !interrupted()) run_clean();
    report_.interrupted = interrupted();
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return finish(report_, options_.common);
  }

 private:
  void add(const Fault& fault) {
    FaultReport row;
    row.id = fault.id, row.title = fault.title, row.refs = words_of(fault.refs);
    row.why_not = fault.why_not;
    const MakeDevice make_device = gpu_.make_device();
    if (fault.tap != nullptr && make_device) run_on_gpu(make_device, fault, &row);
    if (fault.tap != nullptr && !make_device) hunt(fault, &row);
    report_.faults.push_back(std::move(row));
  }

  /// The same wrong numbers there as here, in every history.
  void run_on_gpu(const MakeDevice& make_device, const Fault& fault, FaultReport* row) {
    if (!fault.is_memory_safe()) {
      row->why_not = "it leaves its buffers, or depends on timing: not run on a GPU";
      return;
    }
    const Planted planted({&fault});
    FaultTwin twin = run_fault_on(make_device, planted,
                                  {.seed = options_.common.seed,
                                   .cases = kTwinCases,
                                   .seconds = options_.budget_seconds,
                                   .threads = options_.common.num_threads()},
                                  interrupted());
    row->planted = planted.acted(0) > 0;
    row->detected = twin.failed > 0;
    row->by = twin.laws;
    row->cases = static_cast<int64_t>(twin.cases), row->seconds = twin.seconds;
    report_.cases += row->cases;
    if (!row->planted) row->why_not = "no history had what it changes";
    for (const Finding& f : std::as_const(twin.differences).findings())
      report_.findings.push_back(f);
  }

  void hunt(const Fault& fault, FaultReport* row) {
    const Planted planted({&fault});
    const FaultHunt found = hunt_fault(planted,
                                       {.seed = options_.common.seed,
                                        .seconds = options_.budget_seconds,
                                        .threads = options_.common.num_threads()},
                                       interrupted());
    row->planted = planted.acted(0) > 0;
    row->detected = !found.laws.empty();
    row->by = found.laws;
    row->cases = static_cast<int64_t>(found.cases), row->seconds = found.seconds;
    report_.cases += row->cases;
    if (options_.diagnose && row->detected) diagnose(fault, planted, row);
    const auto findings = std::as_const(found.findings).findings();
    if (!findings.empty()) row->reproducer = findings[0].reproduce;
    if (!row->planted) row->why_not = "no history had what it changes";
    if (!row->detected && !interrupted()) {
      add_finding("fault.missed", fault, "a finding",
                  fmt::format("none in {} cases, {:.0f} s; it acted {} times", row->cases,
                              row->seconds, planted.acted(0)));
    }
    for (const Finding& f : std::as_const(found.clean).findings())
      add_finding("fault.innocent", fault, "no finding without it", f.to_string());
  }

  /// What its wrong outputs say it is, if it changes any.
  void diagnose(const Fault& fault, const Planted& planted, FaultReport* row) {
    const FaultDiagnosis d = diagnose_fault(planted,
                                            {.seed = options_.common.seed,
                                             .cases = kDiagnosedCases,
                                             .threads = options_.common.num_threads()},
                                            interrupted());
    if (d.failed == 0) return;
    row->diagnosis = d.mistakes;
    row->named = !d.mistakes.empty() && fault.is_seen_as(d.mistakes[0].mistake);
    row->diagnosis.resize(std::min(row->diagnosis.size(), kMostNamed));
  }

  void add_finding(LawId law, const Fault& fault, std::string expected, std::string got) {
    Finding f = make_finding(law, at(std::string(fault.id)), std::move(expected), std::move(got));
    f.case_id = fault.id;
    f.refs = words_of(fault.refs);
    f.reproduce =
        fmt::format("shadowgraph faults --id {} --seed {}", fault.id, options_.common.seed);
    report_.findings.push_back(std::move(f));
  }

  /// The same histories with nothing planted.
  void run_clean() {
    FuzzOptions fuzz;
    fuzz.seed = options_.common.seed, fuzz.cases = options_.clean_cases;
    fuzz.threads = options_.common.num_threads();
    fuzz.kernels = false;
    fuzz.max_findings = options_.common.max_findings;
    fuzz.histories.backends.assign(all_backends().begin(), all_backends().end());
    fuzz.histories.make_device = gpu_.make_device();
    FuzzResult result;
    {
      Progress progress(options_.common, "clean cases");
      result = run_fuzz(
          fuzz,
          [&](const FuzzProgress& p) {
            progress.update(
                static_cast<double>(p.cases) / static_cast<double>(options_.clean_cases),
                static_cast<int64_t>(p.cases), static_cast<int64_t>(p.findings));
          },
          interrupted());
    }
    report_.cases += static_cast<int64_t>(result.cases);
    report_.skipped += static_cast<int64_t>(result.skipped);
    for (const Finding& f : std::as_const(result.findings).findings())
      report_.findings.push_back(f);
  }

  const FaultsCommand& options_;
  Report report_;
  Gpu gpu_;
};

int run_with(FaultsCommand& options) {
  check_device(options.device, options.common);
  if (options.device == DeviceKind::kCuda && options.diagnose)
    throw UsageError("--diagnose is of what is found here, without --device cuda");
  apply(options.common);
  catch_interrupts();
  return FaultsRun(options).run();
}

}  // namespace

Verb add_faults(CLI::App& app) {
  Command command(app, "faults",
                  "Plant each fault that an engine once shipped, and see what notices it.",
                  kFaultsExamples);
  auto options = std::make_shared<FaultsCommand>();
  command.names("--id", options->ids, "ID",
                "Of the catalogue: `shadowgraph list faults`; may be given more than once");
  command.number("--budget-seconds", options->budget_seconds, 0.01, 1e6,
                 "For each fault (default 60)");
  command.number("--clean-cases", options->clean_cases, uint64_t{1}, uint64_t{1} << 62,
                 "Afterwards, so many histories with nothing planted");
  command.flag("--diagnose", options->diagnose,
               "Also look for a history in which outputs are wrong, and name the mistake that "
               "would make them so");
  add_device(command, options->device);
  add_max_findings(command, options->common);
  add_common_options(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
