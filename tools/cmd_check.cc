// check: judges recorded work. Every file is read and judged on its own; one that cannot be read
// stops no other.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

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
    check_case_names();
    report_.interrupted = interrupted();
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
      add_findings(path, "", std::move(status));
    }
    return files;
  }

  void check_file(const std::string& path, size_t num_files) {
    FileReport file;
    file.path = path;
    std::vector<KernelVector> vectors;
    std::vector<SkippedCase> skipped;
    Status status = read_kernel_vectors(path, &vectors, &skipped);
    if (status.ok()) {
      file.kind = "kernel vectors";
      for (const KernelVector& vector : vectors) seen_.insert(vector.id);
      if (!options_.cases.empty()) {
        std::erase_if(vectors,
                      [&](const KernelVector& v) { return !options_.cases.contains(v.id); });
        std::erase_if(skipped,
                      [&](const SkippedCase& s) { return !options_.cases.contains(s.id); });
      }
      note_skipped(skipped, &file);
      judge_all(vectors, num_files, &file);
    }
    add_findings(path, "", std::move(status));
    report_.cases += file.cases;
    report_.skipped += file.skipped;
    report_.files.push_back(std::move(file));
  }

  void note_skipped(const std::vector<SkippedCase>& skipped, FileReport* file) {
    std::map<std::string, std::set<std::string>> kinds;  // by reason
    for (const SkippedCase& s : skipped) {
      seen_.insert(s.id);
      kinds[s.reason].insert(s.kind);
    }
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
    add_findings(file->path, vector.id, std::move(verdict.findings));
  }

  /// id: the case they are about; empty: the file.
  void add_findings(const std::string& path, const std::string& id, Status status) {
    for (Finding& f : status.findings()) {
      f.reproduce = "shadowgraph check " + shell_word(path);
      if (!id.empty()) {
        f.case_id = fmt::format("{}#{}", path, id);
        f.reproduce += " --case " + shell_word(id);
      }
      f.reproduce += options_.common.reproduce_flags();
      report_.bad_input |= !is_verdict(f);
      report_.findings.push_back(std::move(f));
    }
  }

  void check_case_names() const {
    if (interrupted() || report_.bad_input) return;
    for (const std::string& id : options_.cases) {
      if (!seen_.contains(id)) throw UsageError("--case: no file has a case '" + id + "'");
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
  add_common_options(command, options->common);
  return {&command, [options] {
            apply(options->common);
            catch_interrupts();
            return finish(Check(*options).run(), options->common);
          }};
}

}  // namespace shadowgraph::cli
