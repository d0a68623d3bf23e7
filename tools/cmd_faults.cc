// faults: every fault of the catalogue planted in turn, and what noticed it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "campaign.h"
#include "cli.h"
#include "core/choices.h"
#include "core/laws.h"
#include "fuzz/history/fault_hunt.h"
#include "fuzz/history/fault_matrix.h"
#include "gpu.h"
#include "mutants.h"

namespace shadowgraph::cli {
namespace {

struct FaultsCommand {
  Common common;
  CampaignOptions campaign;
  std::vector<std::string> ids;       // empty: all
  std::vector<std::string> backends;  // of the matrix; empty: all
  bool matrix = false;
  MutantsCommand mutants;  // in place of faults
  uint64_t cases = 0;      // histories of each fault, or of a pair of the matrix; 0: not given
  double budget_seconds = 60;
  bool budget_given = false, backend_given = false;
  uint64_t clean_cases = 0;  // 0: none
  bool diagnose = false;
  DeviceKind device = DeviceKind::kSim;
};

// Histories until a fault's wrong output is waited for in vain.
constexpr uint64_t kDiagnosedCases = 4000;
constexpr size_t kMostNamed = 3;  // mistakes
// Histories of each fault on a GPU.
constexpr uint64_t kTwinCases = 100;

// Time and histories for a pair of the matrix, where options do not say.
constexpr double kPairSeconds = 2;
constexpr uint64_t kPairCases = 60;
// To make the history small that noticed a fault, where the budget is time; with --cases it is the
// same on every machine.
constexpr double kShrinkSeconds = 5;

// A fault's budget in a ledger, and the time after which it hangs.
constexpr uint64_t kLedgerCases = 4000;
constexpr double kLedgerSeconds = 3600;

constexpr char kFaultsExamples[] =
    "  shadowgraph faults                           the whole catalogue, a minute for each at "
    "most\n"
    "  shadowgraph faults --id K31 --id K36\n"
    "  shadowgraph faults --format json --output faults.json\n"
    "  shadowgraph faults --matrix                  each fault on each backend: 6 minutes on 16 "
    "cores\n"
    "  shadowgraph faults --matrix --id K13 --backend flashmla --backend deepseek_v4\n"
    "  shadowgraph faults --mutants build/recall    slips that nobody chose, in the program that "
    "`./dev recall` built\n"
    "  shadowgraph faults --ledger night/           any number of processes share the catalogue; "
    "`merge-reports night/`\n"
    "  shadowgraph faults --device cuda             on a GPU, too: does it give the numbers that "
    "are found here?\n"
    "Each fault is planted from outside, and ordinary histories run, of all backends and the same "
    "for every fault,\n"
    "until something notices it. The history that did, and the smallest one that still does, are "
    "then run without the\n"
    "fault: they must be clean. A fault is found; or missed: it changed something, and nothing "
    "noticed it; or inert: it\n"
    "acted, and nothing that anything reads was changed; or it never "
    "acted: no history had\n"
    "what it changes. Exit code: 0 all are found, 1 some are missed, 3 none is missed and some are "
    "inert or never acted;\n"
    "with --matrix or --mutants 1 if one is missed, else 0 if one is found: no fault acts "
    "everywhere, "
    "and a slip may change nothing. "
    "`shadowgraph list "
    "faults` has the catalogue, `shadowgraph explain "
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

  const Report& report() const { return report_; }

  /// Plants one fault, and adds what came of it: a row, and findings. With one thread and a budget
  /// in histories it is the same in every process.
  void add(const Fault& fault) {
    FaultReport row;
    row.id = fault.id, row.title = fault.title, row.refs = words_of(fault.refs);
    row.why_not = fault.why_not;
    const MakeDevice make_device = gpu_.make_device();
    if (fault.tap != nullptr && make_device) run_on_gpu(make_device, fault, &row);
    if (fault.tap != nullptr && !make_device) hunt(fault, &row);
    report_.faults.push_back(std::move(row));
  }

  int run() {
    const auto start = std::chrono::steady_clock::now();
    const bool mutants = !options_.mutants.folder.empty();
    const auto faults = mutants ? std::vector<const Fault*>{} : chosen_faults(options_);
    if (mutants) {
      run_mutants(options_.mutants, options_.common, &report_);
    } else if (options_.matrix) {
      run_matrix(faults);
    } else {
      Progress progress(options_.common, "faults");
      for (size_t i = 0; i < faults.size() && !interrupted(); ++i) {
        add(*faults[i]);
        progress.update(static_cast<double>(i + 1) / static_cast<double>(faults.size()),
                        static_cast<int64_t>(i + 1), static_cast<int64_t>(report_.findings.size()));
      }
    }
    if (options_.clean_cases > 0 && !interrupted()) run_clean();
    report_.interrupted = interrupted();
    if (!mutants) judge_faults(&report_);
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return finish(report_, options_.common);
  }

 private:
  /// The same wrong numbers there as here, in every history.
  void run_on_gpu(const MakeDevice& make_device, const Fault& fault, FaultReport* row) {
    if (!fault.is_memory_safe()) {
      row->why_not = "it leaves its buffers, or depends on timing: not run on a GPU";
      return;
    }
    const Planted planted({&fault});
    HuntOptions budget = hunt_options();
    if (budget.cases == 0) budget.cases = kTwinCases;
    FaultTwin twin = run_fault_on(make_device, planted, budget, interrupted());
    row->planted = planted.acted(0) > 0;
    row->detected = twin.failed > 0;
    row->by = twin.laws;
    row->cases = static_cast<int64_t>(twin.cases), row->seconds = twin.seconds;
    report_.cases += row->cases;
    if (!row->planted) row->why_not = why_void(PlantVerdict::kNeverActed, 0, twin.cases);
    for (const Finding& f : std::as_const(twin.differences).findings())
      report_.findings.push_back(f);
  }

  /// In histories, time does not count, unless both are given.
  HuntOptions hunt_options() const {
    const bool in_cases = options_.cases > 0 && !options_.budget_given;
    return {.seed = options_.common.seed,
            .cases = options_.cases,
            .seconds = in_cases ? 0 : options_.budget_seconds,
            .threads = options_.common.num_threads(),
            .shrink = in_cases ? kSameEverywhere : ShrinkBudget{.seconds = kShrinkSeconds}};
  }

  void hunt(const Fault& fault, FaultReport* row) {
    const Planted planted({&fault});
    const FaultHunt found = hunt_fault(planted, hunt_options(), interrupted());
    row->detected = found.verdict == PlantVerdict::kFound;
    row->planted = row->detected || found.verdict == PlantVerdict::kMissed;
    row->by = found.laws;
    row->cases = static_cast<int64_t>(found.cases), row->seconds = found.seconds;
    report_.cases += row->cases;
    if (!row->detected && interrupted()) {
      row->planted = false, row->why_not = "interrupted";
      return;
    }
    row->verdict = name_of(found.verdict);
    if (options_.diagnose && row->detected) diagnose(fault, planted, row);
    const auto findings = std::as_const(found.findings).findings();
    if (!findings.empty()) row->reproducer = findings[0].reproduce;
    if (found.verdict == PlantVerdict::kMissed) {
      add_finding("fault.missed", fault, "a finding",
                  fmt::format("none in {} cases; it acted in {}: {}", row->cases, found.acted,
                              found.unnoticed->what));
      report_.findings.back().reproduce = "shadowgraph fuzz --choices " +
                                          to_text(found.unnoticed->choices) + " --plant " +
                                          std::string(fault.id);
    }
    if (!row->planted) row->why_not = why_void(found.verdict, found.acted, found.cases);
    for (const Finding& f : std::as_const(found.clean).findings())
      add_finding("fault.innocent", fault, "no finding without it", f.to_string());
  }

  static std::string why_void(PlantVerdict verdict, uint64_t acted, uint64_t cases) {
    if (verdict == PlantVerdict::kNeverActed)
      return fmt::format("none of the {} histories of this run had what it changes", cases);
    return fmt::format(
        "it acted in {} of {} histories, and nothing that anything reads was changed", acted,
        cases);
  }

  void run_matrix(std::vector<const Fault*> faults) {
    std::erase_if(faults, [](const Fault* f) { return f->tap == nullptr; });
    std::vector<const Backend*> backends(all_backends().begin(), all_backends().end());
    if (!options_.backends.empty()) backends.clear();
    for (const std::string& name : options_.backends) backends.push_back(&named_backend(name));
    std::vector<MatrixPair> pairs;
    {
      Progress progress(options_.common, "pairs");
      pairs = run_fault_matrix(
          faults, backends,
          {.seed = options_.common.seed,
           .cases = options_.cases > 0 ? options_.cases : kPairCases,
           .seconds = options_.budget_given ? options_.budget_seconds : kPairSeconds,
           .threads = options_.common.num_threads()},
          [&](size_t done, size_t of) {
            progress.update(static_cast<double>(done) / static_cast<double>(of),
                            static_cast<int64_t>(done), 0);
          },
          interrupted());
    }
    bool any_found = false;
    // An interrupted run shows the faults that it is through with.
    for (auto row = pairs.begin(); row != pairs.end(); row += std::ssize(backends)) {
      const std::span of_fault(row, backends.size());
      if (std::ranges::count(of_fault, 0u, &MatrixPair::cases) > 0) continue;
      for (const MatrixPair& pair : of_fault) {
        add_pair(pair);
        any_found |= pair.verdict == PlantVerdict::kFound;
      }
    }
    if (!any_found && !interrupted() && report_.findings.empty())
      add_void("nothing was found", "every pair is inert, or never acted", &report_);
  }

  void add_pair(const MatrixPair& pair) {
    FaultPair row;
    row.fault = pair.fault->id, row.backend = pair.backend->info().name;
    row.verdict = name_of(pair.verdict);
    row.cases = static_cast<int64_t>(pair.cases), row.acted = static_cast<int64_t>(pair.acted);
    row.by = pair.law, row.why = pair.why;
    if (!pair.choices.empty())
      row.reproducer = "shadowgraph fuzz --choices " + to_text(pair.choices) + " --backend " +
                       row.backend + " --plant " + row.fault;
    report_.cases += row.cases;
    if (pair.verdict == PlantVerdict::kMissed) {
      add_finding(
          "fault.missed", *pair.fault, "a finding on " + row.backend,
          fmt::format("none in {} cases; it acted in {}: {}", row.cases, row.acted, row.why));
      report_.findings.back().case_id = row.fault + " on " + row.backend;
      report_.findings.back().where.backend = row.backend;
      report_.findings.back().reproduce = row.reproducer;
    }
    report_.matrix.push_back(std::move(row));
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
    if (options_.cases > 0) f.reproduce += fmt::format(" --cases {}", options_.cases);
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

/// Each fault is a case.
VerbCampaign faults_campaign(const FaultsCommand& options) {
  VerbCampaign v = start_campaign("faults", options.common, options.campaign);
  const std::vector<const Fault*> faults = chosen_faults(options);
  v.campaign.options.emplace_back("id", fmt::format("{}", fmt::join(options.ids, " ")));
  v.campaign.options.emplace_back("histories", std::to_string(options.cases));
  v.campaign.options.emplace_back("diagnose", options.diagnose ? "yes" : "");
  v.campaign.cases = faults.size();
  v.name = [faults](const CampaignRange& range) {
    return "fault " + std::string(faults[range.first]->id);
  };
  v.reproduce = [options, faults](const CampaignRange& range) {
    std::string command = "shadowgraph faults";
    for (uint64_t i = 0; i < range.count; ++i)
      command += " --id " + std::string(faults[range.first + i]->id);
    return fmt::format("{} --seed {} --cases {} --threads 1{}{}", command, options.common.seed,
                       options.cases, options.diagnose ? " --diagnose" : "",
                       options.common.reproduce_flags());
  };
  v.run = [options, faults](const CampaignRange& range, std::span<const CaseFile>,
                            const std::function<void(uint64_t)>& at) {
    FaultsCommand alone = options;
    alone.common.threads = 1;
    FaultsRun run(alone);
    for (uint64_t i = range.first; i < range.first + range.count && !range.corpus; ++i)
      at(i), run.add(*faults[i]);
    return RangeResult{body_of(run.report(), options.campaign.max_findings), {}};
  };
  return v;
}

/// A fault's result must not depend on who runs it.
void check_ledger(const FaultsCommand& options) {
  if (options.matrix)
    throw UsageError("--matrix: a ledger shares faults out, not pairs; run it without --ledger");
  if (options.clean_cases > 0)
    throw UsageError(
        "--clean-cases: with nothing planted it is `shadowgraph fuzz` that a ledger shares out");
  if (options.device == DeviceKind::kCuda)
    throw UsageError("--device cuda: workers of a ledger run on the simulated device");
  if (options.budget_given)
    throw UsageError("--budget-seconds: machines differ in speed; with --ledger give --cases");
}

int run_with(FaultsCommand& options) {
  const bool shared = !options.campaign.ledger.empty();
  if (shared) check_ledger(options);
  check_device(options.device, options.common);
  if (options.device == DeviceKind::kCuda && options.diagnose)
    throw UsageError("--diagnose is of what is found here, without --device cuda");
  if (options.matrix && (options.device == DeviceKind::kCuda || options.diagnose))
    throw UsageError("--matrix runs on the simulated device, without --diagnose");
  const bool mutants = !options.mutants.folder.empty();
  if (!options.matrix && !mutants && options.backend_given)
    throw UsageError("--backend is of --matrix and --mutants");
  if (mutants && options.backends.size() > 1)
    throw UsageError("--backend: with --mutants one, or all");
  if (mutants && (options.matrix || options.diagnose || shared || options.clean_cases > 0 ||
                  options.device == DeviceKind::kCuda))
    throw UsageError("--mutants runs a program of its own: --id, --backend, --cases, --threads");
  options.mutants.ids = options.ids;
  if (mutants && !options.backends.empty()) options.mutants.backend = options.backends[0];
  if (options.cases > 0) options.mutants.cases = options.cases;
  if (options.budget_given) options.mutants.seconds = options.budget_seconds;
  apply(options.common);
  if (shared) {
    if (options.cases == 0) options.cases = kLedgerCases;
    options.campaign.max_findings = options.common.max_findings;
    return run_on_ledger(options.common, options.campaign, faults_campaign(options));
  }
  catch_interrupts();
  return FaultsRun(options).run();
}

}  // namespace

Verb add_faults(CLI::App& app) {
  Command command(app, "faults",
                  "Plant each fault that an engine once shipped, and see what notices it.",
                  kFaultsExamples);
  auto options = std::make_shared<FaultsCommand>();
  options->campaign.range = 1, options->campaign.case_seconds = kLedgerSeconds;
  command.names("--id", options->ids, "ID",
                "Of the catalogue: `shadowgraph list faults`; may be given more than once");
  const Option budget = command.number(
      "--budget-seconds", options->budget_seconds, 0.01, 1e6,
      "For each fault (default 60); with --matrix for each pair that acts and is not "
      "found (default 5); with --mutants the time after which one hangs (default 600)");
  command.flag("--matrix", options->matrix,
               "Each fault on each backend: found, missed, inert, or never acted and why");
  command.text("--mutants", options->mutants.folder,
               "Instead, each mutant of a folder of `./dev recall`, in its program: the same "
               "verdicts",
               "FOLDER");
  const Option backend =
      command.names("--backend", options->backends, "NAME",
                    "With --matrix: on this backend only; may be given more than once; with "
                    "--mutants one");
  command.number(
      "--cases", options->cases, uint64_t{1}, uint64_t{1} << 62,
      "Histories of each fault, until it is found, in place of a budget in seconds; with "
      "--ledger always (default 4000); with --matrix of each pair (default 60), with --mutants of "
      "each "
      "mutant (default 1000)");
  command.number("--clean-cases", options->clean_cases, uint64_t{1}, uint64_t{1} << 62,
                 "Afterwards, so many histories with nothing planted");
  command.flag("--diagnose", options->diagnose,
               "Also look for a history in which outputs are wrong, and name the mistake that "
               "would make them so");
  add_campaign(command, options->campaign);
  add_device(command, options->device);
  add_max_findings(command, options->common);
  add_common_options(command, options->common);
  return {command, [options, budget, backend] {
            options->budget_given = budget.given();
            options->backend_given = backend.given();
            return run_with(*options);
          }};
}

}  // namespace shadowgraph::cli
