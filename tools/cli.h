// What the verbs of the program share: common options, strict numbers, progress, Ctrl-C, the way
// out.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "core/nearest.h"
#include "faults/faults.h"
#include "report/conclude.h"
#include "report/report.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph::cli {

enum ExitCode {
  kClean = 0,
  kFindings = 1,
  kUsage = 2,
  kBadInput = 3,
  kInternal = 4,
};

/// The user asked for something that cannot be: printed as a sentence, exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Results could not be written: printed as a sentence, exit code 4.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ColorWhen : uint8_t { kAuto, kAlways, kNever };

/// Options of every verb that runs something.
struct Common {
  Format format = Format::kText;
  std::string output;  // empty: stdout
  uint64_t seed = 1;
  int threads = 0;  // 0: OpenMP's default
  std::string isa;  // empty: the best of this machine; apply() puts SHADOWGRAPH_ISA here
  Arith arith = Arith::kPortable;
  ColorWhen color = ColorWhen::kAuto;
  bool quiet = false;
  bool coverage = false;
  size_t max_findings = 100;

  int num_threads() const;
  /// The options that change results, as they must be repeated to see them again: " --arith fast
  /// --isa avx2".
  std::string reproduce_flags() const;
};

Verb add_bench(CLI::App& app);
Verb add_check(CLI::App& app);
Verb add_conformance(CLI::App& app);
Verb add_explain(CLI::App& app);
Verb add_faults(CLI::App& app);
Verb add_fuzz(CLI::App& app);
Verb add_list(CLI::App& app);
Verb add_merge_reports(CLI::App& app);
Verb add_replay(CLI::App& app);

/// For a verb that prints a listing: --format text or json, --output, --color, --quiet.
void add_output_options(Command& command, Common& common);
/// For a verb that prints a report: the same options, with every format.
void add_report_options(Command& command, Common& common);
/// For a verb that runs something: these options and --seed, --threads, --isa, --arith.
void add_common_options(Command& command, Common& common);

/// What --backend names. Throws UsageError.
const Backend& named_backend(const std::string& name);
/// By its id, of those that can be planted. Throws UsageError.
const Fault& planted_fault(const std::string& id);
/// Counts how often each plant acted. changed: something that a launch reads or leaves, where
/// nothing was noticed. What comes of it is said in the end (report/conclude.h).
void count_plants(const Planted& planted, bool changed, Report* report);

/// --coverage, for verbs whose report says what ran.
void add_coverage(Command& command, Common& common);
/// --max-findings, for verbs that look on after the first finding.
void add_max_findings(Command& command, Common& common);

/// Chooses the instruction set and refuses what cannot work before any time is spent. Throws
/// UsageError. common.isa then says what was forced, be it by the environment.
void apply(Common& common);
/// Refuses a folder that nothing can be written into: said before the work, not after it. Throws
/// UsageError. option: that named it.
void check_folder(const std::string& option, const std::string& folder);
/// The same of a file that is to be written.
void check_file(const std::string& option, const std::string& path);
/// A report with its head filled in: verb, version, seed, isa, threads, arith. Call after apply.
Report start_report(const std::string& verb, const Common& common);
/// Renders, writes to stdout or the output file (whole or not at all), and returns the exit code.
int finish(const Report& report, const Common& common);
int finish(const Listing& listing, const Common& common);
/// Writes a rendered document where --output says. Throws OutputError.
void write_document(const std::string& document, const Common& common);
/// Writes and flushes. Throws OutputError.
void write_stdout(const std::string& text);
/// Says something to the user; never fails, since nobody is left to be told.
void write_stderr(const std::string& text) noexcept;
RenderOptions render_options(const Common& common);

/// Set by the first Ctrl-C (or SIGTERM) once catch_interrupts ran; the second one ends the program
/// at once.
std::atomic<bool>& interrupted();
void catch_interrupts();

/// One line on stderr that overwrites itself; only on a terminal and not with --quiet. Any thread
/// may call update.
class Progress {
 public:
  /// item: what is counted, in the plural: "cases".
  Progress(const Common& common, std::string item);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// fraction: how much of the work is done, 0..1.
  void update(double fraction, int64_t done, int64_t findings);

 private:
  using Clock = std::chrono::steady_clock;

  const bool shown_;
  const std::string item_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  Clock::time_point drawn_;
};

}  // namespace shadowgraph::cli
