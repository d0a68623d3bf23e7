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
#include <utility>

#include "check/vectors.h"
#include "cli.h"
#include "core/laws.h"
#include "core/parallel.h"
#include "io/kernel_vectors.h"
#include "report/escape.h"

namespace shadowgraph::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  Common common;
  std::vector<std::string> paths;
  std::set<std::string> cases;  // empty: all
};

constexpr char kExamples[] =
    "  shadowgraph check attention.safetensors\n"
    "  shadowgraph check vectors/ --format json --output report.json\n"
    "  shadowgraph check attention.safetensors --case case007 --isa generic\n"
    "A file holds kernel vectors: what a kernel was given and what it returned. Our kernels "
    "compute each case again;\n"
    "both results are held against a float64 oracle and the error bound that their arithmetic "
    "allows.";

/// What the numbers say. Anything else that is found is an input which could not be judged.
bool is_verdict(const Finding& finding) { return finding.id.starts_with("num."); }

Finding about_path(LawId law, const std::string& path, std::string expected, std::string got) {
  Finding finding = make_finding(law, at("path"), std::move(expected), std::move(got));
  finding.case_id = path;
  return finding;
}

/// Which case of the file a reader's finding is about; empty: the file itself.
std::string case_in(const Finding& finding, const std::string& path) {
  return finding.case_id.starts_with(path + '#') ? finding.case_id.substr(path.size() + 1) : "";
}

/// The files of a folder and below that look like vectors, sorted. Links to folders are not
/// followed.
std::vector<std::string> files_below(const std::string& folder, Status* status) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::end(it); it.increment(error)) {
    std::error_code unreadable;
    if (it->path().extension() == ".safetensors" && !it->is_directory(unreadable)) {
      files.push_back(it->path().string());
    }
  }
  if (error) status->add(about_path("io.open", folder, "a readable folder", error.message()));
  if (!error && files.empty()) {
    status->add(about_path("io.kind", folder, "*.safetensors in it or below", "none"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Check {
 public:
  explicit Check(const Options& options)
      : options_(options),
        report_(start_report("check", options.common)),
        progress_(options.common, "cases") {}

  Report run() {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<std::string> files = all_files();
    for (file_ = 0; file_ < files.size() && !interrupted(); ++file_)
      check_file(files[file_], files.size());
    report_.interrupted = interrupted();
    check_case_names();
    check_something_was_judged();
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

  void check_file(const std::string& path, size_t num_files) {
    FileReport file;
    file.path = path;
    std::vector<KernelVector> vectors;
    std::vector<SkippedCase> skipped;
    const std::set<std::string> bad_cases =
        add_faults(path, read_kernel_vectors(path, &vectors, &skipped));
    std::erase_if(vectors, [&](const KernelVector& v) { return !is_chosen(v.id); });
    std::erase_if(skipped, [&](const SkippedCase& s) { return !is_chosen(s.id); });
    for (const std::string& id : bad_cases) skipped.push_back({id, id, "bad input"});
    if (!vectors.empty() || !skipped.empty()) file.kind = "kernel vectors";
    note_skipped(skipped, &file);
    judge_all(vectors, num_files, &file);
    report_.cases += file.cases;
    report_.skipped += file.skipped;
    report_.files.push_back(std::move(file));
  }

  /// What the reader found; returns the cases that it refused.
  std::set<std::string> add_faults(const std::string& path, const Status& faults) {
    std::set<std::string> bad_cases;
    for (const Finding& fault : faults.findings()) {
      const std::string id = case_in(fault, path);
      if (!id.empty() && !is_chosen(id)) continue;
      if (!id.empty()) bad_cases.insert(id);
      add_findings(path, id, {&fault, 1});
    }
    return bad_cases;
  }

  /// By --case. Notes that there is such a case.
  bool is_chosen(const std::string& id) {
    seen_.insert(id);
    return options_.cases.empty() || options_.cases.contains(id);
  }

  void note_skipped(const std::vector<SkippedCase>& skipped, FileReport* file) {
    std::map<std::string, std::set<std::string>> kinds;  // by reason
    for (const SkippedCase& s : skipped) kinds[s.reason].insert(s.kind);
    file->skipped = static_cast<int64_t>(skipped.size());
    for (const auto& [reason, names] : kinds) {
      file->notes.push_back(fmt::format("skipped, {}: {}", reason, fmt::join(names, ", ")));
    }
  }

  /// Cases run side by side, each on one thread, and are reported in the file's order.
  void judge_all(std::vector<KernelVector>& vectors, size_t num_files, FileReport* file) {
    std::vector<std::optional<VectorVerdict>> verdicts(vectors.size());
    std::atomic<int64_t> done{0};
    std::exception_ptr failure;
    std::mutex mutex;
    const auto judge = [&](int64_t i, int) {
      if (interrupted()) return;
      try {
        verdicts[i] = judge_vector(on_one_thread(vectors[i]), options_.common.arith);
        const int64_t judged = ++done;
        const double part = static_cast<double>(judged) / static_cast<double>(vectors.size());
        progress_.update((static_cast<double>(file_) + part) / static_cast<double>(num_files),
                         report_.cases + judged, report_.open_findings());
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    };
    parallel_for(static_cast<int64_t>(vectors.size()), options_.common.num_threads(), judge);
    if (failure) std::rethrow_exception(failure);
    for (size_t i = 0; i < vectors.size(); ++i) {
      if (verdicts[i]) {
        add_case(file, vectors[i], std::move(*verdicts[i]));
      } else {
        ++file->skipped;
      }
    }
  }

  static const KernelVector& on_one_thread(KernelVector& vector) {
    for (AnyCall& any : vector.calls) {
      std::visit([](auto& call) { call.options.num_threads = 1; }, any);
    }
    return vector;
  }

  void add_case(FileReport* file, const KernelVector& vector, VectorVerdict verdict) {
    CaseReport c;
    c.id = file->path + '#' + vector.id;
    c.kind = vector.kind;
    c.dtype = shadowgraph::name_of(vector.dtype);
    c.error_over_bound = verdict.ours.out;
    c.lse_error_over_bound = verdict.ours.lse;
    c.gpu_error_over_bound = verdict.gpu.out;
    c.gpu_lse_error_over_bound = verdict.gpu.lse;
    c.notes = std::move(verdict.notes);
    c.known_wrong = std::move(verdict.known_wrong);
    if (verdict.unbounded_rows > 0) {
      c.notes.push_back(
          fmt::format("{} rows of which the bound says nothing", verdict.unbounded_rows));
    }
    report_.case_list.push_back(std::move(c));
    ++file->cases;
    ++(verdict.findings.ok() ? file->agreed : file->flagged);
    add_findings(file->path, vector.id, std::as_const(verdict.findings).findings());
  }

  std::string command(const std::vector<std::string>& paths,
                      const std::set<std::string>& cases) const {
    std::string s = "shadowgraph check";
    for (const std::string& path : paths) s += ' ' + shell_word(path);
    for (const std::string& id : cases) s += " --case " + shell_word(id);
    return s + options_.common.reproduce_flags();
  }

  /// id: the case they are about; empty: the file.
  void add_findings(const std::string& path, const std::string& id,
                    std::span<const Finding> findings) {
    for (Finding f : findings) {
      if (!id.empty()) f.case_id = fmt::format("{}#{}", path, id);
      f.reproduce = command({path}, id.empty() ? std::set<std::string>{} : std::set{id});
      report_.bad_input |= !is_verdict(f);
      report_.findings.push_back(std::move(f));
    }
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
    for (const FileReport& file : report_.files) {
      if (file.skipped == 0) continue;
      Finding finding = about_path("io.kind", file.path, "a case that can be judged",
                                   fmt::format("{}", fmt::join(file.notes, "; ")));
      finding.reproduce = command(options_.paths, options_.cases);
      report_.bad_input = true;
      report_.findings.push_back(std::move(finding));
    }
  }

  const Options& options_;
  Report report_;
  Progress progress_;
  size_t file_ = 0;
  std::set<std::string> seen_;  // ids
};

}  // namespace

Verb add_check(CLI::App& app) {
  CLI::App& command = add_command(
      app, "check", "Judge recorded work: kernel vectors (safetensors), or folders of them.",
      kExamples);
  auto options = std::make_shared<Options>();
  command.add_option("PATH", options->paths, "Files, or folders to search for *.safetensors")
      ->required();
  command
      .add_option_function<std::vector<std::string>>(
          "--case",
          [options](const std::vector<std::string>& ids) {
            options->cases.insert(ids.begin(), ids.end());
          },
          "Judge this case only; may be given more than once")
      ->type_name("ID")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_max_findings(command, options->common);
  add_common_options(command, options->common);
  return {&command, [options] {
            apply(options->common);
            catch_interrupts();
            return finish(Check(*options).run(), options->common);
          }};
}

}  // namespace shadowgraph::cli
