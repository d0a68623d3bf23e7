// fuzz: random attention cases against the oracle ladder, on all cores.
#include <algorithm>
#include <map>
#include <memory>

#include "cli.h"
#include "fuzz/device_grid.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::cli {
namespace {

struct Options {
  Common common;
  double seconds = 60;
  uint64_t cases = 0;
  uint64_t first = 0;
  bool seconds_given = false;
  int exhaustive = 0;  // calls of the device grid; 0: random attention cases
};

constexpr char kExamples[] =
    "  shadowgraph fuzz                             one minute on all cores\n"
    "  shadowgraph fuzz --cases 100000 --seed 7\n"
    "  shadowgraph fuzz --seed 7 --first 123 --cases 1    one case again: what a finding prints\n"
    "  shadowgraph fuzz --exhaustive device-5       every small program of streams, events, "
    "captures\n"
    "Each case is a random call (paged or ragged, any dtype, mask, layout), with NaN in every byte "
    "that no query may\n"
    "see. Exact data must give the known bits, other data must lie within the derived bound of a "
    "float64 oracle, and\n"
    "the same values arranged otherwise (pages, batch, chunks, threads, instruction set) must give "
    "the same bits.";

Histogram histogram_of(const std::string& name, const std::map<int64_t, int64_t>& counts,
                       const std::vector<int64_t>& edges) {
  Histogram h;
  h.name = name;
  int64_t total = 0, below = 0;
  for (const auto& [value, cases] : counts) total += cases;
  for (const auto& [value, cases] : counts) {
    below += cases;
    if (2 * below < total) continue;
    h.median = static_cast<double>(value);
    break;
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    const bool last = i + 1 == edges.size();
    int64_t cases = 0;
    for (auto it = counts.lower_bound(edges[i]);
         it != counts.end() && (last || it->first < edges[i + 1]); ++it) {
      cases += it->second;
    }
    std::string label = std::to_string(edges[i]);
    if (last) label += "+";
    if (!last && edges[i + 1] - 1 > edges[i]) label += ".." + std::to_string(edges[i + 1] - 1);
    h.bins.emplace_back(label, cases);
  }
  return h;
}

/// "decode_paged uniform" is what backend and mode are elsewhere: the kernel, and the kind of data.
CoverageReport coverage_of(const std::string& name, int64_t cases) {
  const size_t space = name.find(' ');
  return {name.substr(0, space), name.substr(space + 1), "eager", cases};
}

/// All device programs of the small scope.
int run_exhaustive(Options& options) {
  catch_interrupts();
  Report report = start_report("fuzz", options.common);
  const auto start = std::chrono::steady_clock::now();
  DeviceGridResult result;
  {
    Progress progress(options.common, "parts");
    result = run_device_grid(
        options.exhaustive, options.common.num_threads(), options.common.max_findings,
        [&](size_t done, size_t of) {
          progress.update(static_cast<double>(done) / static_cast<double>(of),
                          static_cast<int64_t>(done), 0);
        },
        interrupted());
  }
  const std::string grid = "device-" + std::to_string(options.exhaustive);
  report.interrupted = interrupted();
  report.cases = static_cast<int64_t>(result.programs);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (Finding f : std::as_const(result.findings).findings()) {
    f.reproduce = "shadowgraph fuzz --exhaustive " + grid;
    report.findings.push_back(std::move(f));
  }
  for (const auto& [code, calls] : result.coverage.codes)
    report.coverage.push_back({grid, std::string(name_of(code)), "eager", calls});
  return finish(report, options.common);
}

int run(Options& options) {
  apply(options.common);
  if (options.exhaustive != 0) return run_exhaustive(options);
  FuzzOptions fuzz;
  fuzz.seed = options.common.seed;
  fuzz.first = options.first;
  fuzz.cases = options.cases;
  fuzz.seconds = options.cases != 0 && !options.seconds_given ? 0 : options.seconds;
  fuzz.threads = options.common.num_threads();
  fuzz.max_findings = options.common.max_findings;
  fuzz.run.arith = options.common.arith;
  fuzz.run.isa = options.common.isa;

  catch_interrupts();
  Report report = start_report("fuzz", options.common);
  FuzzResult result;
  {
    Progress progress(options.common, "cases");
    result = run_fuzz(
        fuzz,
        [&](const FuzzProgress& p) {
          const double of_time = fuzz.seconds > 0 ? p.seconds / fuzz.seconds : 0;
          const double of_cases =
              fuzz.cases > 0 ? static_cast<double>(p.cases) / static_cast<double>(fuzz.cases) : 0;
          progress.update(std::max(of_time, of_cases), static_cast<int64_t>(p.cases),
                          static_cast<int64_t>(p.findings));
        },
        interrupted());
  }
  if (result.cases == 0 && !interrupted()) throw UsageError("--seconds: too short for one case");
  report.interrupted = interrupted();
  report.cases = static_cast<int64_t>(result.cases);
  report.seconds = result.seconds;
  report.findings.assign(result.findings.findings().begin(), result.findings.findings().end());
  for (const auto& [name, cases] : result.coverage)
    report.coverage.push_back(coverage_of(name, cases));
  const FuzzHistograms& h = result.histograms;
  report.histograms = {histogram_of("keys", h.keys, {0, 1, 16, 64, 128, 192, 256, 512, 1024}),
                       histogram_of("requests", h.requests, {1, 2, 3, 4, 5}),
                       histogram_of("head_dim", h.head_dim, {1, 16, 32, 64, 128})};
  return finish(report, options.common);
}

}  // namespace

Verb add_fuzz(CLI::App& app) {
  CLI::App& command = add_command(
      app, "fuzz",
      "Run random attention cases against the oracle: exact data, error bounds, equal bits.",
      kExamples);
  auto options = std::make_shared<Options>();
  CLI::Option* seconds =
      add_number(command, "--seconds", options->seconds, 0.01, 1e7, "Run for so long (default 60)");
  add_number(command, "--cases", options->cases, uint64_t{1}, uint64_t{1} << 62,
             "Run so many cases; with --seconds, whichever ends first");
  add_number(command, "--first", options->first, uint64_t{0}, uint64_t{1} << 62,
             "Number of the first case (default 0)");
  add_number(command, "--max-findings", options->common.max_findings, size_t{1},
             std::numeric_limits<size_t>::max(),
             "Stop after N findings, and list no more than these (default 100)");
  add_choice(command, "--exhaustive", options->exhaustive,
             {{"device-3", 3}, {"device-4", 4}, {"device-5", 5}},
             "Instead, all programs of up to so many device calls: `shadowgraph list grids`")
      ->excludes(seconds);
  add_common_options(command, options->common);
  return {&command, [options, seconds] {
            options->seconds_given = seconds->count() > 0;
            return run(*options);
          }};
}

}  // namespace shadowgraph::cli
