// replay: one case file, step by step.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "cli.h"
#include "core/laws.h"
#include "fuzz/file/call_file.h"
#include "fuzz/file/history_file.h"
#include "fuzz/file/run_record.h"
#include "fuzz/history/buffer_log.h"
#include "fuzz/history/effects.h"
#include "io/file.h"
#include "report/escape.h"

namespace shadowgraph::cli {
namespace {

struct ReplayCommand {
  Common common;
  std::string path;
  std::string against, digest;  // files; empty: none
  std::vector<std::string> plants;
  bool clean = false, all = false;
};

constexpr char kReplayExamples[] =
    "  shadowgraph fuzz --save-failures found/      writes one file for each failure\n"
    "  shadowgraph replay found/table.capacity-1.json\n"
    "  shadowgraph replay K31.json --clean          without the faults that the file names\n"
    "  shadowgraph replay K31.json --clean --against K31.json    the first step and field that "
    "they "
    "change\n"
    "  shadowgraph replay A.json --against old.txt  of another version: its `replay A.json "
    "--digest "
    "old.txt`\n"
    "Of every step: who takes part, and what each buffer held before it, after the fill, and after "
    "its launches ran;\n"
    "buffers that did not change are left out (--all). The file holds all numbers of the case, so "
    "it can be kept as a\n"
    "test: exit code 0 if nothing is found, 1 if something is. Of a single call there are the "
    "findings alone.";

/// As many numbers as a line takes.
std::string numbers(const std::vector<int64_t>& values) {
  constexpr size_t kMost = 24;
  std::string s;
  for (size_t i = 0; i < std::min(values.size(), kMost); ++i)
    s += (i == 0 ? "" : " ") + std::to_string(values[i]);
  if (values.size() > kMost) s += fmt::format(" … of {}", values.size());
  return s;
}

std::string text_of(const BufferStates& b) {
  std::string s = fmt::format("    {} [{}]\n      before  {}\n", b.name, fmt::join(b.shape, ", "),
                              numbers(b.before));
  if (!b.filled.empty()) s += fmt::format("      filled  {}\n", numbers(b.filled));
  if (b.after != b.filled && !b.after.empty())
    s += fmt::format("      after   {}\n", numbers(b.after));
  return s;
}

bool changed(const BufferStates& b) {
  const auto differs = [&](const std::vector<int64_t>& v) { return !v.empty() && v != b.before; };
  return differs(b.filled) || differs(b.after);
}

class ReplayRun {
 public:
  explicit ReplayRun(const ReplayCommand& options)
      : options_(options), report_(start_report("replay", options.common)) {}

  int run() {
    HistoryCase x;
    Status status = read_case(options_.path, &x);
    if (!status.ok()) {
      report_.bad_input = true;
      add(status, "");
      return finish(report_, options_.common);
    }
    plant(x);
    const Planted planted(faults_);
    head(x);
    status = run_steps(x, planted);
    report_.cases = 1;
    if (!options_.digest.empty()) save_digest(x, planted);
    if (!options_.against.empty()) compare(x, planted);
    add(status, x.history.to_string());
    count_plants(planted, status.ok() && !planted.faults().empty() && is_changed(x), &report_);
    judge_plants("give it other cases: `shadowgraph fuzz --plant`", &report_);
    if (status.ok() && !x.law.empty())
      report_.warnings.push_back("the file was saved for " + x.law + ", which is not found");
    return finish(report_, options_.common);
  }

 private:
  void plant(const HistoryCase& x) {
    planted_ = options_.plants;
    if (!options_.clean) planted_.insert(planted_.end(), x.plants.begin(), x.plants.end());
    for (const std::string& id : planted_) faults_.push_back(&planted_fault(id));
  }
  Status run_steps(const HistoryCase& x, const Planted& planted) {
    std::vector<std::unique_ptr<Tap>> taps;
    if (const MakeTap faults = planted.tap()) taps.push_back(faults());
    auto& log = static_cast<BufferLog&>(*taps.emplace_back(std::make_unique<BufferLog>()));
    Taps path(std::move(taps));
    return run_case(x, &path, [&](size_t i, const Status& found) {
      say(step_text(x.steps[i], i, log.take()));
      if (!found.ok()) say(fmt::format("  found in step {}:\n", i + 1));
    });
  }

  RunRecord record(const HistoryCase& x, const Planted& planted) const {
    RunRecord run;
    (void)record_case(x, planted.tap(), &run);
    return run;
  }
  void save_digest(const HistoryCase& x, const Planted& planted) {
    const RunRecord run = record(x, planted);
    const std::string text = to_digest({&run, 1});
    add(write_file(options_.digest, std::as_bytes(std::span(text))), "");
  }

  /// The other run: a case file with its own faults, or the digest of a run of these choices.
  Status read_other(const HistoryCase& x, RunRecord* other) const {
    std::vector<std::byte> bytes;
    Status status = read_file(options_.against, &bytes);
    if (!status.ok()) return status;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!is_digest(text)) {
      HistoryCase theirs;
      status = parse_case(text, options_.against, &theirs);
      if (!status.ok()) return status;
      std::vector<const Fault*> faults;
      for (const std::string& id : theirs.plants) faults.push_back(&planted_fault(id));
      *other = record(theirs, Planted(faults));
      return status;
    }
    std::vector<RunRecord> runs;
    status = parse_digest(text, options_.against, &runs);
    const auto same = std::ranges::find_if(
        runs, [&](const RunRecord& run) { return same_choices(run.choices, x.choices); });
    if (status.ok() && same == runs.end())
      status.add(make_finding("io.kind", at(options_.against), "a history of the case's choices",
                              fmt::format("{} others", runs.size())));
    if (status.ok()) *other = std::move(*same);
    return status;
  }
  void compare(const HistoryCase& x, const Planted& planted) {
    RunRecord other;
    const Status status = read_other(x, &other);
    report_.bad_input |= !status.ok();
    add(status, "");
    if (!status.ok()) return;
    const std::optional<RunDifference> d = first_difference(record(x, planted).steps, other.steps);
    if (!d) return say(fmt::format("\nthe same as {}, step by step\n", options_.against));
    Finding f = make_finding("run.nondeterminism", at(d->field + d->place),
                             fmt::format("{} in {}", d->others, options_.against), d->mine);
    f.case_id = fmt::format("step {}", d->step + 1);
    f.reproduce = fmt::format("shadowgraph replay {}{} --against {}", options_.path,
                              options_.clean ? " --clean" : "", options_.against);
    Status found;
    found.add(std::move(f));
    add(found, "");
  }

  /// Does anything that is read differ from a run without what is planted?
  bool is_changed(HistoryCase x) const {
    Effects effects[2];
    for (Effects& of_run : effects) {
      const MakeTap faults = Planted(faults_).tap();
      const std::unique_ptr<Tap> tap = &of_run == effects ? faults() : nullptr;
      of_run.watch(&x.history.runner);
      (void)run_case(x, tap.get());
    }
    return !effects[0].first_difference(effects[1]).empty();
  }

  void say(const std::string& text) const {
    if (options_.common.format != Format::kText || !options_.common.output.empty()) return;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t end = rest.find('\n');
      write_stdout(escape_controls(rest.substr(0, end)) + (end < rest.size() ? "\n" : ""));
      rest.remove_prefix(std::min(end, rest.size() - 1) + 1);
    }
  }
  void head(const HistoryCase& x) const {
    say(fmt::format("{}\n", x.history.to_string()));
    for (const Fault* fault : faults_)
      say(fmt::format("planted {}: {}\n", fault->id, fault->title));
  }
  std::string step_text(const Step& s, size_t i, const std::vector<StepLog>& logs) const {
    std::string text = fmt::format("\nstep {}  {}  requests {}  rows {}  seq_lens {}", i + 1,
                                   name_of(s.mode), fmt::join(s.requests, " "),
                                   fmt::join(s.req_pool_indices, " "), fmt::join(s.seq_lens, " "));
    if (!s.extend_lens.empty()) text += fmt::format("  new {}", fmt::join(s.extend_lens, " "));
    text += '\n';
    for (const StepLog& log : logs) {
      text += fmt::format("  {} with {} rows\n", log.phase, log.rows);
      for (const BufferStates& b : log.buffers)
        if (options_.all || changed(b)) text += text_of(b);
    }
    return text;
  }
  void add(const Status& status, const std::string& what) {
    for (Finding f : status.findings()) {
      if (f.case_id.empty()) f.case_id = what;
      add_refs(planted_, &f);
      if (f.reproduce.empty()) f.reproduce = "shadowgraph replay " + options_.path;
      report_.findings.push_back(std::move(f));
    }
  }

  const ReplayCommand& options_;
  Report report_;
  std::vector<std::string> planted_;  // ids
  std::vector<const Fault*> faults_;
};

/// A call of a kernel: one step, without buffers to show.
int replay_call(const ReplayCommand& options) {
  if (!options.plants.empty()) throw UsageError("--plant: faults have no place in a single call");
  if (!options.against.empty() || !options.digest.empty())
    throw UsageError("--against, --digest: a single call has no steps");
  Report report = start_report("replay", options.common);
  CallCase call;
  RunOptions run;
  run.arith = options.common.arith, run.isa = options.common.isa;
  run.diagnose = true;
  Status status = read_call(options.path, &call);
  report.bad_input = !status.ok();
  if (status.ok()) {
    report.cases = 1;
    status = check_case(call.x, run);
    if (status.ok() && !call.law.empty())
      report.warnings.push_back("the file was saved for " + call.law + ", which is not found");
  }
  for (Finding f : status.findings()) {
    f.case_id = report.bad_input ? "" : call.x.to_string();
    f.reproduce = "shadowgraph replay " + options.path + run.flags();
    report.findings.push_back(std::move(f));
  }
  return finish(report, options.common);
}

int run_with(ReplayCommand& options) {
  apply(options.common);
  if (is_call_file(options.path)) return replay_call(options);
  return ReplayRun(options).run();
}

}  // namespace

Verb add_replay(CLI::App& app) {
  Command command(app, "replay", "Run one case file, and show every step.", kReplayExamples);
  auto options = std::make_shared<ReplayCommand>();
  command.text("CASE", options->path, "A case file (shadowgraph.case/1 or call/1)").required();
  command.names("--plant", options->plants, "ID", "A fault besides those of the file");
  command.flag("--clean", options->clean, "Without the faults that the file names");
  command.text("--against", options->against,
               "Compare with another run of it, a case file or a digest: the first step and field "
               "that differ (run.nondeterminism)",
               "FILE");
  command.text("--digest", options->digest,
               "Write a hash of each step, and one of each of its fields", "FILE");
  command.flag("--all", options->all, "Buffers that did not change, too");
  add_common_options(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
