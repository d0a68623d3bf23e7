// conformance: graph programs on the simulated device, against what a GPU answered.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "cli.h"
#include "conformance/answers.h"
#include "conformance/conformance.h"
#include "core/laws.h"
#include "gpu.h"
#include "report/escape.h"
#include "shadowgraph/version.h"

namespace shadowgraph::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kNoRecords[] = "none";

struct ConformanceCommand {
  Common common;
  std::vector<std::string> records;
  std::set<std::string> cases, variants;  // empty: all
  int64_t seeds = 8;
  DeviceKind device = DeviceKind::kSim;
  std::string record_to;
  bool list = false;
};

constexpr char kConformanceExamples[] =
    "  shadowgraph conformance                      against the answers of an H200 that come "
    "along\n"
    "  shadowgraph conformance --records gpu.jsonl --seeds 100\n"
    "  shadowgraph conformance --case G12 --variant n.global\n"
    "  shadowgraph conformance --records none --record sim.jsonl    the device's own answers\n"
    "  shadowgraph conformance --device cuda                        a GPU's answers, each program "
    "in a process of its own\n"
    "A program of class E must answer as recorded, whatever the seed. Where CUDA leaves an answer "
    "open (S), each seed's\n"
    "must be in the set, and each member be reached. What CUDA leaves undefined (U) must be "
    "diagnosed.";

Listing listing_of(const std::vector<ConformanceCase>& cases) {
  Listing listing{"programs", {"id", "class", "variant", "title"}, {}};
  for (const ConformanceCase& c : cases) {
    const Program* program = find_program(c.id);
    const auto verdict = c.recorded ? c.recorded->verdict : program->verdict;
    const std::string title = program ? std::string(program->title) : "no such program here";
    listing.rows.push_back({c.id, std::string(shadowgraph::name_of(verdict)), c.variant, title});
  }
  return listing;
}

class Conform {
 public:
  explicit Conform(const ConformanceCommand& options)
      : options_(options),
        report_(start_report("conformance", options.common)),
        progress_(options.common, "programs") {
    report_.threads = 1;  // a callback of a program cannot tell which run it is of
    read_files();
    choose_cases();
  }

  Listing list() const {
    std::vector<ConformanceCase> all;
    for (const auto& cases : cases_) all.insert(all.end(), cases.begin(), cases.end());
    return listing_of(all);
  }

  Report run() {
    const auto start = std::chrono::steady_clock::now();
    for (size_t f = 0; f < files_.size(); ++f) {
      options_.device == DeviceKind::kCuda ? judge_answers(cases_[f], &report_.files[f])
                                           : judge_all(cases_[f], &report_.files[f]);
    }
    report_.interrupted = interrupted();
    check_something_was_judged();
    write_answers();
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  void read_files() {
    const std::vector<std::string> paths =
        options_.records.empty() ? default_records() : options_.records;
    for (const std::string& path : paths) {
      path == kNoRecords ? run_all_programs() : read_file(path);
    }
  }

  void run_all_programs() {
    files_.emplace_back();
    report_.files.emplace_back().path = kNoRecords;
    report_.files.back().notes.push_back("no record to compare with: runs are held against seed 0");
    cases_.push_back(all_cases());
  }

  /// Those that come along, unless SHADOWGRAPH_VECTORS names another folder that has some.
  static std::vector<std::string> default_records() {
    std::vector<fs::path> folders;
    if (const char* vectors = std::getenv("SHADOWGRAPH_VECTORS"); vectors != nullptr)
      folders.push_back(fs::path(vectors) / "cuda_graph");
    folders.emplace_back(SHADOWGRAPH_RECORDS);
    for (const fs::path& folder : folders) {
      std::vector<std::string> files;
      std::error_code error;
      for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
        if (it->path().extension() == ".jsonl") files.push_back(it->path().string());
      std::sort(files.begin(), files.end());
      if (!files.empty()) return files;
    }
    return {kNoRecords};
  }

  void read_file(const std::string& path) {
    auto& file = files_.emplace_back(std::make_unique<RecordFile>());
    const Status status = read_records(path, file.get());
    FileReport& shown = report_.files.emplace_back();
    shown.path = path;
    if (!file->cases.empty()) shown.kind = "graph records";
    if (!file->recorded_on.empty()) shown.notes.push_back("recorded on " + file->recorded_on);
    for (Finding f : status.findings()) {
      f.reproduce = "shadowgraph conformance --records " + shell_word(path);
      report_.findings.push_back(std::move(f));
      report_.bad_input = true;
    }
    cases_.push_back(cases_of(*file));
  }

  void choose_cases() {
    std::set<std::string> ids, variants;
    size_t chosen = 0;
    for (auto& cases : cases_) {
      for (const ConformanceCase& c : cases) ids.insert(c.id), variants.insert(c.variant);
      std::erase_if(cases, [&](const ConformanceCase& c) {
        return !(options_.cases.empty() || options_.cases.contains(c.id)) ||
               !(options_.variants.empty() || options_.variants.contains(c.variant));
      });
      chosen += cases.size();
    }
    total_ = static_cast<int64_t>(chosen);
    if (report_.bad_input) return;
    check_names("--case", options_.cases, ids);
    check_names("--variant", options_.variants, variants);
    if (chosen == 0 && !ids.empty()) {
      throw UsageError("--variant: no case that was chosen has that variant");
    }
  }

  static void check_names(const char* option, const std::set<std::string>& wanted,
                          const std::set<std::string>& known) {
    for (const std::string& name : wanted) {
      if (known.contains(name)) continue;
      const auto meant = nearest(name, {known.begin(), known.end()});
      throw UsageError(fmt::format(
          "{}: there is no '{}'{}", option, name,
          meant.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(meant, ", "))));
    }
  }

  void judge_all(std::span<const ConformanceCase> cases, FileReport* file) {
    const Seeds seeds{options_.common.seed, options_.seeds};
    for (const ConformanceCase& c : cases) {
      ProgramVerdict verdict = run_case(c, simulated_device, seeds, interrupted());
      if (interrupted()) return;
      add(c, std::move(verdict), file);
    }
  }

  /// They come in any order; the report has them in the file's.
  void judge_answers(std::span<const ConformanceCase> cases, FileReport* file) {
    std::vector<ProgramVerdict> verdicts(cases.size());
    size_t done = 0;
    answers_of(cases, open_gpu, {}, interrupted(), [&](size_t i, Record answer) {
      verdicts[i] = judge_answer(cases[i], std::move(answer));
      ++done;
      progress_.update(static_cast<double>(done) / static_cast<double>(total_),
                       static_cast<int64_t>(done), report_.open_findings());
    });
    if (interrupted()) return;
    for (size_t i = 0; i < cases.size(); ++i) add(cases[i], std::move(verdicts[i]), file);
  }

  void add(const ConformanceCase& c, ProgramVerdict verdict, FileReport* file) {
    const bool is_judged = verdict.status != Conformance::kSkipped;
    ++(is_judged ? report_.cases : report_.skipped);
    ++(is_judged ? file->cases : file->skipped);
    if (is_judged) ++(verdict.findings.ok() ? file->agreed : file->flagged);
    add_row(c, verdict);
    for (Finding& f : verdict.findings.findings()) {
      f.reproduce = command(c, file->path);
      report_.findings.push_back(std::move(f));
    }
    keep_answer(c, std::move(verdict.first));
    const int64_t done = report_.cases + report_.skipped;
    progress_.update(static_cast<double>(done) / static_cast<double>(total_), done,
                     report_.open_findings());
  }

  void add_row(const ConformanceCase& c, const ProgramVerdict& verdict) {
    const Program* program = find_program(c.id);
    const Verdict of = program ? program->verdict : c.recorded->verdict;
    report_.conformance.push_back({c.id, c.variant, std::string(shadowgraph::name_of(of)),
                                   std::string(shadowgraph::name_of(verdict.status)), verdict.why});
  }

  std::string command(const ConformanceCase& c, const std::string& path) const {
    std::string s = "shadowgraph conformance";
    if (!options_.records.empty() || c.recorded == nullptr) s += " --records " + shell_word(path);
    s += " --case " + shell_word(c.id) + " --variant " + shell_word(c.variant);
    if (options_.common.seed != Common().seed) s += fmt::format(" --seed {}", options_.common.seed);
    if (options_.device == DeviceKind::kCuda) s += " --device cuda";
    if (options_.seeds != ConformanceCommand().seeds)
      s += fmt::format(" --seeds {}", options_.seeds);
    return s;
  }

  void keep_answer(const ConformanceCase& c, Record answer) {
    const Program* program = find_program(c.id);
    if (options_.record_to.empty() || program == nullptr || answer.id.empty()) return;
    answers_.push_back({program->verdict, std::string(program->title), std::move(answer)});
  }

  /// Half of the answers would pass for all of them.
  void write_answers() const {
    if (options_.record_to.empty() || report_.interrupted) return;
    const char* device = options_.device == DeviceKind::kCuda ? "cuda" : "simulated";
    const Status status =
        write_records(options_.record_to, device, "Shadowgraph " SHADOWGRAPH_VERSION, answers_);
    if (!status.ok()) throw OutputError(status.to_string());
  }

  /// A file that held nothing must not look clean.
  void check_something_was_judged() {
    if (report_.interrupted || report_.bad_input || total_ > 0) return;
    for (const FileReport& file : report_.files) {
      Finding finding = make_finding("io.kind", at("path"), "a record", "none");
      finding.case_id = file.path;
      finding.reproduce = "shadowgraph conformance --records " + shell_word(file.path);
      report_.bad_input = true;
      report_.findings.push_back(std::move(finding));
    }
  }

  const ConformanceCommand& options_;
  Report report_;
  Progress progress_;
  // By file, as report_.files: what was read (null: no record), and what of it is run.
  std::vector<std::unique_ptr<RecordFile>> files_;
  std::vector<std::vector<ConformanceCase>> cases_;
  int64_t total_ = 0;
  std::vector<RecordedProgram> answers_;
};

int run_with(ConformanceCommand& options) {
  apply(options.common);
  catch_interrupts();
  if (options.device == DeviceKind::kCuda && !has_gpu()) options.device = DeviceKind::kSim;
  Conform conform(options);
  if (options.list) return finish(conform.list(), options.common);
  return finish(conform.run(), options.common);
}

}  // namespace

Verb add_conformance(CLI::App& app) {
  Command command(
      app, "conformance",
      "Run graph programs on the simulated device, or a GPU, and compare with what a GPU answered.",
      kConformanceExamples);
  auto options = std::make_shared<ConformanceCommand>();
  command.each(
      "--records", [options](const std::string& file) { options->records.push_back(file); },
      "Recorded answers, and with them which programs are run; may be given more than "
      "once (default: those of an H200); none: run all programs, with nothing to compare",
      "FILE");
  command.each(
      "--case", [options](const std::string& id) { options->cases.insert(id); },
      "Run this program only; may be given more than once", "ID");
  command.each(
      "--variant", [options](const std::string& id) { options->variants.insert(id); },
      "Run this variant only; as --case", "ID");
  command.number("--seeds", options->seeds, int64_t{1}, int64_t{1} << 40,
                 "Run each program with seed 0 and N more, from --seed on (default 8)");
  add_device(command, options->device);
  command.text("--record", options->record_to,
               "Write the device's own answers to this file, whole or not at all", "FILE");
  command.flag("--list", options->list, "Print what would be run, and run nothing");
  add_max_findings(command, options->common);
  add_common_options(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
