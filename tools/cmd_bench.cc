// bench: a short roofline summary, one line a shape.
#include <ctime>
#include <filesystem>
#include <memory>

#include "bench/compare.h"
#include "bench/machine.h"
#include "bench/peer_table.h"
#include "bench/plots.h"
#include "bench/run_rows.h"
#include "bench/team.h"
#include "cli.h"
#include "io/file.h"
#include "report/read.h"

namespace shadowgraph::cli {
namespace {

using bench::Bench;
using bench::Row;

struct BenchCommand {
  Common common;
  std::vector<std::string> rows = {"all"};
  int rounds = 7;
  int probe_mib = 0;          // 0: as much as is cold
  std::string plot;           // a folder; empty: none
  std::string against, from;  // reports of an older run, and of the newer one instead of a run
  bool list = false;
  bool peers = false;
  std::vector<std::string> libraries, times;  // of peers
};

constexpr char kBenchExamples[] =
    "  shadowgraph bench                             every row, two or three minutes\n"
    "  shadowgraph bench --rows 'decode_*,prefill_f32_2048'\n"
    "  shadowgraph bench --list                      the rows and what they show\n"
    "  shadowgraph bench --format json --output bench.json --plot plots\n"
    "  shadowgraph bench --against old.json          run, and say which rows lost\n"
    "  shadowgraph bench --against old.json --from new.json\n"
    "  shadowgraph bench --peers --peer-library libabacus_peer.so\n"
    "A row is one call's speed over a limit of this machine, a peer, or itself: the probes, the "
    "engine and the peer run\n"
    "in turn in every round, the ratio is taken within the round, and the row is the median over "
    "rounds. A round in\n"
    "which somebody else had the processor does not count; a row with fewer than 5 quiet rounds "
    "says so, and its\n"
    "figure is not to be kept. A probe below its own floor makes its rows void. Before a call "
    "is timed, a sample of\n"
    "its results (the first, the middle and the last token) is held against the float64 oracle: a "
    "wrong one is a\n"
    "finding (exit 1). A goal that is missed is no finding.\n"
    "Let nothing else run meanwhile. docs/performance.md says how to read the figures.";

Listing row_list(const std::vector<const Row*>& rows) {
  Listing listing{"bench rows", {"row", "of", "goal", "what"}, {}};
  for (const Row* row : rows) {
    const bench::Of& of = row->of;
    const std::string goal =
        of.goal > 0 ? fmt::format("{} {:.2f}", row->at_most() ? "<=" : ">=", of.goal) : "-";
    listing.rows.push_back({std::string(row->id), row->of_name(), goal, std::string(row->text)});
  }
  return listing;
}

std::vector<const Row*> chosen_rows(const BenchCommand& options) {
  std::string unknown;
  auto rows = bench::select_rows(options.rows, &unknown);
  if (!rows.empty()) return rows;
  std::vector<std::string> names;
  for (const Row& row : bench::rows()) names.emplace_back(row.id);
  const auto meant = nearest(unknown, names);
  throw UsageError(fmt::format("--rows: no row is called '{}'{}; see `shadowgraph bench --list`",
                               unknown, meant.empty() ? "" : ", did you mean " + meant[0] + "?"));
}

/// The options that a finding's command repeats.
std::string flags_of(const Common& common) {
  std::string flags = common.reproduce_flags();
  if (common.seed != Common().seed) flags += fmt::format(" --seed {}", common.seed);
  if (common.threads > 0) flags += fmt::format(" --threads {}", common.threads);
  return flags;
}

/// The run's threads: more than processors measure the scheduler.
int threads_of(const Common& common) {
  const int wanted = common.num_threads();
  const int most = std::min(static_cast<int>(bench::cpus().size()), bench::most_threads());
  if (wanted > most && !common.quiet)
    write_stderr(fmt::format("shadowgraph: {} threads are too many for this machine, {} {} used\n",
                             wanted, most, most == 1 ? "is" : "are"));
  return std::min(wanted, most);
}

std::string machine_line(const BenchReport& report, int threads) {
  std::string cpu;
  for (const auto& [what, value] : report.machine) {
    if (what == "cpu") cpu = value;
  }
  return fmt::format("{}, {} threads, {}", cpu, threads, current_isa());
}

void write_plot(const std::filesystem::path& path, const std::string& document,
                BenchReport* report) {
  const Status status = write_file(path.string(), std::as_bytes(std::span(document)));
  if (!status.ok()) throw OutputError(status.to_string());
  report->plots.push_back(path.string());
}

/// Counts rows and series for the line on stderr.
class Steps {
 public:
  Steps(const BenchCommand& options, size_t rows)
      : progress_(options.common, options.plot.empty() ? "rows" : "rows and series"),
        all_(rows + (options.plot.empty() ? 0 : bench::series().size())) {
    progress_.update(0, 0, 0);
  }
  void add(const Report& report) {
    ++done_;
    progress_.update(static_cast<double>(done_) / static_cast<double>(all_), done_,
                     std::ssize(report.findings));
  }

 private:
  Progress progress_;
  size_t all_;
  int64_t done_ = 0;
};

/// Writes the plots, timing the series for them. After Ctrl-C none is written: what lies there is
/// of a whole run.
void plot(Bench& bench, const BenchCommand& options, Steps& steps, Report* report) {
  if (bench.stopped()) return;
  const std::filesystem::path folder = options.plot;
  const std::string machine = machine_line(*report->bench, report->threads);
  write_plot(folder / "share_of_limit.svg", bench::share_plot(report->bench->rows, machine),
             &*report->bench);
  std::map<std::string, std::vector<bench::Curve>> panels;
  for (const bench::Series& series : bench::series()) {
    bench::Curve curve{std::string(series.name), {}};
    const Status status = bench.run(series, &curve.points);
    for (const Finding& f : status.findings()) report->findings.push_back(f);
    if (bench.stopped()) return;
    panels[std::string(series.panel)].push_back(std::move(curve));
    steps.add(*report);
  }
  for (const auto& [title, curves] : panels) {
    const std::string name = title.substr(0, title.find(',')) + "_time.svg";
    write_plot(folder / name, bench::time_plot("Time against length: " + title, curves, machine),
               &*report->bench);
  }
}

/// Whole pages of 2 MiB.
int64_t probe_bytes_of(const BenchCommand& options) {
  constexpr int64_t kPageBytes = int64_t{2} << 20;
  return options.probe_mib == 0 ? bench::probe_bytes()
                                : (int64_t{options.probe_mib} + 1) / 2 * kPageBytes;
}

/// Measures the rows, and the plots' series. *unwritten: a plot that could not be written.
Report measure(const BenchCommand& options, const std::vector<const Row*>& rows,
               std::optional<OutputError>* unwritten) {
  const auto start = std::chrono::steady_clock::now();
  catch_interrupts();
  Report report = start_report("bench", options.common);
  report.threads = threads_of(options.common);
  report.bench.emplace().machine = bench::describe_machine();
  Steps steps(options, rows.size());
  Bench bench({.rounds = options.rounds,
               .threads = report.threads,
               .seed = options.common.seed,
               .probe_bytes = probe_bytes_of(options),
               .arith = options.common.arith,
               .flags = flags_of(options.common),
               .stop = &interrupted()});
  for (const Row* row : rows) {
    if (interrupted()) break;
    const Status status = bench.run(*row, &*report.bench);
    for (const Finding& f : status.findings()) report.findings.push_back(f);
    const bool judged = report.bench->rows.back().rounds > 0 || !status.ok();
    ++(judged ? report.cases : report.skipped);
    steps.add(report);
  }
  try {
    if (!options.plot.empty()) plot(bench, options, steps, &report);
  } catch (const OutputError& error) {
    *unwritten = error;
  }
  report.bench->probes = bench.probes();
  report.interrupted = interrupted();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

/// A report of bench from a file. Not ok: what is wrong with the file.
Status read_run(const std::string& path, Report* report) {
  Status status = read_report(path, report);
  if (status.ok() && !report->bench)
    status.add(file_finding("io.report", path, "verb", "bench", report->verb));
  return status;
}

/// Leaves what --rows names.
void keep_rows(const std::vector<const Row*>& rows, BenchReport* report) {
  std::erase_if(report->rows, [&](const BenchRow& r) {
    return std::ranges::none_of(rows, [&](const Row* row) { return row->id == r.shape; });
  });
}

/// "2026-11-26"
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

/// The peers that there are; notes say what is not.
bench::PeerTable start_table(const BenchCommand& options, std::vector<bench::TablePeer>* peers,
                             std::vector<bench::PeerTimes>* times) {
  bench::PeerTable table;
  *peers = bench::composed_peers(&table.notes);
  for (const std::string& path : options.libraries) {
    std::string why;
    if (auto peer = bench::load_peer(path, &why)) {
      peers->push_back(std::move(*peer));
    } else {
      table.notes.push_back("no peer: " + why);
    }
  }
  for (const std::string& path : options.times) {
    bench::PeerTimes peer;
    const Status status = bench::read_peer_times(path, &peer);
    if (status.ok()) times->push_back(std::move(peer));
    if (!status.ok()) table.notes.push_back("no peer: " + status.to_string());
  }
  if (options.times.empty())
    table.notes.push_back(
        "PyTorch is not here: `./dev bench --peers` runs it where python3 has torch");
  if (options.libraries.empty())
    table.notes.push_back("no other library (ggml, ...) is here: --peer-library, bench/peer.h");
  return table;
}

/// --peers
int run_peers(const BenchCommand& options, std::vector<const Row*> rows) {
  std::erase_if(rows, [](const Row* row) { return !bench::is_plain(*row); });
  if (rows.empty()) throw UsageError("--peers: no row that --rows names is one of dense tensors");
  if (options.common.format != Format::kText && options.common.format != Format::kJson)
    throw UsageError("--format: a table of peers is text (Markdown) or json");
  catch_interrupts();
  Report report = start_report("bench", options.common);
  report.threads = threads_of(options.common);
  report.bench.emplace().machine = bench::describe_machine();
  std::vector<bench::TablePeer> peers;
  std::vector<bench::PeerTimes> times;
  bench::PeerTable table = start_table(options, &peers, &times);
  const Status status = bench::measure_peers(rows, peers, times,
                                             {.rounds = options.rounds,
                                              .threads = report.threads,
                                              .seed = options.common.seed,
                                              .arith = options.common.arith,
                                              .stop = &interrupted()},
                                             &table);
  if (!status.ok()) {
    report.findings.assign(status.findings().begin(), status.findings().end());
    return finish(report, options.common);
  }
  if (options.common.format == Format::kJson) return finish(to_listing(table), options.common);
  write_document(to_markdown(table, machine_line(*report.bench, report.threads) + ", " + today()),
                 options.common);
  return kClean;
}

int run_with(BenchCommand& options) {
  apply(options.common);
  const auto rows = chosen_rows(options);
  if (options.list) return finish(row_list(rows), options.common);
  if (!options.plot.empty()) check_folder("--plot", options.plot);
  if (!options.from.empty() && options.against.empty())
    throw UsageError("--from is a run to compare: it needs --against");
  if (options.peers) return run_peers(options, rows);
  Report old_run, report;
  Status read;  // before any time is spent
  if (!options.against.empty()) read.add(read_run(options.against, &old_run));
  if (!options.from.empty()) read.add(read_run(options.from, &report));
  if (!read.ok()) {
    report = start_report("bench", options.common);
    report.bad_input = true;
    report.findings.assign(read.findings().begin(), read.findings().end());
    return finish(report, options.common);
  }
  std::optional<OutputError> unwritten;  // said when the report is out
  if (options.from.empty()) {
    report = measure(options, rows, &unwritten);
  } else {
    keep_rows(rows, &*report.bench);
  }
  if (!options.against.empty()) bench::compare_with(old_run, options.against, &report);
  const int code = finish(report, options.common);
  if (unwritten) throw *unwritten;
  return code;
}

}  // namespace

Verb add_bench(CLI::App& app) {
  Command command(app, "bench",
                  "Measure the engine against this machine's limits, and against peers.",
                  kBenchExamples);
  auto options = std::make_shared<BenchCommand>();
  command.texts("--rows", options->rows, "Rows by id, * standing for any text (default all)",
                "ID[,ID]", ',');
  command.number(
      "--rounds", options->rounds, 1, 1000,
      "Quiet rounds wanted of each row (default 7); up to three times as many are tried");
  const Option probe_mib = command.number(
      "--probe-mib", options->probe_mib, 2, 1 << 20,
      "Memory that probes read (default: 8 times the last-level caches, at least 512 MiB); with "
      "less a run starts sooner, and its rows over memory are void");
  const Option plot = command.text(
      "--plot", options->plot,
      "Also write plots (SVG) into this folder: share of the limit, time against length", "DIR");
  const Option peers =
      command.flag("--peers", options->peers, "A table of ours beside other libraries instead");
  peers.excludes(plot);
  peers.excludes(probe_mib);
  command.each(
      "--peer-library", [options](const std::string& path) { options->libraries.push_back(path); },
      "With --peers: a shared library that has what bench/peer.h says", "FILE");
  command.each(
      "--peer-times", [options](const std::string& path) { options->times.push_back(path); },
      "With --peers: times that bench/peer_torch.py printed", "FILE");
  const Option against =
      command.text("--against", options->against,
                   "Compare with this older JSON report: a row that is lost is a finding", "FILE");
  command
      .text("--from", options->from,
            "With --against: compare this JSON report instead of running anything", "FILE")
      .excludes(plot);
  peers.excludes(against);
  command.flag("--list", options->list, "List the rows instead");
  add_max_findings(command, options->common);
  add_common_options(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
