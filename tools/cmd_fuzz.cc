// fuzz: random calls and histories against the oracle ladder, on all cores.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "cli.h"
#include "core/shrink.h"
#include "faults/faults.h"
#include "fuzz/call/generate.h"
#include "fuzz/device/device_grid.h"
#include "fuzz/file/call_file.h"
#include "fuzz/file/history_file.h"
#include "fuzz/fuzz.h"
#include "fuzz/grid/step_grid.h"
#include "fuzz_tables.h"
#include "gpu.h"
#include "io/file.h"
#include "report/merge.h"

namespace shadowgraph::cli {
namespace {

struct FuzzCommand {
  Common common;
  double seconds = 60;
  uint64_t cases = 0;
  uint64_t first = 0;
  bool seconds_given = false, cases_given = false, first_given = false;
  Shard shard;                        // of the cases' numbers
  std::string exhaustive;             // a grid's name; empty: random cases
  std::vector<std::string> backends;  // empty: all, and the kernels
  std::vector<std::string> plants;
  std::string save_failures;  // a folder; empty: none
  std::string choices;        // of one history
  DeviceKind device = DeviceKind::kSim;
  bool choices_given = false;
};

constexpr std::string_view kKernels = "kernels";
constexpr std::string_view kOfHistories[] = {"histories"}, kOfPrograms[] = {"programs"};
constexpr std::string_view kNoStep = "the history has no step that its backend runs";

/// What the options name, looked up. Throws UsageError.
struct Chosen {
  std::vector<const Backend*> backends;
  bool kernels = true;
  std::vector<const Fault*> faults;
  std::string flags;              // to choose the same again
  std::vector<std::string> refs;  // of what is planted
  std::string plants;             // those of faults alone
};

Chosen choose(const FuzzCommand& options) {
  Chosen c;
  c.kernels = options.backends.empty();
  for (const std::string& name : options.backends) {
    c.flags += " --backend " + name;
    if (name == kKernels) {
      c.kernels = true;
      continue;
    }
    c.backends.push_back(&named_backend(name));
  }
  if (options.backends.empty()) c.backends.assign(all_backends().begin(), all_backends().end());
  for (const std::string& id : options.plants) {
    const Fault* fault = &planted_fault(id);
    if (std::ranges::find(c.faults, fault) != c.faults.end()) continue;
    c.faults.push_back(fault);
    c.plants += " --plant " + id;
  }
  c.flags += c.plants, c.refs = Planted(c.faults).refs();
  if (c.backends.empty() && !options.exhaustive.empty())
    throw UsageError("--backend: kernels have no histories; `shadowgraph list backends`");
  return c;
}

/// The runs whose laws are judged.
std::vector<std::string_view> laws_of(const Chosen& chosen) {
  std::vector<std::string_view> runs;
  if (!chosen.backends.empty()) runs.emplace_back("histories");
  if (chosen.kernels) runs.emplace_back("calls");
  return runs;
}

constexpr char kFuzzExamples[] =
    "  shadowgraph fuzz                             one minute on all cores\n"
    "  shadowgraph fuzz --cases 100000 --seed 7\n"
    "  shadowgraph fuzz --seed 7 --first 123 --cases 1    one case again, by its number\n"
    "  shadowgraph fuzz --exhaustive device-5       every small program of streams, events, "
    "captures\n"
    "  shadowgraph fuzz --exhaustive decode         every small batch of a mode, in every graph\n"
    "  shadowgraph fuzz --backend flashattention --plant K04      what notices this fault\n"
    "  shadowgraph fuzz --device cuda --plant K04   the same on a GPU, and with the same numbers\n"
    "  shadowgraph fuzz --cases 100000 --shard 2/4 --format json --output 2.json   a quarter; "
    "`merge-reports` joins four\n"
    "Every other case is a history: a scheduler admits, extends, decodes, drafts, verifies, "
    "retracts and evicts, and\n"
    "each step runs eagerly and as the replay of a graph. Both have the same bits, and lie within "
    "the bound of an\n"
    "oracle that knows the requests alone; layers of states or of chosen keys have the bits of "
    "each request alone.\n"
    "Findings are shrunk to few requests.\n"
    "The others are single calls: of attention (paged or ragged, any dtype, mask, layout), with "
    "NaN in every byte that\n"
    "no query may see, or of recurrences, convolutions and gates over states in slots. Exact data "
    "must give the known\n"
    "bits, other data must lie within the derived bound of a float64 oracle, and the same values "
    "arranged otherwise\n"
    "(pages, slots, batch, chunks, threads, instruction set) must give the same bits.";

constexpr const char* kOthers = "give it other cases: `shadowgraph fuzz --plant`";

/// At the end of a run.
void say_what_is_void(const Planted& planted, bool changed, const std::string& nothing,
                      const std::string& more, Report* report) {
  count_plants(planted, changed, report);
  conclude(nothing, more, report);
}

RunOptions run_options(const FuzzCommand& options, DeviceCalls* device = nullptr) {
  RunOptions run;
  run.arith = options.common.arith;
  run.isa = options.common.isa;
  run.device = device;
  return run;
}

/// One case file for each history or call that failed.
void save_failures(const FuzzCommand& options, const Chosen& chosen, const Planted& planted,
                   const FuzzResult& result, Report* report) {
  if (options.save_failures.empty()) return;
  std::map<std::string, int> saved;
  const auto save = [&](const std::string& law, const std::string& text, const std::string& flags) {
    const std::string path = fmt::format("{}/{}-{}.json", options.save_failures, law, ++saved[law]);
    Status status = write_file(path, std::as_bytes(std::span(text)));
    for (Finding& f : status.findings()) report->findings.push_back(std::move(f));
    if (status.ok())
      report->warnings.push_back("saved " + path + ": `shadowgraph replay " + path + flags + "`");
  };
  for (const auto& [law, choices] : result.failures) {
    HistoryCase x = case_of(choices, chosen.backends, planted.tap());
    x.plants = options.plants;
    save(law, to_json(x), "");
  }
  const RunOptions run = run_options(options);
  for (const auto& [law, choices] : result.call_failures)
    save(law, to_json(call_of(choices, run)), run.flags());
}

Report begin_report(const FuzzCommand& options) {
  Report report = start_report("fuzz", options.common);
  const Shard& shard = options.shard;
  if (shard.count > 1) report.shard = ShardSet{{shard.index + 1}, shard.count}.to_string();
  return report;
}

/// All small batches of a mode, of every backend that is chosen.
int run_steps(const FuzzCommand& options, const StepGrid& grid, const Chosen& chosen) {
  catch_interrupts();
  Report report = begin_report(options);
  const auto start = std::chrono::steady_clock::now();
  const Planted planted(chosen.faults);
  std::vector<const Backend*> backends = chosen.backends;
  if (options.backends.empty()) {
    backends.clear();
    for (const std::string_view name : grid.backends) backends.push_back(find_backend(name));
  }
  for (size_t i = 0; i < backends.size() && !interrupted(); ++i) {
    Progress progress(options.common, "parts");
    StepGridResult result = run_step_grid(
        grid, *backends[i], options.common.num_threads(), options.common.max_findings,
        planted.tap(),
        [&](size_t done, size_t of) {
          const double part = static_cast<double>(done) / static_cast<double>(of);
          progress.update((static_cast<double>(i) + part) / static_cast<double>(backends.size()),
                          static_cast<int64_t>(done), 0);
        },
        interrupted(),
        {options.first, options.cases_given ? options.cases : UINT64_MAX, options.shard});
    report.cases += static_cast<int64_t>(result.steps);
    report.skipped += static_cast<int64_t>(result.skipped);
    const std::string name(backends[i]->info().name), mode(grid.name);
    report.coverage.push_back({name, mode, "eager", static_cast<int64_t>(result.steps)});
    report.coverage.push_back({name, mode, "replay", static_cast<int64_t>(result.replays)});
    report.add_laws(result.laws, kOfHistories);
    for (Finding f : std::as_const(result.findings).findings()) {
      add_refs(chosen.refs, &f);
      f.reproduce += chosen.plants;
      report.findings.push_back(std::move(f));
    }
  }
  report.interrupted = interrupted();
  say_what_is_void(
      planted, true,
      options.first_given && options.first >= count_steps(grid)
          ? fmt::format("--first: {} has {} steps", grid.name, count_steps(grid))
          : fmt::format("--exhaustive {}: none of its steps is served by what --backend names",
                        grid.name),
      kOthers, &report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return finish(report, options.common);
}

/// A list that is not the history's own must not look like it.
void say_what_was_read(std::span<const uint32_t> given, std::span<const uint32_t> made,
                       Report* report) {
  const ChoicesRead read = compare_choices(given, made);
  if (!read.out_of_range.empty()) {
    const size_t first = read.out_of_range[0], more = read.out_of_range.size() - 1;
    report->warnings.push_back(fmt::format("--choices: number {} is {}, out of range: read as {}{}",
                                           first + 1, given[first], made[first],
                                           more > 0 ? fmt::format(" (and {} more)", more) : ""));
  }
  if (read.behind > 0)
    report->warnings.push_back(
        fmt::format("--choices: {} of {} numbers not read: the history ended before", read.behind,
                    given.size()));
  if (!read.none) return;
  report->void_verdict = "nothing of --choices was read";
  if (given.empty()) report->warnings.emplace_back("--choices: the list is empty");
}

ChoiceSequence given_choices(const FuzzCommand& options) {
  const auto list = choices_of(options.choices);
  if (!list) throw UsageError("--choices: not numbers with dots between: " + options.choices);
  return *list;
}

/// One call of a kernel, as a finding gives its choices.
int run_call(const FuzzCommand& options) {
  const ChoiceSequence list = given_choices(options);
  Report report = begin_report(options);
  Choices choices(list);
  const Case x = generate(choices);
  Gpu gpu(options.device);
  const RunOptions run = run_options(options, gpu.calls());
  Status status = check_case(x, run);
  report.cases = 1;
  report.coverage.push_back(coverage_of(coverage_key(x), 1));
  for (Finding& f : status.findings()) {
    f.case_id = x.to_string();
    f.reproduce = "shadowgraph fuzz --backend kernels --choices " + options.choices + run.flags();
    report.findings.push_back(std::move(f));
  }
  say_what_was_read(list, choices.made(), &report);
  return finish(report, options.common);
}

/// One history, as a finding gives its choices.
int run_choices(const FuzzCommand& options, const Chosen& chosen) {
  const ChoiceSequence list = given_choices(options);
  Report report = begin_report(options);
  const auto start = std::chrono::steady_clock::now();
  const Planted planted(chosen.faults);
  Choices choices(list);
  History history = generate_history(choices, chosen.backends);
  history.runner.diagnose = true;
  Gpu gpu(options.device);
  history.runner.make_device = gpu.make_device();
  HistoryResult result = run_history(history, choices, planted.tap());
  const bool judged = result.judged > 0 || !result.findings.ok();
  ++(judged ? report.cases : report.skipped);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const auto& [name, steps] : result.coverage)
    report.coverage.push_back(coverage_of(name, steps));
  for (Finding f : std::as_const(result.findings).findings()) {
    f.case_id = history.to_string() + ": step " + std::to_string(result.steps);
    add_refs(chosen.refs, &f);
    f.reproduce = "shadowgraph fuzz --choices " + options.choices + chosen.flags;
    report.findings.push_back(std::move(f));
  }
  say_what_was_read(list, choices.made(), &report);
  bool changed = false;
  if (result.acted > 0 && report.findings.empty()) {
    HistoryOptions histories;
    histories.backends = chosen.backends, histories.tap = Planted(chosen.faults).tap();
    changed = !changed_by_plant(choices.made(), histories).empty();
  }
  say_what_is_void(planted, changed, "--choices: " + std::string(kNoStep), kOthers, &report);
  return finish(report, options.common);
}

/// All device programs of the small scope.
int run_device(const FuzzCommand& options, int calls) {
  catch_interrupts();
  Report report = begin_report(options);
  const auto start = std::chrono::steady_clock::now();
  DeviceGridResult result;
  {
    Progress progress(options.common, "parts");
    result = run_device_grid(
        calls, options.common.num_threads(), options.common.max_findings,
        [&](size_t done, size_t of) {
          progress.update(static_cast<double>(done) / static_cast<double>(of),
                          static_cast<int64_t>(done), 0);
        },
        interrupted(), options.shard);
  }
  const std::string grid = "device-" + std::to_string(calls);
  report.interrupted = interrupted();
  report.cases = static_cast<int64_t>(result.programs);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (Finding f : std::as_const(result.findings).findings()) {
    f.reproduce = "shadowgraph fuzz --exhaustive " + grid;
    report.findings.push_back(std::move(f));
  }
  report.add_laws(result.laws, kOfPrograms);
  for (const auto& [code, count] : result.coverage.codes)
    report.coverage.push_back({grid, std::string(name_of(code)), "eager", count});
  return finish(report, options.common);
}

/// The share of the time or of the cases, whichever ends first.
double share_done(const FuzzOptions& fuzz, const FuzzProgress& p) {
  const double of_time = fuzz.seconds > 0 ? p.seconds / fuzz.seconds : 0;
  const double cases = static_cast<double>(fuzz.cases) / static_cast<double>(fuzz.shard.count);
  return std::max(of_time, fuzz.cases > 0 ? static_cast<double>(p.cases) / cases : 0);
}

std::string nothing_ran(const FuzzCommand& options) {
  return options.cases > 0 && options.cases < options.shard.count
             ? "--shard: none of these cases is of this shard"
             : "--seconds: too short for one case";
}

/// Random cases and histories.
int run_random(const FuzzCommand& options, const Chosen& chosen) {
  const Planted planted(chosen.faults);
  FuzzOptions fuzz;
  fuzz.seed = options.common.seed;
  fuzz.first = options.first;
  fuzz.cases = options.cases;
  fuzz.shard = options.shard;
  fuzz.seconds = options.cases != 0 && !options.seconds_given ? 0 : options.seconds;
  fuzz.threads = options.common.num_threads();
  fuzz.max_findings = options.common.max_findings;
  Gpu gpu(options.device);
  fuzz.run = run_options(options, gpu.calls());
  fuzz.kernels = chosen.kernels;
  fuzz.histories.backends = chosen.backends;
  fuzz.counted_tap = planted.tap();
  fuzz.histories.tap = Planted(chosen.faults).tap();
  fuzz.histories.make_device = gpu.make_device();
  const std::string flags = chosen.flags + (gpu.calls() != nullptr ? " --device cuda" : "");
  fuzz.histories.flags = flags, fuzz.histories.refs = chosen.refs;

  if (!options.save_failures.empty()) check_folder("--save-failures", options.save_failures);
  catch_interrupts();
  Report report = begin_report(options);
  FuzzResult result;
  {
    Progress progress(options.common, "cases");
    result = run_fuzz(
        fuzz,
        [&](const FuzzProgress& p) {
          progress.update(share_done(fuzz, p), static_cast<int64_t>(p.cases),
                          static_cast<int64_t>(p.findings));
        },
        interrupted());
  }
  report.interrupted = interrupted();
  report.cases = static_cast<int64_t>(result.cases);
  report.skipped = static_cast<int64_t>(result.skipped);
  report.seconds = result.seconds;
  report.findings.assign(result.findings.findings().begin(), result.findings.findings().end());
  for (const auto& [name, cases] : result.coverage)
    report.coverage.push_back(coverage_of(name, cases));
  report.add_laws(result.laws, laws_of(chosen));
  report.features = result.features;
  say_what_is_void(planted, result.unnoticed.has_value(),
                   result.skipped > 0 ? std::string(kNoStep) : nothing_ran(options), kMoreCases,
                   &report);
  save_failures(options, chosen, planted, result, &report);
  const FuzzHistograms& h = result.histograms;
  if (!chosen.kernels) return finish(report, options.common);
  report.histograms = {histogram_of("keys", h.keys, {0, 1, 16, 64, 128, 192, 256, 512, 1024}),
                       histogram_of("requests", h.requests, {1, 2, 3, 4, 5}),
                       histogram_of("head_dim", h.head_dim, {1, 16, 32, 64, 128})};
  return finish(report, options.common);
}

int run_with(FuzzCommand& options) {
  apply(options.common);
  const Chosen chosen = choose(options);
  if (const StepGrid* grid = find_step_grid(options.exhaustive))
    return run_steps(options, *grid, chosen);
  if (!options.exhaustive.empty()) {
    if (!chosen.flags.empty())
      throw UsageError("--exhaustive: no backend runs in " + options.exhaustive);
    if (options.cases_given || options.first_given)
      throw UsageError("--exhaustive: " + options.exhaustive + " runs whole, without " +
                       (options.cases_given ? "--cases" : "--first"));
    return run_device(options, options.exhaustive.back() - '0');
  }
  check_device(options.device, options.common);
  if (options.device == DeviceKind::kCuda && !options.exhaustive.empty())
    throw UsageError("--device cuda: " + options.exhaustive + " runs on the simulated device");
  if (options.choices_given)
    return chosen.backends.empty() ? run_call(options) : run_choices(options, chosen);
  return run_random(options, chosen);
}

/// The i-th of n parts of a run.
Option add_shard(Command& command, const std::shared_ptr<FuzzCommand>& options) {
  const auto parse = [options](const std::string& text) {
    const auto set = parse_shards(text);
    if (!set || set->parts.size() != 1)
      throw BadValue("'" + text + "' is not a shard as 2/4: 1/N to N/N");
    options->shard = {set->parts[0] - 1, set->count};
  };
  return command.parsed(
      "--shard", parse,
      "The i-th of n parts of the same run: its cases are those whose number mod n is i - 1",
      "i/n");
}

}  // namespace

Verb add_fuzz(CLI::App& app) {
  Command command(
      app, "fuzz",
      "Run random calls and histories against the oracle: exact data, error bounds, equal bits.",
      kFuzzExamples);
  auto options = std::make_shared<FuzzCommand>();
  const Option seconds =
      command.number("--seconds", options->seconds, 0.01, 1e7, "Run for so long (default 60)");
  const Option cases = command.number("--cases", options->cases, uint64_t{1}, uint64_t{1} << 62,
                                      "Run so many cases; with --seconds, whichever ends first");
  const Option first =
      command.number("--first", options->first, uint64_t{0}, uint64_t{1} << 62,
                     "Number of the first case (default 0); of a mode's grid, too");
  command.number("--max-findings", options->common.max_findings, size_t{1},
                 std::numeric_limits<size_t>::max(),
                 "Stop after N findings, and list no more than these (default 100)");
  std::vector<std::pair<std::string, std::string>> grids = {
      {"device-3", "device-3"}, {"device-4", "device-4"}, {"device-5", "device-5"}};
  for (const StepGrid& grid : step_grids()) grids.emplace_back(grid.name, grid.name);
  const Option exhaustive = command.choice(
      "--exhaustive", options->exhaustive, grids,
      "Instead, everything up to a small size: `shadowgraph list grids`; by default by the "
      "backends whose layers it is made of");
  exhaustive.excludes(seconds);
  command.names("--backend", options->backends, "NAME",
                "Histories of this backend only, or `kernels`; may be given more than once");
  command.names(
      "--plant", options->plants, "ID",
      "Run with this fault in, to see what notices: `shadowgraph list faults`; may be given "
      "more than once");
  command.text(
      "--save-failures", options->save_failures,
      "Write each history or call that fails, shrunk, into this folder: `shadowgraph replay`",
      "DIR");
  add_device(command, options->device);
  const Option choices =
      command
          .text("--choices", options->choices,
                "One history again: what a finding prints; with --backend kernels one call",
                "N.N.N")
          .excludes(seconds)
          .excludes(cases)
          .excludes(first)
          .excludes(exhaustive);
  add_shard(command, options).excludes(choices);
  add_common_options(command, options->common);
  add_coverage(command, options->common);
  return {command, [options, seconds, cases, first, choices] {
            options->seconds_given = seconds.given();
            options->cases_given = cases.given();
            options->first_given = first.given();
            options->choices_given = choices.given();
            return run_with(*options);
          }};
}

}  // namespace shadowgraph::cli
