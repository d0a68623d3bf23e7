// check: judges recorded work. Every file is read and judged on its own; one that cannot be read
// stops no other.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

#include "check/recorded/judge.h"
#include "check/traces/traces.h"
#include "check_files.h"
#include "cli.h"
#include "core/laws.h"
#include "core/parallel.h"
#include "faults/faults.h"
#include "gpu.h"
#include "io/recorded/recorded_cases.h"
#include "io/traces/traces.h"
#include "report/escape.h"

namespace shadowgraph::cli {
namespace {

namespace fs = std::filesystem;

struct CheckCommand {
  Common common;
  std::vector<std::string> paths;
  std::set<std::string> cases;  // patterns; empty: all
  std::string waive;            // a file; empty: none
  std::string plant;            // a fault; empty: none
  bool diagnose = false;
  bool strict = false;
  DeviceKind device = DeviceKind::kSim;
};

constexpr char kCheckExamples[] =
    "  shadowgraph check attention.safetensors\n"
    "  shadowgraph check vectors/ --format json --output report.json\n"
    "  shadowgraph check attention.safetensors --case case007 --isa generic\n"
    "  shadowgraph check flashattention.current.jsonl --waive known.txt\n"
    "  shadowgraph check flashinfer.safetensors --plant K36   does the planted fault make what was "
    "recorded of it?\n"
    "  zcat steps.jsonl.gz | shadowgraph check - --case 'step-1*'\n"
    "Kernel vectors (*.safetensors): what a kernel was given and what it returned. Our kernels "
    "compute each case again;\n"
    "both results are held against a float64 oracle and the error bound that their arithmetic "
    "allows.\n"
    "docs/recordings.md shows how to write such a file with numpy or torch; `shadowgraph list "
    "keys` "
    "has its names.\n"
    "Engine traces (*.jsonl): a batch and the metadata that an engine's backend made of it. Its "
    "twin makes them again;\n"
    "what is live of both must agree.";

/// Does the finding say what the numbers of a kernel vector are, or that they are passed over? Any
/// other finding is an input that could not be judged.
bool is_verdict(const Finding& finding) {
  return finding.id.starts_with("num.") || finding.id.starts_with("skip.");
}

/// Which case of the file a reader's finding is about; empty: the file itself.
std::string case_in(const Finding& finding, const std::string& path) {
  return finding.case_id.starts_with(path + '#') ? finding.case_id.substr(path.size() + 1) : "";
}

class Check {
 public:
  explicit Check(const CheckCommand& options)
      : options_(options),
        report_(start_report("check", options.common)),
        progress_(options.common, "cases"),
        gpu_(options.device) {}

  Report run() {
    const auto start = std::chrono::steady_clock::now();
    read_waivers();
    find_planted();
    const std::vector<std::string> files = all_files();
    for (file_ = 0; file_ < files.size() && !interrupted(); ++file_)
      check_file(files[file_], files.size());
    report_.interrupted = interrupted();
    check_case_names();
    check_something_was_judged();
    if (!interrupted() && options_.cases.empty()) add_unused_waivers();
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  std::vector<std::string> all_files() {
    std::vector<std::string> files;
    for (const std::string& path : options_.paths) {
      std::error_code error;
      if (!fs::is_directory(path, error)) {
        files.push_back(path);
        continue;
      }
      Status status;
      for (std::string& file : files_below(path, &status)) files.push_back(std::move(file));
      add_findings(path, "", std::as_const(status).findings());
    }
    return files;
  }

  void find_planted() {
    if (options_.plant.empty()) return;
    planted_.emplace(std::vector<const Fault*>{&planted_fault(options_.plant)});
  }

  void read_waivers() {
    if (options_.waive.empty()) return;
    Status status = waivers_.read(options_.waive);
    for (Finding& f : status.findings()) {
      f.reproduce = command_with_waivers();
      report_.bad_input = true;
      report_.findings.push_back(std::move(f));
    }
  }

  void add_unused_waivers() {
    for (const PassedOver& unused : waivers_.unused()) {
      pass_over(unused, nullptr);
      if (!options_.strict) continue;
      Evidence& evidence = report_.evidence[report_.findings.size()];
      evidence.path = unused.path, evidence.line = unused.line;
      Finding& finding =
          report_.findings.emplace_back(passed_over(unused.law, "waiver", unused.what));
      finding.case_id = unused.path;
      finding.expected = "a finding that it covers";
      finding.reproduce = command_with_waivers();
    }
  }

  std::string command_with_waivers() const {
    return command(options_.paths, options_.cases) + " --waive " + shell_word(options_.waive);
  }

  void check_file(const std::string& path, size_t num_files) {
    FileReport file;
    file.path = path;
    num_files_ = num_files;
    switch (kind_of(path)) {
      case WorkKind::kVectors: check_recorded(&file); break;
      case WorkKind::kTraces: check_traces(&file); break;
      case WorkKind::kNone: {
        const Finding f = about_path("io.kind", path, "safetensors, or JSON", "neither");
        add_findings(path, "", {&f, 1});
      }
    }
    const bool chosen = file.cases + file.skipped > 0;
    if (!options_.cases.empty() && !chosen) return;  // --case: it is in another file
    const std::string_view run[] = {file.steps.empty() ? "vectors" : "traces"};
    if (file.cases > 0) report_.add_laws(laws_.take(), run);
    report_.cases += file.cases;
    report_.skipped += file.skipped;
    report_.files.push_back(std::move(file));
  }

  void check_recorded(FileReport* file) {
    SafetensorsFile content;
    std::vector<RecordedCase> cases;
    std::vector<SkippedCase> skipped;
    Status faults = read_safetensors(file->path, &content);
    if (faults.ok()) faults = parse_recorded_cases(content, file->path, &cases, &skipped);
    faults.add(take_unknown_arithmetics(file->path, &cases));
    keep_chosen(names_systems(content) ? "recurrent vectors" : "kernel vectors", faults, &cases,
                &skipped, file);
    const RecordedOptions how{.arith = options_.common.arith,
                              .tap = planted_ ? planted_->tap() : nullptr,
                              .diagnose = options_.diagnose,
                              .device = gpu_.calls()};
    const auto verdicts =
        judge_all(cases, file, [&](const RecordedCase& c) { return judge_recorded(c, how); });
    std::vector<SkippedCase> unchanged;
    for (size_t i = 0; i < verdicts.size(); ++i) {
      if (!verdicts[i]) continue;
      const std::string& id = cases[i].id;
      if (verdicts[i]->acted) {
        add_case(file, cases[i], *verdicts[i]);
      } else {
        unchanged.push_back({id, id, options_.plant + " changed nothing", "skip.plant"});
      }
    }
    note_skipped(unchanged, file);
  }

  /// Those that --case names, and, with a planted fault, those on whose path it stands.
  void keep_chosen(const char* kind, const Status& faults, std::vector<RecordedCase>* cases,
                   std::vector<SkippedCase>* skipped, FileReport* file) {
    const std::string& path = file->path;
    const std::set<std::string> bad_cases = add_faults(path, faults);
    std::erase_if(*cases, [&](const RecordedCase& c) { return !is_chosen(path, c.id); });
    std::erase_if(*skipped, [&](const SkippedCase& s) { return !is_chosen(path, s.id); });
    for (const std::string& id : bad_cases)
      skipped->push_back({id, id, "bad input", "skip.bad_input"});
    if (!cases->empty() || !skipped->empty()) file->kind = kind;
    if (planted_) {
      for (const RecordedCase& c : *cases) {
        if (!is_planted(c))
          skipped->push_back({c.id, c.kind, "not on the planted fault's path", "skip.plant"});
      }
      std::erase_if(*cases, [](const RecordedCase& c) { return !is_planted(c); });
    }
    note_skipped(*skipped, file);
  }

  void check_traces(FileReport* file) {
    std::vector<TraceLine> lines;
    if (planted_) throw UsageError("--plant: traces are recorded; only kernel vectors run");
    const Status faults = read_traces(file->path, &lines);
    add_findings(file->path, "", faults.findings());
    std::erase_if(lines, [&](const TraceLine& line) { return !is_chosen(file->path, line.id); });
    if (!lines.empty()) {
      file->kind = "engine traces";
      file->role = lines[0].role;
    }
    const auto verdicts =
        judge_all(lines, file, [](const TraceLine& line) { return judge_trace(line); });
    Passing skips(file->path), left_out(file->path), unread(file->path);
    for (size_t i = 0; i < verdicts.size(); ++i) {
      if (!verdicts[i]) continue;
      const TraceVerdict& verdict = *verdicts[i];
      if (lines[i].role != file->role) file->role.clear();
      add_line(file, lines[i], verdict);
      const auto line = static_cast<int64_t>(lines[i].line);
      const bool refused = verdict.kind == TraceVerdict::Kind::kRefused;
      if (!verdict.skip.empty())
        skips.add(verdict.skip, "skipped, " + (refused ? "bad input" : verdict.why), line);
      for (const LeftOut& field : verdict.left_out) left_out.add(field, line);
      for (const LeftOut& field : verdict.unread) unread.add(field, line);
      if (options_.strict && !refused)
        add_findings(file->path, lines[i].id, passed_over(lines[i], verdict), kTrace,
                     lines[i].line);
      report_.unknown_backends += verdict.unknown_backend();
      report_.left_out += static_cast<int64_t>(verdict.left_out.size());
    }
    for (const PassedOver& skip : skips.of_lines()) pass_over(skip, file);
    // Nobody is to mend them: they are told, and count as nothing passed over.
    file->unread = unread.of_lines();
    for (const PassedOver& field : file->unread)
      file->notes.push_back(fmt::format("{} [{}]", field.what, field.law));
    for (const PassedOver& field : left_out.of_lines()) pass_over(field, nullptr);
  }

  /// Skipped cases stand in the notes of their file; anything else is a warning.
  void pass_over(const PassedOver& passed, FileReport* file) {
    if (file != nullptr) {
      file->notes.push_back(fmt::format("{} [{}]", passed.what, passed.law));
    } else {
      report_.warnings.push_back(passed.to_string());
    }
    report_.passed_over.push_back(passed);
  }

  void add_line(FileReport* file, const TraceLine& line, const TraceVerdict& verdict) {
    const auto same = [&](const StepTally& t) {
      return t.mode == line.mode && t.phase == line.phase;
    };
    auto tally = std::ranges::find_if(file->steps, same);
    if (tally == file->steps.end())
      tally = file->steps.insert(tally, StepTally{line.mode, line.phase, 0, 0, 0, 0});
    const bool refused = verdict.kind == TraceVerdict::Kind::kRefused;
    if (refused)
      add_findings(file->path, line.id, verdict.findings.findings(), kBadLine, line.line);
    if (refused || verdict.kind == TraceVerdict::Kind::kSkipped) {
      ++file->skipped;
      ++tally->skipped;
      return;
    }
    int64_t StepTally::*const in_steps = count_case(
        file, add_findings(file->path, line.id, verdict.findings.findings(), kTrace, line.line));
    ++((*tally).*in_steps);
  }

  /// open: whether a finding counts; absent: there is none.
  static int64_t StepTally::*count_case(FileReport* file, std::optional<bool> open) {
    ++file->cases;
    ++(!open ? file->agreed : *open ? file->flagged : file->waived);
    return !open ? &StepTally::agreed : *open ? &StepTally::flagged : &StepTally::waived;
  }

  /// What the reader found; returns the cases that it refused.
  std::set<std::string> add_faults(const std::string& path, const Status& faults) {
    std::set<std::string> bad_cases;
    for (const Finding& fault : faults.findings()) {
      const std::string id = case_in(fault, path);
      if (!id.empty() && !is_chosen(path, id)) continue;
      if (!id.empty()) bad_cases.insert(id);
      add_findings(path, id, {&fault, 1});
    }
    return bad_cases;
  }

  /// By --case, as the id alone or as FILE#ID.
  bool is_chosen(const std::string& path, const std::string& id) {
    bool chosen = options_.cases.empty();
    for (const std::string& pattern : options_.cases) {
      if (!matches(pattern, id) && !matches(pattern, path + '#' + id)) continue;
      chosen = true;
      seen_.insert(pattern);
    }
    return chosen;
  }

  void note_skipped(const std::vector<SkippedCase>& skipped, FileReport* file) {
    std::map<std::string, std::set<std::string>> kinds;  // by reason
    std::map<std::string, PassedOver> all;
    file->skipped += std::ssize(skipped);
    for (const SkippedCase& s : skipped) {
      kinds[s.reason].insert(s.kind);
      PassedOver& passed = all[s.reason];
      passed.law = s.law, passed.path = file->path, ++passed.count;
      if (options_.strict && s.law != "skip.bad_input")
        add_finding(file->path, s.id, passed_over(s.law, s.kind, s.reason));
    }
    for (auto& [reason, passed] : all) {
      passed.what = fmt::format("skipped, {}: {}", reason, fmt::join(kinds[reason], ", "));
      pass_over(passed, file);
    }
  }

  /// Cases run side by side, each on one thread. What an interrupt leaves out is skipped.
  template <class Case, class Judge>
  std::vector<std::optional<std::invoke_result_t<Judge, Case&>>> judge_all(std::vector<Case>& cases,
                                                                           FileReport* file,
                                                                           const Judge& judge_one) {
    std::vector<std::optional<std::invoke_result_t<Judge, Case&>>> verdicts(cases.size());
    std::atomic<int64_t> done{0};
    std::exception_ptr failure;
    std::mutex mutex;
    const auto judge = [&](int64_t i, int) {
      if (interrupted()) return;
      try {
        verdicts[i] = laws_.count([&] { return judge_one(cases[i]); });
        const int64_t judged = ++done;
        const double part = static_cast<double>(judged) / static_cast<double>(cases.size());
        progress_.update((static_cast<double>(file_) + part) / static_cast<double>(num_files_),
                         report_.cases + judged, report_.open_findings());
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    };
    const int threads = options_.common.num_threads();
    parallel_for(static_cast<int64_t>(cases.size()), threads, judge);
    if (failure) std::rethrow_exception(failure);
    const auto left = std::ranges::count_if(verdicts, [](const auto& v) { return !v; });
    if (left > 0) {
      file->skipped += left;
      pass_over({"skip.interrupted", file->path, "skipped, interrupted", left}, file);
      if (options_.strict)
        add_finding(file->path, "", passed_over("skip.interrupted", "", "interrupted"));
    }
    return verdicts;
  }

  void add_case(FileReport* file, const RecordedCase& recorded, const RecordedVerdict& verdict) {
    report_.case_list.push_back(report_of(file->path + '#' + recorded.id, recorded, verdict));
    count_case(file, add_findings(file->path, recorded.id, verdict.findings.findings()));
  }

  std::string command(const std::vector<std::string>& paths,
                      const std::set<std::string>& cases) const {
    std::string s = "shadowgraph check";
    for (const std::string& path : paths) s += ' ' + shell_word(path);
    for (const std::string& id : cases) s += " --case " + shell_word(id);
    if (!options_.plant.empty()) s += " --plant " + options_.plant;
    if (options_.diagnose) s += " --diagnose";
    if (options_.strict) s += " --strict";
    if (options_.device == DeviceKind::kCuda) s += " --device cuda";
    return s + options_.common.reproduce_flags();
  }

  enum Kind : uint8_t { kVector, kTrace, kBadLine };

  /// id: the case they are about; empty: the file, or a line that is none. line: of the case, 0 if
  /// it has none. Absent: there was no finding; else whether one counts.
  std::optional<bool> add_findings(const std::string& path, const std::string& id,
                                   std::span<const Finding> findings, Kind kind = kVector,
                                   size_t line = 0) {
    if (findings.empty()) return {};
    bool open = false;
    for (Finding f : findings) {
      if (!id.empty()) f.case_id = kind == kVector ? fmt::format("{}#{}", path, id) : id;
      f.reproduce = command({path}, id.empty() ? std::set<std::string>{} : std::set{id});
      const bool verdict = kind == kTrace || (kind == kVector && is_verdict(f));
      if (verdict) waivers_.apply(&f);
      report_.bad_input |= !verdict;
      open |= f.waived.empty();
      Evidence& evidence = report_.evidence[report_.findings.size()];
      evidence.path = path;
      if (line > 0) evidence.line = static_cast<int64_t>(line);
      if (f.id == "io.line") evidence.line = f.where.row;
      report_.findings.push_back(std::move(f));
    }
    return open;
  }

  void add_finding(const std::string& path, const std::string& id, const Finding& finding) {
    add_findings(path, id, {&finding, 1});
  }

  void check_case_names() const {
    if (report_.interrupted || report_.bad_input) return;
    for (const std::string& id : options_.cases) {
      if (!seen_.contains(id)) throw UsageError("--case: no file has a case '" + id + "'");
    }
  }

  /// A run that judged nothing at all must not look clean.
  void check_something_was_judged() {
    if (report_.interrupted || report_.bad_input || report_.cases > 0) return;
    if (planted_ && planted_->acted(0) == 0) {
      report_.void_verdict = options_.plant + " never acted";
      report_.warnings.push_back(options_.plant + " never acted: no case has what it changes");
      return;
    }
    for (const FileReport& file : report_.files) {
      if (file.skipped == 0) continue;
      Finding finding = about_path("io.nothing", file.path, "a case that can be judged",
                                   fmt::format("{}", fmt::join(file.notes, "; ")));
      finding.reproduce = command(options_.paths, options_.cases);
      report_.bad_input = true;
      report_.findings.push_back(std::move(finding));
    }
  }

  const CheckCommand& options_;
  Report report_;
  Progress progress_;
  Gpu gpu_;
  Waivers waivers_;
  std::optional<Planted> planted_;
  size_t file_ = 0, num_files_ = 1;
  SharedLawCounts laws_;        // of a file
  std::set<std::string> seen_;  // patterns of --case that chose something
};

}  // namespace

Verb add_check(CLI::App& app) {
  Command command(app, "check",
                  "Judge recorded work: kernel vectors, attention's and "
                  "recurrent ones (safetensors), engine traces (jsonl), or "
                  "folders of them.",
                  kCheckExamples);
  auto options = std::make_shared<CheckCommand>();
  command
      .texts("PATH", options->paths,
             "Files, folders to search for *.safetensors and *.jsonl, or -: traces on stdin")
      .required();
  command.each(
      "--case", [options](const std::string& id) { options->cases.insert(id); },
      "Judge this case only, as ID or FILE#ID, * for any text; may be given more than once", "ID");
  command.text("--plant", options->plant,
               "Run the twin's step of a two-part prefill with this fault, and hold it against "
               "what was recorded of the fault",
               "ID");
  command.flag("--diagnose", options->diagnose,
               "Say of wrong results which known mistake would give them: `shadowgraph list "
               "mistakes` has all");
  command.flag("--strict", options->strict,
               "What is passed over is a finding: skipped cases and lines, fields that are left "
               "out, and waivers that waive nothing");
  command.text("--waive", options->waive,
               "A pattern (law, case or LAW@CASE, with *) and its reason on each line: such "
               "findings do not count",
               "FILE");
  add_device(command, options->device);
  add_max_findings(command, options->common);
  add_common_options(command, options->common);
  return {command, [options] {
            check_device(options->device, options->common);
            apply(options->common);
            catch_interrupts();
            return finish(Check(*options).run(), options->common);
          }};
}

}  // namespace shadowgraph::cli
