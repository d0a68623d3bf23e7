// merge-reports: one report of many shards; and any JSON report in another format.
#include <memory>

#include "cli.h"
#include "report/conclude.h"
#include "report/escape.h"
#include "report/merge.h"
#include "report/read.h"

namespace shadowgraph::cli {
namespace {

struct MergeReportsCommand {
  Common common;
  std::vector<std::string> paths;
  bool complete = false;
};

constexpr char kMergeReportsExamples[] =
    "  shadowgraph merge-reports 1.json 2.json 3.json 4.json --complete\n"
    "  shadowgraph merge-reports shard-*.json --format html --output report.html\n"
    "  shadowgraph merge-reports report.json --format sarif      one report in another format\n"
    "Each machine runs its part, `shadowgraph fuzz --cases 100000 --seed 7 --shard 2/4 --format "
    "json --output 2.json`;\n"
    "the parts together are the cases of the run without --shard. Joined, cases and coverage are "
    "added, each finding is\n"
    "there once, and seconds are those of all machines together. Parts of different runs are "
    "refused (exit 3), with every\n"
    "reason at once.";

/// A report that says why the others cannot be joined.
Report refuse(Status status, const MergeReportsCommand& options) {
  Report report = start_report("merge-reports", options.common);
  report.bad_input = true;
  for (Finding& f : status.findings()) {
    f.reproduce = "shadowgraph merge-reports";
    for (const std::string& path : options.paths) f.reproduce += ' ' + shell_word(path);
    if (options.complete) f.reproduce += " --complete";
    report.findings.push_back(std::move(f));
  }
  return report;
}

int run_with(MergeReportsCommand& options) {
  apply(options.common);
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
  Report joined;
  if (status.ok()) status = merge.end(options.complete, &joined);
  if (options.paths.size() > 1) conclude("no part of the run judged a case", kMoreCases, &joined);
  return finish(status.ok() ? joined : refuse(std::move(status), options), options.common);
}

}  // namespace

Verb add_merge_reports(CLI::App& app) {
  Command command(app, "merge-reports", "Join the JSON reports of shards into one, in any format.",
                  kMergeReportsExamples);
  auto options = std::make_shared<MergeReportsCommand>();
  command.texts("FILE", options->paths, "Reports that --format json wrote").required();
  command.flag("--complete", options->complete, "Refuse if a shard is missing");
  add_max_findings(command, options->common);
  add_report_options(command, options->common);
  add_coverage(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
