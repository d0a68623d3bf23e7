// Grids, everything up to a small size: a run of one, and a campaign's part.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "fuzz/device/device_grid.h"
#include "fuzz/device/update_grid.h"
#include "fuzz/grid/step_grid.h"
#include "fuzz/mutate/call_grid.h"
#include "fuzz_command.h"

namespace shadowgraph::cli {
namespace {

constexpr std::string_view kOfHistories[] = {"histories"}, kOfPrograms[] = {"programs"};
// Cases of a campaign's range: a few seconds
constexpr uint64_t kStepsOfRange = 4096, kProgramsOfRange = 1 << 16, kCallsOfRange = 1 << 13;

using Starts = std::function<void(uint64_t)>;
/// A part of the work, 0..1, and cases.
using Told = std::function<void(double, int64_t)>;

/// How a grid's cases run.
struct GridRun {
  int threads = 1;
  size_t max_findings = std::numeric_limits<size_t>::max();
  const std::atomic<bool>& stop;
  Told progress = [](double, int64_t) {};
  Starts starts = {};
};

/// Why a grid of so many cases runs none of them; otherwise is why it may be so where the range has
/// some.
std::string nothing_of(std::string_view grid, uint64_t size, const FuzzCommand& options,
                       std::string otherwise) {
  if (options.first >= size) return fmt::format("--first: {} has {} cases", grid, size);
  return range_of(options).within(0, size).size() > 0 ? std::move(otherwise)
                                                      : std::string(kNotOfShard);
}

std::vector<const Backend*> backends_of(const FuzzCommand& options, const StepGrid& grid,
                                        const Chosen& chosen) {
  if (!options.backends.empty()) return chosen.backends;
  std::vector<const Backend*> backends;
  for (const std::string_view name : grid.backends) backends.push_back(find_backend(name));
  return backends;
}

/// Adds small batches of a mode, of one backend.
void add_steps(const StepGrid& grid, const Backend& backend, const Chosen& chosen,
               const Planted& planted, const CaseRange& range, const GridRun& run, Report* report) {
  StepGridResult result = run_step_grid(
      grid, backend, run.threads, run.max_findings, planted.tap(),
      [&](size_t done, size_t of) {
        run.progress(static_cast<double>(done) / static_cast<double>(of),
                     static_cast<int64_t>(done));
      },
      run.stop, range, run.starts);
  report->cases += static_cast<int64_t>(result.steps);
  report->skipped += static_cast<int64_t>(result.skipped);
  const std::string name(backend.info().name), mode(grid.name);
  report->coverage.push_back({name, mode, "eager", static_cast<int64_t>(result.steps)});
  report->coverage.push_back({name, mode, "replay", static_cast<int64_t>(result.replays)});
  report->add_laws(result.laws, kOfHistories);
  for (Finding f : std::as_const(result.findings).findings()) {
    add_refs(chosen.refs, &f);
    f.reproduce += chosen.plants;
    report->findings.push_back(std::move(f));
  }
}

/// All small batches of a mode, of every backend that is chosen.
int run_steps(const FuzzCommand& options, const StepGrid& grid, const Chosen& chosen) {
  Report report = begin_report(options);
  const auto start = std::chrono::steady_clock::now();
  const Planted planted(chosen.faults);
  const std::vector<const Backend*> backends = backends_of(options, grid, chosen);
  for (size_t i = 0; i < backends.size() && !interrupted(); ++i) {
    Progress progress(options.common, "parts");
    const Told told = [&](double part, int64_t done) {
      progress.update((static_cast<double>(i) + part) / static_cast<double>(backends.size()), done,
                      0);
    };
    add_steps(grid, *backends[i], chosen, planted, range_of(options),
              {options.common.num_threads(), options.common.max_findings, interrupted(), told},
              &report);
  }
  report.interrupted = interrupted();
  say_what_is_void(
      planted, true,
      nothing_of(grid.name, count_steps(grid), options,
                 fmt::format("--exhaustive {}: none of its steps is served by what --backend names",
                             grid.name)),
      kOthers, &report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return finish(report, options.common);
}

/// The most calls of a program.
int calls_of(const FuzzCommand& options) { return options.exhaustive.back() - '0'; }

/// A grid in which no backend runs: device programs, updates of graphs, or mutated calls.
struct PlainGrid {
  uint64_t size = 0, of_range = 0;  // cases: all; of a campaign's range
  const char* what = "";            // its cases are
  void (*add)(const FuzzCommand&, const CaseRange&, const GridRun&, Report*) = nullptr;
};

std::function<void(uint64_t, uint64_t)> told_by(const GridRun& run) {
  return [&run](uint64_t done, uint64_t of) {
    run.progress(static_cast<double>(done) / static_cast<double>(of), static_cast<int64_t>(done));
  };
}

/// Adds device programs of the small scope.
void add_programs(const FuzzCommand& options, const CaseRange& range, const GridRun& run,
                  Report* report) {
  DeviceGridResult result = run_device_grid(calls_of(options), run.threads, run.max_findings,
                                            told_by(run), run.stop, range, run.starts);
  report->cases = static_cast<int64_t>(result.programs);
  report->findings.assign(std::as_const(result.findings).findings().begin(),
                          std::as_const(result.findings).findings().end());
  report->add_laws(result.laws, kOfPrograms);
  for (const auto& [code, count] : result.coverage.codes)
    report->coverage.push_back({options.exhaustive, std::string(name_of(code)), "eager", count});
}

/// Adds updates of executable graphs: by the node's kind and field.
void add_updates(const FuzzCommand& options, const CaseRange& range, const GridRun& run,
                 Report* report) {
  UpdateGridResult result =
      run_update_grid(run.threads, run.max_findings, told_by(run), run.stop, range, run.starts);
  report->cases = static_cast<int64_t>(result.cases);
  report->findings.assign(std::as_const(result.findings).findings().begin(),
                          std::as_const(result.findings).findings().end());
  report->add_laws(result.laws, {});
  for (const auto& [what, count] : result.counts)
    report->coverage.push_back({options.exhaustive, what, "eager", count});
}

/// Adds calls with one member changed: by the call, what was changed, and what came of it.
void add_calls(const FuzzCommand& /*options*/, const CaseRange& range, const GridRun& run,
               Report* report) {
  CallGridResult result =
      run_call_grid(run.threads, run.max_findings, told_by(run), run.stop, range, run.starts);
  report->cases = static_cast<int64_t>(result.cases);
  report->findings.assign(std::as_const(result.findings).findings().begin(),
                          std::as_const(result.findings).findings().end());
  report->add_laws(result.laws, {});
  for (const auto& [key, count] : result.counts) {
    const auto& [call, kind, verdict] = key;
    report->coverage.push_back({call, kind, std::string(name_of(verdict)), count});
  }
}

PlainGrid plain_grid_of(const FuzzCommand& options) {
  if (options.exhaustive == kCallGrid) return {call_grid_size(), kCallsOfRange, "calls", add_calls};
  if (options.exhaustive == kUpdateGrid)
    return {update_cases().size(), kStepsOfRange, "updates", add_updates};
  return {SmallPrograms(calls_of(options)).size(), kProgramsOfRange, "programs", add_programs};
}

int run_plain(const FuzzCommand& options) {
  Report report = begin_report(options);
  const auto start = std::chrono::steady_clock::now();
  const PlainGrid grid = plain_grid_of(options);
  {
    Progress progress(options.common, grid.what);
    const Told told = [&](double part, int64_t done) { progress.update(part, done, 0); };
    grid.add(options, range_of(options),
             {options.common.num_threads(), options.common.max_findings, interrupted(), told},
             &report);
  }
  report.interrupted = interrupted();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  say_what_is_void(Planted({}), true, nothing_of(options.exhaustive, grid.size, options, ""),
                   kOthers, &report);
  return finish(report, options.common);
}

void check_grid(const FuzzCommand& options, const Chosen& chosen) {
  if (find_step_grid(options.exhaustive) == nullptr && !chosen.flags.empty())
    throw UsageError("--exhaustive: no backend runs in " + options.exhaustive);
}

/// A campaign's numbers of a step grid: all its steps by the first backend, then by the next.
struct StepNumbers {
  std::vector<const Backend*> backends;
  CaseRange steps;  // of the grid, by each

  uint64_t size() const { return steps.size() * backends.size(); }
  /// fn(backend, steps, number of the first) for those of a part.
  template <class Fn>
  void each(const CampaignRange& part, Fn fn) const {
    for (uint64_t at = part.first; at < part.first + part.count;) {
      const uint64_t of_backend = at / steps.size(), step = at % steps.size();
      const uint64_t count = std::min(steps.size() - step, part.first + part.count - at);
      fn(*backends[of_backend], CaseRange{steps.first + step, count}, at);
      at += count;
    }
  }
};

VerbCampaign steps_campaign(VerbCampaign v, const FuzzCommand& options, const StepGrid& grid,
                            const Chosen& chosen) {
  const StepNumbers numbers{backends_of(options, grid, chosen),
                            range_of(options).within(0, count_steps(grid))};
  if (numbers.size() == 0)
    throw UsageError(fmt::format("--first: {} has {} cases", grid.name, count_steps(grid)));
  if (options.campaign.range == 0) v.campaign.range = kStepsOfRange;
  v.campaign.cases = numbers.size();
  v.reproduce = [numbers, chosen, &grid](const CampaignRange& part) {
    std::string command;
    numbers.each(part, [&](const Backend& backend, const CaseRange& steps, uint64_t) {
      command += fmt::format(
          "{}shadowgraph fuzz --exhaustive {} --backend {} --first {} --cases {} --threads 1{}",
          command.empty() ? "" : "; ", grid.name, backend.info().name, steps.first, steps.count,
          chosen.plants);
    });
    return command;
  };
  v.run = [numbers, options, chosen, &grid](const CampaignRange& part, std::span<const CaseFile>,
                                            const Starts& at) {
    const Planted planted(chosen.faults);
    Report report = begin_report(options);
    numbers.each(part, [&](const Backend& backend, const CaseRange& steps, uint64_t first) {
      const Starts starts = [&](uint64_t step) { at(first + step - steps.first); };
      add_steps(grid, backend, chosen, planted, steps, {.stop = kNeverStopped, .starts = starts},
                &report);
    });
    count_plants(planted, true, &report);
    return RangeResult{body_of(std::move(report), options.campaign.max_findings), {}};
  };
  return v;
}

VerbCampaign plain_campaign(VerbCampaign v, const FuzzCommand& options) {
  const PlainGrid grid = plain_grid_of(options);
  const CaseRange cases = range_of(options).within(0, grid.size);
  if (cases.size() == 0)
    throw UsageError(fmt::format("--first: {} has {} cases", options.exhaustive, grid.size));
  if (options.campaign.range == 0) v.campaign.range = grid.of_range;
  v.campaign.cases = cases.size();
  v.reproduce = [cases, options](const CampaignRange& part) {
    return fmt::format("shadowgraph fuzz --exhaustive {} --first {} --cases {} --threads 1",
                       options.exhaustive, cases.first + part.first, part.count);
  };
  v.run = [cases, options, grid](const CampaignRange& part, std::span<const CaseFile>,
                                 const Starts& at) {
    Report report = begin_report(options);
    grid.add(options, {cases.first + part.first, part.count},
             {.stop = kNeverStopped, .starts = [&](uint64_t number) { at(number - cases.first); }},
             &report);
    return RangeResult{body_of(std::move(report), options.campaign.max_findings), {}};
  };
  return v;
}

}  // namespace

int run_grid(const FuzzCommand& options, const Chosen& chosen) {
  check_grid(options, chosen);
  catch_interrupts();
  if (const StepGrid* grid = find_step_grid(options.exhaustive))
    return run_steps(options, *grid, chosen);
  return run_plain(options);
}

VerbCampaign grid_campaign(const FuzzCommand& options, const Chosen& chosen) {
  check_grid(options, chosen);
  VerbCampaign v = start_campaign("fuzz", options.common, options.campaign);
  v.campaign.options.emplace_back("exhaustive", options.exhaustive);
  v.campaign.options.emplace_back("first", std::to_string(options.first));
  v.campaign.options.emplace_back("chosen", chosen.flags);
  v.seconds = options.seconds_given ? options.seconds : 0;
  v.name = [options](const CampaignRange& part) {
    return fmt::format("{} case {}", options.exhaustive, part.first);
  };
  if (const StepGrid* grid = find_step_grid(options.exhaustive))
    return steps_campaign(std::move(v), options, *grid, chosen);
  return plain_campaign(std::move(v), options);
}

}  // namespace shadowgraph::cli
