// merge-reports: one report of many parts, or of a campaign's ledger; and any JSON report in
// another format.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "campaign.h"
#include "campaign/ledger.h"
#include "cli.h"
#include "io/file.h"
#include "report/conclude.h"
#include "report/escape.h"
#include "report/merge.h"
#include "report/read.h"

namespace shadowgraph::cli {
namespace {

struct MergeReportsCommand {
  Common common;
  std::vector<std::string> paths;
  bool complete = false, partial = false;
};

constexpr char kMergeReportsExamples[] =
    "  shadowgraph merge-reports 1.json 2.json 3.json 4.json --complete\n"
    "  shadowgraph merge-reports shard-*.json --format html --output report.html\n"
    "  shadowgraph merge-reports night/                          the verdict of a campaign: its "
    "ledger\n"
    "  shadowgraph merge-reports report.json --format sarif      one report in another format\n"
    "Each machine runs its part, `shadowgraph fuzz --cases 100000 --seed 7 --shard 2/4 --format "
    "json --output 2.json`;\n"
    "the parts together are the cases of the run without --shard. Ranges of cases join as well, "
    "`fuzz --first 512 --cases 256`.\n"
    "Joined, cases and coverage are added, each finding is there once, and seconds are those of "
    "all machines together;\n"
    "what is planted is judged by all parts together. Parts of different runs, and parts that "
    "overlap, are refused (exit 3),\n"
    "with every reason at once.\n"
    "A ledger is the folder of `shadowgraph fuzz --ledger`. Its verdict is of all ranges: while "
    "some have no result, exit 3;\n"
    "with --partial it is of those that have one.";

/// A report that says why the others cannot be joined.
Report refuse(Status status, const MergeReportsCommand& options) {
  Report report = start_report("merge-reports", options.common);
  report.bad_input = true;
  for (Finding& f : status.findings()) {
    f.reproduce = "shadowgraph merge-reports";
    for (const std::string& path : options.paths) f.reproduce += ' ' + shell_word(path);
    if (options.complete) f.reproduce += " --complete";
    if (options.partial) f.reproduce += " --partial";
    report.findings.push_back(std::move(f));
  }
  return report;
}

/// Reports that are parts of a run, or one alone.
Status join_files(const MergeReportsCommand& options, Report* joined) {
  Merge merge;
  Status status;
  {
    Progress progress(options.common, "reports");
    for (size_t i = 0; i < options.paths.size(); ++i) {
      progress.update(static_cast<double>(i) / static_cast<double>(options.paths.size()),
                      static_cast<int64_t>(i), 0);
      Report report;
      status.add(read_report(options.paths[i], &report));
      if (status.ok()) merge.add(options.paths[i], std::move(report));
    }
  }
  if (status.ok()) status = merge.end(options.complete, joined);
  if (options.paths.size() > 1) conclude("no part of the run judged a case", kMoreCases, joined);
  return status;
}

/// "3 of 40 ranges have no result: 7, 12, 13".
std::string missing_text(std::vector<uint64_t> missing, uint64_t of) {
  constexpr size_t kMostNamed = 8;
  const size_t all = missing.size();
  missing.resize(std::min(all, kMostNamed));
  return fmt::format("{} of {} range{} {} no result: {}{}", all, of, of == 1 ? "" : "s",
                     all == 1 ? "has" : "have", fmt::join(missing, ", "),
                     all > kMostNamed ? ", ..." : "");
}

/// The results of a campaign.
Status join_ledger(const MergeReportsCommand& options, const std::string& folder, Report* joined) {
  std::unique_ptr<Ledger> ledger;
  std::vector<uint64_t> missing;
  Status status = Ledger::open(folder, &ledger);
  if (status.ok()) status = ledger->collect(joined, &missing);
  if (!status.ok()) return status;
  if (joined->verb.empty()) *joined = start_report("merge-reports", options.common);
  name_corpus(folder, joined);
  conclude("no range has a result that judged a case", kMoreCases, joined);
  if (joined->unlisted + joined->unlisted_waived > 0)
    joined->warnings.push_back(fmt::format(
        "{} failing cases are counted and not listed: of one law {} are, the first ones",
        joined->unlisted + joined->unlisted_waived, ledger->campaign().most_of_a_law));
  if (missing.empty()) return status;
  const uint64_t ranges = ledger->campaign().ranges();  // 0: without an end
  const std::string without =
      missing_text(missing, ranges > 0 ? ranges : ledger->state().done + missing.size());
  if (options.partial)
    joined->warnings.push_back(folder + ": incomplete, " + without);
  else
    status.add(file_finding("io.ledger", folder, "ranges", "a result of each", without));
  return status;
}

int run_with(MergeReportsCommand& options) {
  apply(options.common);
  std::error_code error;
  const auto folder = std::ranges::find_if(options.paths, [&](const std::string& path) {
    return std::filesystem::is_directory(path, error);
  });
  const bool of_ledger = folder != options.paths.end();
  if (of_ledger && options.paths.size() > 1)
    throw UsageError(*folder + " is a folder: a ledger is joined alone");
  if (!of_ledger && options.partial)
    throw UsageError("--partial: only a ledger, a folder, has ranges without a result");
  Report joined;
  Status status = of_ledger ? join_ledger(options, *folder, &joined) : join_files(options, &joined);
  return finish(status.ok() ? joined : refuse(std::move(status), options), options.common);
}

}  // namespace

int merge_ledger(const Common& common, const std::string& folder) {
  MergeReportsCommand options{common, {folder}};
  return run_with(options);
}

Verb add_merge_reports(CLI::App& app) {
  Command command(
      app, "merge-reports",
      "Join the JSON reports of a run's parts, or a campaign's ledger, into one, in any format.",
      kMergeReportsExamples);
  auto options = std::make_shared<MergeReportsCommand>();
  command.texts("FILE", options->paths, "Reports that --format json wrote; or a ledger, a folder")
      .required();
  const Option complete = command.flag(
      "--complete", options->complete,
      "Refuse if a shard is missing, or a case between the first and the last of ranges");
  command
      .flag("--partial", options->partial,
            "Of a ledger: the verdict of the ranges that have a result")
      .excludes(complete);
  add_max_findings(command, options->common);
  add_report_options(command, options->common);
  add_coverage(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
