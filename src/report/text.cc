// Renders a report as text for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "report/bench_text.h"
#include "report/escape.h"
#include "report/fault_matrix.h"
#include "report/render.h"
#include "report/table.h"
#include "report/words.h"

namespace shadowgraph {
namespace {

constexpr size_t kWorstCases = 10;  // of those judged; JSON has all
constexpr size_t kCoverage = 20;    // backends, modes and phases, each in a line
constexpr size_t kNotes = 20;       // different notes about cases
constexpr size_t kPrograms = 20;    // of conformance, one by one; JSON has all
constexpr size_t kTerminal = 100;   // columns that a listing may have
constexpr size_t kTitle = 60;       // columns of a fault's title
constexpr int kBarWidth = 40;

std::string count(int64_t n) { return std::to_string(n); }

std::string ratio(const std::optional<double>& value) {
  return value ? fmt::format("{:.3g}", *value) : "-";
}

std::string header(const Report& r, const Style& style) {
  const std::string head = escape_controls(head_of(r));
  const size_t seed = head.find("  ");
  return style.bold(head.substr(0, seed)) + head.substr(seed) + '\n';
}

std::string files(const Report& r, const Style& style) {
  if (r.files.empty()) return "";
  Table table(2, {"file", "recognised as", "cases", "agreed", "flagged", "skipped"});
  std::string notes;
  for (const FileReport& f : r.files) {
    table.add({f.path, f.kind.empty() ? "nothing" : f.kind, count(f.cases), count(f.agreed),
               count(f.flagged), count(f.skipped)});
    for (const std::string& note : f.notes) {
      notes += escape_controls(f.path) + ": " + escape_controls(note) + '\n';
    }
  }
  return '\n' + table.render(style) + style.dim(notes);
}

/// Which modes and phases of engine traces were judged.
std::string steps(const Report& r, const Style& style) {
  Table table(3, {"file", "mode", "phase", "agreed", "flagged", "waived", "skipped"});
  bool any = false;
  for (const FileReport& f : r.files) {
    for (const StepTally& t : f.steps) {
      any = true;
      table.add({f.path, t.mode, t.phase, count(t.agreed), count(t.flagged), count(t.waived),
                 count(t.skipped)});
    }
  }
  return any ? '\n' + table.render(style) : "";
}

std::string cases(const Report& r, const Style& style) {
  if (r.case_list.empty()) return "";
  std::vector<const CaseReport*> worst = cases_by_error(r);
  worst.resize(std::min(worst.size(), kWorstCases));
  const bool twins = std::ranges::any_of(
      r.case_list, [](const CaseReport& c) { return c.twin_error_over_bound.has_value(); });
  std::vector<std::string> columns = {"case", "kind", "dtype", "ours", "ours lse"};
  if (twins) columns.insert(columns.end(), {"twin", "twin lse"});
  columns.insert(columns.end(), {"gpu", "gpu lse"});
  Table table(3, columns);
  for (const CaseReport* c : worst) {
    std::vector<std::string> row = {c->id, c->kind, c->dtype, ratio(c->error_over_bound),
                                    ratio(c->lse_error_over_bound)};
    if (twins)
      row.insert(row.end(), {ratio(c->twin_error_over_bound), ratio(c->twin_lse_error_over_bound)});
    row.insert(row.end(), {ratio(c->gpu_error_over_bound), ratio(c->gpu_lse_error_over_bound)});
    table.add(std::move(row));
  }
  std::string s = fmt::format("\nError over its derived bound, the {} largest of {} cases\n",
                              worst.size(), r.case_list.size());
  s += table.render(style);
  for (const auto& [dtype, largest] : r.largest_gpu_error()) {
    s += fmt::format("largest of the recorded GPU results in {}: {:.3g}\n", dtype, largest);
  }
  return s;
}

/// Every different note once, with the first case that has it.
std::string case_notes(const Report& r, const Style& style) {
  std::vector<std::pair<std::string, int64_t>> notes;
  std::vector<const CaseReport*> first;
  const auto add = [&](const CaseReport& c, const std::string& note) {
    const auto same = [&](const auto& seen) { return seen.first == note; };
    const auto it = std::find_if(notes.begin(), notes.end(), same);
    if (it != notes.end()) {
      ++it->second;
      return;
    }
    notes.emplace_back(note, 1);
    first.push_back(&c);
  };
  for (const CaseReport& c : r.case_list) {
    for (const std::string& note : c.known_wrong) add(c, "known wrong: " + note);
    for (const std::string& note : c.notes) add(c, note);
  }
  if (notes.empty()) return "";
  std::string s = '\n' + style.bold("notes") + '\n';
  for (size_t i = 0; i < std::min(notes.size(), kNotes); ++i) {
    s += escape_controls(first[i]->id + ": " + notes[i].first);
    if (notes[i].second > 1) s += fmt::format("  (and {} more)", notes[i].second - 1);
    s += '\n';
  }
  if (notes.size() > kNotes) s += fmt::format("... {} more in JSON\n", notes.size() - kNotes);
  return s;
}

/// A title's start: tables stay readable.
std::string shorten(const std::string& text, size_t width) {
  if (width_of(text) <= width) return text;
  size_t end = 0;  // a code point's bytes stay together
  for (size_t columns = 0; end < text.size(); ++end) {
    const bool starts = (static_cast<uint8_t>(text[end]) & 0xc0) != 0x80;
    if (starts && columns++ == width - 3) break;
  }
  return text.substr(0, end) + "...";
}

std::string faults(const Report& r, const Style& style) {
  if (r.faults.empty()) return "";
  Table table(3, {"fault", "what it does", "caught by", "cases", "seconds"});
  std::string notes;
  for (const FaultReport& f : r.faults) {
    const std::string by = f.detected          ? (f.by.empty() ? "?" : f.by[0])
                           : f.planted         ? "NOTHING"
                           : f.verdict.empty() ? "not planted"
                                               : f.verdict;
    const size_t others = f.by.size() > 1 ? f.by.size() - 1 : 0;
    table.add({f.id, shorten(f.title, kTitle), by + (others > 0 ? fmt::format(" +{}", others) : ""),
               count(f.cases), fmt::format("{:.1f}", f.seconds)});
    if (!f.diagnosis.empty())
      notes += escape_controls(f.id + ": as if " + f.diagnosis[0].to_string()) +
               (f.named.value_or(true) ? "\n" : "; it is another\n");
    if (!f.why_not.empty()) notes += escape_controls(f.id + ": " + f.why_not) + '\n';
  }
  const auto diagnosed =
      std::ranges::count_if(r.faults, [](const FaultReport& f) { return f.named.has_value(); });
  const auto named =
      std::ranges::count_if(r.faults, [](const FaultReport& f) { return f.named == true; });
  if (diagnosed > 0)
    notes += fmt::format("{} of {} faults that change outputs are named first\n", named, diagnosed);
  return '\n' + table.render(style) + style.dim(notes);
}

/// What ran, mode by mode: how many backends (or kernels) ran it, and the cases of each phase.
std::string coverage_by_mode(const Report& r, const Style& style) {
  std::vector<std::string> phases;
  std::map<std::string, std::map<std::string, int64_t>> cases;  // by mode, by phase
  std::map<std::string, std::set<std::string>> backends;        // by mode
  std::set<std::string> all;
  for (const CoverageReport& c : r.coverage) {
    if (std::ranges::find(phases, c.phase) == phases.end()) phases.push_back(c.phase);
    cases[c.mode][c.phase] += c.cases;
    backends[c.mode].insert(c.backend);
    all.insert(c.backend);
  }
  std::vector<std::string> heading = {"mode", "of"};
  heading.insert(heading.end(), phases.begin(), phases.end());
  Table table(1, heading);
  for (auto& [mode, by_phase] : cases) {
    std::vector<std::string> row = {mode, count(static_cast<int64_t>(backends[mode].size()))};
    for (const std::string& phase : phases) row.push_back(count(by_phase[phase]));
    table.add(row);
  }
  std::string medians;
  for (const Histogram& h : r.histograms)
    medians += fmt::format("{}{} {:g}", medians.empty() ? "medians of kernels' calls: " : ", ",
                           escape_controls(h.name), h.median);
  if (!medians.empty()) medians += '\n';
  return '\n' + table.render(style) +
         style.dim(medians +
                   fmt::format("{} backends and kernels; --coverage shows each\n", all.size()));
}

/// Whether what ran is shown in full.
bool shows_all(const Report& r, const RenderOptions& options) {
  return options.coverage || r.coverage.size() <= kCoverage;
}

std::string coverage(const Report& r, const RenderOptions& options, const Style& style) {
  if (r.coverage.empty()) return "";
  if (!shows_all(r, options)) return coverage_by_mode(r, style);
  Table table(3, {"backend", "mode", "phase", "cases"});
  for (const CoverageReport& c : r.coverage)
    table.add({c.backend, c.mode, c.phase, count(c.cases)});
  return '\n' + table.render(style);
}

/// Steps of layers that have a parameter, by whether results were merged; or of each backend.
std::string parameters(const Report& r, const RenderOptions& options, const Style& style) {
  if (r.parameters.empty()) return "";
  struct Row {
    std::set<std::string> backends;
    int64_t merged = 0, whole = 0;
  };
  std::map<std::string, Row> rows;  // by parameter, or by backend and parameter
  for (const auto& [name, steps] : r.parameters) {
    const size_t first = name.find(' '), last = name.rfind(' ');
    const bool each = options.coverage;
    Row& row = rows[each ? name.substr(0, last) : name.substr(first + 1, last - first - 1)];
    row.backends.insert(name.substr(0, first));
    (name.ends_with(" merged") ? row.merged : row.whole) += steps;
  }
  Table table(1, {"parameter", "of", "merged", "whole"});
  for (const auto& [name, row] : rows)
    table.add({name, count(static_cast<int64_t>(row.backends.size())), count(row.merged),
               count(row.whole)});
  return '\n' + table.render(style);
}

/// How many of each class came to what, and where that leaves room, each.
std::string conformance(const Report& r, const Style& style) {
  if (r.conformance.empty()) return "";
  const std::vector<std::string> statuses = {"equal", "in_set", "diagnosed", "differs", "skipped"};
  std::map<std::string, std::map<std::string, int64_t>> counts;  // by class
  for (const ConformanceReport& c : r.conformance) ++counts[c.kind][c.status];
  std::vector<std::string> heading = {"class"};
  heading.insert(heading.end(), statuses.begin(), statuses.end());
  Table table(1, heading);
  for (auto& [kind, by_status] : counts) {
    std::vector<std::string> row = {kind};
    for (const std::string& status : statuses) row.push_back(count(by_status[status]));
    table.add(row);
  }
  std::string s = '\n' + table.render(style);
  if (r.conformance.size() > kPrograms) return s;
  Table each(5, {"program", "variant", "class", "status", "why"});
  for (const ConformanceReport& c : r.conformance) {
    each.add({c.id, c.variant, c.kind, c.status, c.why});
  }
  return s + '\n' + each.render(style);
}

std::string histogram(const Histogram& h, const Style& style) {
  int64_t largest = 1;
  size_t width = 0;
  for (const auto& [label, n] : h.bins) {
    largest = std::max(largest, n);
    width = std::max(width, width_of(escape_controls(label)));
  }
  std::string s =
      '\n' + style.bold(escape_controls(h.name)) + fmt::format(" (median {:g})\n", h.median);
  for (const auto& [label, n] : h.bins) {
    const int length =
        static_cast<int>(static_cast<double>(n) / static_cast<double>(largest) * kBarWidth);
    s += fmt::format("{:>{}}  {:<{}} {}\n", escape_controls(label), width, std::string(length, '#'),
                     kBarWidth, n);
  }
  return s;
}

std::string text_warnings(const Report& r) {
  std::string s;
  for (size_t i = 0; i < std::min(r.warnings.size(), kNotes); ++i)
    s += escape_controls(r.warnings[i]) + '\n';
  if (r.warnings.size() > kNotes)
    s += fmt::format("... {} more in JSON\n", r.warnings.size() - kNotes);
  return s.empty() ? s : '\n' + s;
}

std::string not_looked_at_text(const Report& r, const Style& style) {
  std::string s;
  for (const std::string& line : not_looked_at(r)) s += escape_controls(line) + '\n';
  return s.empty() ? s : '\n' + style.dim(s);
}

std::string finding(const Finding& f, const Style& style) {
  const bool counts = f.waived.empty() && f.severity == Severity::kError;
  std::string s =
      '\n' + (counts ? style.bad(name_of(f.severity)) : std::string(name_of(f.severity)));
  s += ' ' + style.bold(escape_controls(f.id)) + ' ' + escape_controls(f.case_id) + "\n  " +
       escape_controls(f.title) + '\n';
  for (const auto& [label, text] : details_of(f))
    s += fmt::format("  {:<9} {}\n", label, escape_controls(text));
  return s;
}

std::string findings(const Report& r, const RenderOptions& options, const Style& style) {
  std::string s;
  const std::vector<size_t> listed = findings_in_order(r, options.max_findings);
  for (const size_t i : listed) s += finding(r.findings[i], style);
  const size_t all = r.findings.size();
  if (all > listed.size()) {
    s += fmt::format("\n... {} more findings; see them with --max-findings {}\n",
                     all - listed.size(), all);
  }
  return s;
}

}  // namespace

std::string render_text(const Report& r, const RenderOptions& options) {
  const Style style{options.color};
  std::string s = header(r, style);
  if (!options.quiet) {
    s += files(r, style) + steps(r, style) + cases(r, style) + case_notes(r, style) +
         faults(r, style) + matrix_text(r, style) + coverage(r, options, style) +
         parameters(r, options, style) + conformance(r, style);
    if (r.bench) s += bench_text(*r.bench, style);
    if (shows_all(r, options))
      for (const Histogram& h : r.histograms) s += histogram(h, style);
  }
  s += findings(r, options, style) + text_warnings(r);
  if (!options.quiet) s += not_looked_at_text(r, style);
  const std::string verdict = r.verdict();
  return s + '\n' + (r.ok() ? style.good(verdict) : style.bad(verdict)) + '\n';
}

std::string render_text(const Listing& listing, const RenderOptions& options) {
  Table table(listing.columns.size(), listing.columns);
  for (const auto& row : listing.rows) table.add(row);
  return table.render(Style{options.color}, kTerminal);
}

}  // namespace shadowgraph
