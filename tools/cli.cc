#include "cli.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/parallel.h"
#include "fuzz/pairs.h"
#include "io/file.h"
#include "kernels/isa/units.h"
#include "report/escape.h"
#include "shadowgraph/version.h"

namespace shadowgraph::cli {
namespace {

const char* name_of(Arith arith) { return arith == Arith::kFast ? "fast" : "portable"; }

std::string names_of_isas() { return fmt::format("{}", fmt::join(available_isas(), ", ")); }

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

/// --format, with so many of the formats: a listing is text or JSON.
void add_format(Command& command, Common& common, size_t count) {
  std::vector<std::pair<std::string, Format>> names;
  for (const auto& [format, name] : formats().first(count)) names.emplace_back(name, format);
  command.choice<Format>("--format", common.format, names,
                         "How results are written (default text)");
}

/// --output, --color, --quiet.
void add_plain_options(Command& command, Common& common) {
  command.text("--output", common.output,
               "Write results to this file, whole or not at all (default stdout)", "FILE");
  command.choice<ColorWhen>(
      "--color", common.color,
      {{"auto", ColorWhen::kAuto}, {"always", ColorWhen::kAlways}, {"never", ColorWhen::kNever}},
      "Colours in text (default auto: on a terminal, unless NO_COLOR is set)");
  command.flag("--quiet", common.quiet, "No progress; text shows findings and the verdict only");
}

}  // namespace

int Common::num_threads() const { return threads > 0 ? threads : default_threads(); }

std::string Common::reproduce_flags() const {
  std::string flags;
  if (arith == Arith::kFast) flags += " --arith fast";
  if (!isa.empty()) flags += " --isa " + shell_word(isa);
  return flags;
}

void check_folder(const std::string& option, const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw UsageError(option + ": there is no folder " + folder);
  if (::access(folder.c_str(), W_OK) != 0)
    throw UsageError(option + ": cannot write into " + folder);
}

void check_file(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error)) throw UsageError(option + ": " + path + " is a folder");
  const fs::path folder = fs::path(path).parent_path();
  check_folder(option, folder.empty() ? "." : folder.string());
}

void add_output_options(Command& command, Common& common) {
  add_format(command, common, 2);
  add_plain_options(command, common);
}

void add_report_options(Command& command, Common& common) {
  add_format(command, common, formats().size());
  add_plain_options(command, common);
}

void add_coverage(Command& command, Common& common) {
  command.flag("--coverage", common.coverage,
               "Text shows the cases of each backend, and histograms, where it would sum them up "
               "by mode to fit one screen");
}

void add_max_findings(Command& command, Common& common) {
  command.number("--max-findings", common.max_findings, size_t{0},
                 std::numeric_limits<size_t>::max(),
                 "List at most N findings; all are looked for and counted (default 100)");
}

void add_common_options(Command& command, Common& common) {
  add_report_options(command, common);
  command.number<uint64_t>(
      "--seed", common.seed, 0, std::numeric_limits<uint64_t>::max(),
      "Where random choices start (default 1); the same seed makes the same choices");
  command.number("--threads", common.threads, 1, 4096,
                 "Threads (default: OMP_NUM_THREADS, or one a core)");
  command.text("--isa", common.isa, "Instruction set: " + names_of_isas() + " (default: the best)",
               "NAME");
  command.choice<Arith>(
      "--arith", common.arith, {{"portable", Arith::kPortable}, {"fast", Arith::kFast}},
      "portable (default): the same bits on every instruction set; fast: bf16 dot products");
}

void apply(Common& common) {
  if (!common.output.empty()) check_file("--output", common.output);
  const char* forced = environment("SHADOWGRAPH_ISA");
  const std::string wanted = !common.isa.empty() ? common.isa : forced != nullptr ? forced : "";
  if (wanted.empty()) return;
  if (!find_isa(wanted) || !set_isa(wanted).ok()) {
    throw UsageError(fmt::format("{}: '{}' is not an instruction set of this machine, which has {}",
                                 common.isa.empty() ? "SHADOWGRAPH_ISA" : "--isa", wanted,
                                 names_of_isas()));
  }
  common.isa = wanted;
}

Report start_report(const std::string& verb, const Common& common) {
  Report report;
  report.verb = verb;
  report.version = SHADOWGRAPH_VERSION;
  report.seed = common.seed;
  report.isa = current_isa();
  report.threads = common.num_threads();
  report.arith = name_of(common.arith);
  return report;
}

RenderOptions render_options(const Common& common) {
  const bool terminal = common.output.empty() && ::isatty(STDOUT_FILENO) == 1;
  RenderOptions options;
  options.format = common.format;
  options.color =
      common.color == ColorWhen::kAlways ||
      (common.color == ColorWhen::kAuto && terminal && environment("NO_COLOR") == nullptr);
  options.quiet = common.quiet;
  options.coverage = common.coverage;
  options.max_findings = common.max_findings;
  return options;
}

void write_document(const std::string& document, const Common& common) {
  if (common.output.empty()) return write_stdout(document);
  const Status status = write_file(common.output, std::as_bytes(std::span(document)));
  if (!status.ok()) throw OutputError(status.to_string());
}

void write_stdout(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return;
  throw OutputError(fmt::format("cannot write to stdout: {}", std::strerror(errno)));
}

void write_stderr(const std::string& text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

namespace {

/// Names the pairs that a kind's cases did not have, unless most of them are missing.
Report with_pairs(Report report) {
  for (auto& [kind, pairs] : report.pairs) {
    const Covering* covering = 2 * pairs.num_met() > pairs.of ? covering_of_kind(kind) : nullptr;
    if (covering == nullptr || static_cast<int64_t>(covering->pairs()) != pairs.of) continue;
    pairs.unmet.clear();
    for (size_t pair = 0; pair < pairs.met.size(); ++pair)
      if (!pairs.met[pair]) pairs.unmet.push_back(covering->text_of(pair));
  }
  return report;
}

}  // namespace

int finish(const Report& report, const Common& common) {
  const RenderOptions options = render_options(common);
  write_document(render(report.pairs.empty() ? report : with_pairs(report), options), common);
  if (!common.output.empty() && !common.quiet) {
    write_stderr(report.verdict() + '\n');
  }
  return report.exit_code();
}

int finish(const Listing& listing, const Common& common) {
  if (common.format != Format::kText && common.format != Format::kJson)
    throw UsageError("--format: a list is text or json");
  write_document(render(listing, render_options(common)), common);
  return kClean;
}

const Backend& named_backend(const std::string& name) {
  if (const Backend* b = find_backend(name)) return *b;
  std::vector<std::string> names;
  for (const Backend* b : all_backends()) names.emplace_back(b->info().name);
  throw UsageError("--backend: there is no '" + name + "'; `shadowgraph list backends`" +
                   did_you_mean(name, names));
}

const Fault& planted_fault(const std::string& id) {
  const Fault* fault = find_fault(id);
  if (fault == nullptr)
    throw UsageError("--plant: there is no '" + id + "'; `shadowgraph list faults`");
  if (fault->tap == nullptr)
    throw UsageError("--plant: " + id + " is not planted: " + std::string(fault->why_not));
  return *fault;
}

void count_plants(const Planted& planted, bool changed, Report* report) {
  bool any = false;
  for (size_t i = 0; i < planted.faults().size(); ++i) {
    const int64_t acted = planted.acted(i);
    report->planted[std::string(planted.faults()[i]->id)] += acted;
    any |= acted > 0;
  }
  report->changed |= changed && any;
}

}  // namespace shadowgraph::cli
