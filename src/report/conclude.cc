#include "report/conclude.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/laws.h"
#include "core/split.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kBetween = ", ";  // void verdicts

bool is_missed_plant(const Finding& f, const Report& r) {
  return f.id == "fault.missed" && r.planted.contains(f.where.field);
}

}  // namespace

void add_void(const std::string& verdict, const std::string& why, Report* report) {
  if (!report->void_verdict.empty()) report->void_verdict += kBetween;
  report->void_verdict += verdict;
  report->warnings.push_back(verdict + ": " + why);
}

void judge_plants(const std::string& more, Report* report) {
  if (report->interrupted) return;
  const bool noticed = report->open_findings() + report->waived_findings() > 0;
  for (const auto& [id, acted] : report->planted) {
    const std::string times =
        fmt::format("acted {} time{} in {} case{}", acted, acted == 1 ? "" : "s", report->cases,
                    report->cases == 1 ? "" : "s");
    if (acted == 0) {
      add_void(id + " never acted",
               "no step of this run has what it changes (`shadowgraph explain " + id + "`)",
               report);
    } else if (!noticed && !report->changed) {
      add_void(id + " inert", "it " + times + ", and nothing that anything reads was changed",
               report);
    } else if (!noticed) {
      Finding f =
          make_finding("fault.missed", at(id), "a finding", "none: it " + times + "; " + more);
      f.refs.push_back(id);
      f.reproduce = "shadowgraph faults --id " + id;
      report->findings.push_back(std::move(f));
    }
  }
}

void judge_faults(Report* report) {
  for (const FaultReport& row : report->faults) {
    if (!row.verdict.empty() && !row.planted)
      add_void(row.id + ' ' + row.verdict, row.why_not, report);
  }
}

void conclude(const std::string& nothing, const std::string& more, Report* report) {
  judge_plants(more, report);
  judge_faults(report);
  if (report->cases == 0 && !report->interrupted) add_void("nothing was judged", nothing, report);
}

void take_back(Report* report) {
  for (const std::string_view verdict : split(report->void_verdict, kBetween)) {
    const std::string begin = std::string(verdict) + ": ";
    std::erase_if(report->warnings, [&](const std::string& w) { return w.starts_with(begin); });
  }
  report->void_verdict.clear();
  // A plant is missed only where nothing else was found.
  std::vector<Finding>& findings = report->findings;
  const size_t listed = findings.size();
  while (!findings.empty() && is_missed_plant(findings.back(), *report)) findings.pop_back();
  if (findings.empty() && listed > 0) report->unlisted = 0;
}

}  // namespace shadowgraph
