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
#include "fuzz/device/update_grid.h"
#include "fuzz/file/call_file.h"
#include "fuzz/file/history_file.h"
#include "fuzz/fuzz.h"
#include "fuzz/grid/step_grid.h"
#include "fuzz/mutate/call_grid.h"
#include "fuzz_command.h"
#include "fuzz_tables.h"
#include "io/file.h"
#include "report/merge.h"

namespace shadowgraph::cli {

CaseRange range_of(const FuzzCommand& options) {
  return {options.first, options.cases > 0 ? options.cases : CaseRange::kNoEnd, options.shard};
}

void say_what_is_void(const Planted& planted, bool changed, const std::string& nothing,
                      const std::string& more, Report* report) {
  count_plants(planted, changed, report);
  conclude(nothing, more, report);
}

RunOptions run_options(const FuzzCommand& options, DeviceCalls* device) {
  RunOptions run;
  run.arith = options.common.arith;
  run.isa = options.common.isa;
  run.device = device;
  return run;
}

Report begin_report(const FuzzCommand& options) {
  Report report = start_report("fuzz", options.common);
  const Shard& shard = options.shard;
  if (shard.count > 1) report.shard = ShardSet{{shard.index + 1}, shard.count}.to_string();
  return report;
}

namespace {

constexpr std::string_view kKernels = "kernels";

/// Throws UsageError.
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

constexpr char kFuzzExamples[] =
    "  shadowgraph fuzz                             one minute on all cores\n"
    "  shadowgraph fuzz --cases 100000 --seed 7\n"
    "  shadowgraph fuzz --seed 7 --first 123 --cases 1    one case again, by its number\n"
    "  shadowgraph fuzz --exhaustive device-5       every small program of streams, events, "
    "captures\n"
    "  shadowgraph fuzz --exhaustive decode         every small batch of a mode, in every graph\n"
    "  shadowgraph fuzz --backend flashattention --plant K04      what notices this fault\n"
    "  shadowgraph fuzz --cases 200 --backend triton --digest a.txt      to compare with another "
    "version's, or another machine's\n"
    "  shadowgraph fuzz --device cuda --plant K04   the same on a GPU, and with the same numbers\n"
    "  shadowgraph fuzz --cases 100000 --ledger night/     shared with any number of processes; "
    "`merge-reports night/` has the verdict\n"
    "  shadowgraph fuzz --cases 100000 --shard 2/4 --format json --output 2.json   a quarter; "
    "`merge-reports` joins four\n"
    "Every other case is a history: a scheduler admits, extends, decodes, drafts, verifies, "
    "retracts and evicts, and\n"
    "each step runs eagerly and as the replay of a graph. Both have the same bits, and lie within "
    "the bound of an\n"
    "oracle that knows the requests alone; layers of states or of chosen keys have the bits of "
    "each request alone.\n"
    "Findings are shrunk to few requests, each for 20 s or a third of --seconds at most.\n"
    "The others are single calls: of attention (paged or ragged, any dtype, mask, layout), with "
    "NaN in every byte that\n"
    "no query may see, or of recurrences, convolutions and gates over states in slots. Exact data "
    "must give the known\n"
    "bits, other data must lie within the derived bound of a float64 oracle, and the same values "
    "arranged otherwise\n"
    "(pages, slots, batch, chunks, threads, instruction set) must give the same bits.";

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
int run_call(const FuzzCommand& options, const Chosen& chosen) {
  const ChoiceSequence list = given_choices(options);
  Report report = begin_report(options);
  Choices choices(list);
  const Case x = generate(choices);
  Gpu gpu(options.device);
  RunOptions run = run_options(options, gpu.calls());
  run.diagnose = true;
  Status status = check_case(x, run);
  report.cases = 1;
  report.coverage.push_back(coverage_of(coverage_key(x), 1));
  FuzzResult failed;
  if (!status.ok()) failed.call_failures = {{status.findings()[0].id, choices.made()}};
  for (Finding& f : status.findings()) {
    f.case_id = x.to_string();
    f.reproduce = "shadowgraph fuzz --backend kernels --choices " + options.choices + run.flags();
    report.findings.push_back(std::move(f));
  }
  say_what_was_read(list, choices.made(), &report);
  save_failures(failed, options, chosen, &report);
  return finish(report, options.common);
}

}  // namespace

void save_digest(const FuzzCommand& options, std::span<const RunRecord> runs, Report* report) {
  if (options.digest.empty()) return;
  const std::string text = to_digest(runs);
  Status status = write_file(options.digest, std::as_bytes(std::span(text)));
  for (Finding& f : status.findings()) report->findings.push_back(std::move(f));
}

namespace {

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
  RunRecord run;
  HistoryResult result = options.digest.empty()
                             ? run_history(history, choices, planted.tap())
                             : record_history(history, choices, planted.tap(), &run);
  save_digest(options, {&run, 1}, &report);
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
  FuzzResult failed;
  if (!result.findings.ok())
    failed.failures = {{std::as_const(result.findings).findings()[0].id, choices.made()}};
  save_failures(failed, options, chosen, &report);
  bool changed = false;
  if (result.acted > 0 && report.findings.empty()) {
    HistoryOptions histories;
    histories.backends = chosen.backends, histories.tap = Planted(chosen.faults).tap();
    changed = !changed_by_plant(choices.made(), histories).empty();
  }
  say_what_is_void(planted, changed, "--choices: " + std::string(kNoStep), kOthers, &report);
  return finish(report, options.common);
}

int run_with(FuzzCommand& options, const RunCampaign& run_campaign) {
  apply(options.common);
  const Chosen chosen = choose(options);
  check_device(options.device, options.common);
  const bool grid = !options.exhaustive.empty();
  if (!options.digest.empty() && chosen.backends.empty())
    throw UsageError("--digest: kernels have no steps; `shadowgraph list backends`");
  if (!options.digest.empty()) check_file("--digest", options.digest);
  if (!options.save_failures.empty()) check_folder("--save-failures", options.save_failures);
  if (options.device == DeviceKind::kCuda && grid)
    throw UsageError("--device cuda: " + options.exhaustive + " runs on the simulated device");
  if (grid && options.seconds_given && options.campaign.ledger.empty())
    throw UsageError("--seconds: a grid runs whole, except on a --ledger");
  if (options.choices_given)
    return chosen.backends.empty() ? run_call(options, chosen) : run_choices(options, chosen);
  if (options.campaign.ledger.empty())
    return grid ? run_grid(options, chosen) : run_random(options, chosen);
  if (!options.save_failures.empty())
    throw UsageError("--save-failures: a ledger keeps failing cases in its folder corpus");
  return run_campaign(options.common, options.campaign,
                      grid ? grid_campaign(options, chosen) : random_campaign(options, chosen));
}

std::vector<std::pair<std::string, std::string>> names_of_grids() {
  std::vector<std::pair<std::string, std::string>> names = {
      {"device-3", "device-3"}, {"device-4", "device-4"}, {"device-5", "device-5"}};
  for (const std::string_view grid : {kUpdateGrid, kCallGrid}) names.emplace_back(grid, grid);
  for (const StepGrid& grid : step_grids()) names.emplace_back(grid.name, grid.name);
  return names;
}

/// The shard that a test runner names: Bazel's two variables, and the file that it wants touched.
Shard shard_of_environment() {
  const char *index = std::getenv("TEST_SHARD_INDEX"), *count = std::getenv("TEST_TOTAL_SHARDS");
  if (index == nullptr && count == nullptr) return {};
  const auto number = [](const char* text) {
    const std::string_view digits = text == nullptr ? "" : text;
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    return whole && !digits.empty() ? std::optional(value) : std::nullopt;
  };
  const Shard shard{number(index).value_or(UINT64_MAX), number(count).value_or(0)};
  if (shard.index >= shard.count)
    throw UsageError(fmt::format(
        "TEST_SHARD_INDEX, TEST_TOTAL_SHARDS: '{}' of '{}' is no shard, as 0 of 4 to 3 of 4 are",
        index == nullptr ? "" : index, count == nullptr ? "" : count));
  if (const char* path = std::getenv("TEST_SHARD_STATUS_FILE")) (void)write_file(path, {});
  return shard;
}

/// Options of files besides the report. Gives --digest.
Option add_files(Command& command, FuzzCommand& options) {
  command.text(
      "--save-failures", options.save_failures,
      "Write each history or call that fails, shrunk, into this folder: `shadowgraph replay`",
      "DIR");
  return command.text(
      "--digest", options.digest,
      "Write a hash of each step of each history (batch, contents, metadata, outputs), and one of "
      "each field: `shadowgraph replay --against`",
      "FILE");
}

/// The i-th of n parts of a run.
Option add_shard(Command& command, const std::shared_ptr<FuzzCommand>& options) {
  const auto parse = [options](const std::string& text) {
    const auto set = parse_shards(text);
    if (!set || set->parts.size() != 1)
      throw BadValue("'" + text + "' is not a shard as 2/4: 1/N to N/N");
    options->shard = {set->parts[0] - 1, set->count};
  };
  return command.parsed("--shard", parse,
                        "The i-th of n parts of the same run: its cases are those whose number mod "
                        "n is i - 1 (default: "
                        "TEST_SHARD_INDEX and TEST_TOTAL_SHARDS, which begin at 0)",
                        "i/n");
}

}  // namespace

Verb add_fuzz(CLI::App& app) { return add_fuzz(app, nullptr); }

Verb add_fuzz(CLI::App& app, const RunCampaign& elsewhere) {
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
  const Option max_findings = command.number(
      "--max-findings", options->common.max_findings, size_t{1}, std::numeric_limits<size_t>::max(),
      "Stop after N findings, and list no more than these (default 100); those of one case stop it "
      "as one; with "
      "--ledger list so many failing cases of each law (default 10)");
  const Option exhaustive = command.choice(
      "--exhaustive", options->exhaustive, names_of_grids(),
      "Instead, everything up to a small size: `shadowgraph list grids`; by default by the "
      "backends whose layers it is made of");
  command.names("--backend", options->backends, "NAME",
                "Histories of this backend only, or `kernels`; may be given more than once");
  command.names(
      "--plant", options->plants, "ID",
      "Run with this fault in, to see what notices: `shadowgraph list faults`; may be given "
      "more than once");
  const Option digest = add_files(command, *options);
  digest.excludes(exhaustive);
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
  const Option ledger = add_campaign(command, options->campaign);
  ledger.excludes(choices).excludes(digest);
  if (elsewhere) ledger.required();
  const Option shard = add_shard(command, options);
  shard.excludes(choices).excludes(ledger);
  add_common_options(command, options->common);
  add_coverage(command, options->common);
  return {command, [options, elsewhere, seconds, first, choices, shard, ledger, max_findings] {
            options->seconds_given = seconds.given();
            options->first_given = first.given();
            options->choices_given = choices.given();
            if (max_findings.given()) options->campaign.max_findings = options->common.max_findings;
            if (!shard.given() && !choices.given() && !ledger.given())
              options->shard = shard_of_environment();
            if (ledger.given()) options->common.max_findings = std::numeric_limits<size_t>::max();
            return run_with(*options, elsewhere ? elsewhere : run_on_ledger);
          }};
}

}  // namespace shadowgraph::cli
