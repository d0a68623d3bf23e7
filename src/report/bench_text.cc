#include "report/bench_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace shadowgraph {
namespace {

std::string figure_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "";
}

/// "yes", "no", "void", "-" (no goal); a figure of too few quiet rounds is none.
std::string verdict(const BenchRow& r) {
  if (!r.void_reason.empty()) return "void";
  if (!r.quiet) return r.interrupted ? "interrupted" : "NOT QUIET";
  if (!r.goal) return "-";
  return r.reached ? "yes" : "no";
}

std::string goal(const BenchRow& r) {
  return r.goal ? fmt::format("{} {:.2f}", r.at_most ? "<=" : ">=", *r.goal) : "";
}

/// Why rows say nothing, or little: every reason once, with its rows.
std::string remarks(const BenchReport& report, const Style& style) {
  std::map<std::string, std::string> rows_of;
  for (const BenchRow& r : report.rows) {
    std::string why;
    if (!r.void_reason.empty()) {
      why = "void: " + r.void_reason;
    } else if (r.interrupted) {
      why = fmt::format("interrupted after {} round{}", r.rounds, r.rounds == 1 ? "" : "s");
    } else if (!r.quiet) {
      why = fmt::format("NOT QUIET, no figure to keep, {} rounds in all", r.rounds);
      for (const auto& [reason, times] : r.rejected) why += fmt::format("; {} x {}", times, reason);
    }
    if (!why.empty()) rows_of[escape_controls(why)] += ' ' + r.shape;
  }
  std::string s;
  for (const auto& [why, rows] : rows_of) s += style.bad(why + ':') + rows + '\n';
  return s;
}

std::string probes(const BenchReport& report, const Style& style) {
  Table table(2, {"limit", "best variant", "threads", "figure"});
  std::string notes;
  for (const BenchProbe& p : report.probes) {
    table.add({p.name, p.variant, std::to_string(p.threads),
               p.gbps     ? figure_text(p.gbps) + " GB/s"
               : p.gflops ? figure_text(p.gflops) + " GF/s"
                          : "-"});
    if (!p.void_reason.empty())
      notes += fmt::format("{} on {} threads: {}\n", p.name, p.threads, p.void_reason);
  }
  return '\n' + table.render(style) + style.dim(notes);
}

/// Names of the limits that some row's rounds measured.
std::vector<std::string> limits_of(const BenchReport& report) {
  std::vector<std::string> names;
  for (const BenchRow& r : report.rows) {
    for (const auto& [name, value] : r.probes) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string summary(const BenchReport& report) {
  int goals = 0, reached = 0, voids = 0, loud = 0;
  for (const BenchRow& r : report.rows) {
    goals += r.goal.has_value();
    reached += r.reached;
    voids += !r.void_reason.empty();
    loud += r.void_reason.empty() && !r.quiet;
  }
  return fmt::format("{} of {} goals reached, {} rows void, {} not quiet\n", reached, goals, voids,
                     loud);
}

/// This run beside an older one.
std::string against(const BenchComparison& c, const Style& style) {
  Table table(2, {"row", "verdict", "old", "new", "new/old"});
  for (const BenchPair& pair : c.rows) {
    const bool both = pair.was && pair.is;
    table.add({pair.shape, pair.why.empty() ? pair.verdict : pair.verdict + ": " + pair.why,
               pair.was ? fmt::format("{:.3f}", *pair.was) : "-",
               pair.is ? fmt::format("{:.3f}", *pair.is) : "-",
               both ? fmt::format("{:.3f}", *pair.is / *pair.was) : ""});
  }
  return "\nagainst " + escape_controls(c.path) + '\n' + table.render(style);
}

}  // namespace

std::string bench_text(const BenchReport& report, const Style& style) {
  std::string s = "\n";
  for (const auto& [what, value] : report.machine)
    s += fmt::format("{:<16} {}\n", what, escape_controls(value));
  s += probes(report, style) + '\n';
  std::vector<std::string> heading = {"row", "of",   "ratio", "quartiles", "goal",  "reached",
                                      "ms",  "GB/s", "GF/s",  "threads",   "rounds"};
  const std::vector<std::string> limits = limits_of(report);
  heading.insert(heading.end(), limits.begin(), limits.end());
  Table table(2, std::move(heading));
  for (const BenchRow& r : report.rows) {
    std::vector<std::string> cells = {r.shape,
                                      r.of,
                                      r.ratio ? fmt::format("{:.3f}", *r.ratio) : "-",
                                      r.ratio ? fmt::format("{:.3f}..{:.3f}", *r.low, *r.high) : "",
                                      goal(r),
                                      verdict(r),
                                      figure_text(r.ms),
                                      figure_text(r.gbps),
                                      figure_text(r.gflops),
                                      std::to_string(r.threads),
                                      std::to_string(r.rounds)};
    for (const std::string& limit : limits) {
      const auto seen = std::find_if(r.probes.begin(), r.probes.end(),
                                     [&](const auto& p) { return p.first == limit; });
      cells.push_back(seen == r.probes.end() ? "" : fmt::format("{:.4g}", seen->second));
    }
    table.add(std::move(cells));
  }
  s += table.render(style) + remarks(report, style) + '\n' + summary(report);
  for (const std::string& path : report.plots) s += "wrote " + escape_controls(path) + '\n';
  if (report.against) s += against(*report.against, style);
  return s;
}

}  // namespace shadowgraph
