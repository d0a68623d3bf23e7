#include "report/html_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/escape.h"
#include "report/words.h"

namespace shadowgraph {
namespace {

/// A table under a heading. Cells are escaped; those from `numbers` on stand to the right.
class HtmlTable {
 public:
  HtmlTable(std::string_view title, size_t numbers, const std::vector<std::string>& heading)
      : numbers_(numbers) {
    body_ = fmt::format("<h2>{}</h2>\n<div class=\"scroll\"><table>\n<thead><tr>", title);
    for (size_t i = 0; i < heading.size(); ++i)
      body_ +=
          fmt::format("<th{}>{}</th>", i >= numbers_ ? " class=\"n\"" : "", escape_xml(heading[i]));
    body_ += "</tr></thead>\n<tbody>\n";
  }

  void add(const std::vector<std::string>& cells) {
    body_ += "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) cell(escape_xml(cells[i]), i, -1);
    body_ += "</tr>\n";
  }
  /// Text, then counts with bars: each count's share of the largest.
  void add_bars(const std::vector<std::string>& names, const std::vector<int64_t>& counts,
                int64_t largest) {
    body_ += "<tr>";
    for (size_t i = 0; i < names.size(); ++i) cell(escape_xml(names[i]), i, -1);
    for (const int64_t count : counts)
      cell(count > 0 ? std::to_string(count) : "", numbers_,
           100.0 * static_cast<double>(count) / static_cast<double>(std::max<int64_t>(largest, 1)));
    body_ += "</tr>\n";
  }
  /// A row that is escaped already.
  void add_raw(const std::vector<std::string>& cells) {
    body_ += "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) cell(cells[i], i, -1);
    body_ += "</tr>\n";
  }
  std::string str() const { return body_ + "</tbody></table></div>\n"; }

 private:
  void cell(const std::string& escaped, size_t column, double share) {
    if (column < numbers_) {
      body_ += "<td>" + escaped + "</td>";
    } else if (share < 0) {
      body_ += "<td class=\"n\">" + escaped + "</td>";
    } else {
      body_ +=
          fmt::format("<td class=\"n share\" style=\"--share:{:.1f}%\">{}</td>", share, escaped);
    }
  }

  size_t numbers_;
  std::string body_;
};

std::string files(const Report& r) {
  if (r.files.empty()) return "";
  HtmlTable table("Files", 2,
                  {"file", "recognised as", "cases", "agreed", "flagged", "waived", "skipped"});
  std::string notes;
  for (const FileReport& f : r.files) {
    table.add({f.path, f.kind.empty() ? "nothing" : f.kind, std::to_string(f.cases),
               std::to_string(f.agreed), std::to_string(f.flagged), std::to_string(f.waived),
               std::to_string(f.skipped)});
    for (const std::string& note : f.notes)
      notes += "<p class=\"soft\">" + escape_xml(f.path + ": " + note) + "</p>\n";
  }
  return table.str() + notes;
}

/// A row a backend and mode, a column a phase.
std::string coverage(const Report& r) {
  if (r.coverage.empty()) return "";
  std::vector<std::string> phases;
  std::vector<std::pair<std::string, std::string>> rows;
  std::map<std::pair<std::string, std::string>, std::map<std::string, int64_t>> counts;
  int64_t largest = 0;
  for (const CoverageReport& c : r.coverage) {
    const std::pair row(c.backend, c.mode);
    if (std::ranges::find(phases, c.phase) == phases.end()) phases.push_back(c.phase);
    if (!counts.contains(row)) rows.push_back(row);
    largest = std::max(largest, counts[row][c.phase] += c.cases);
  }
  std::vector<std::string> heading = {"backend", "mode"};
  heading.insert(heading.end(), phases.begin(), phases.end());
  HtmlTable table("Coverage", 2, heading);
  for (const auto& row : rows) {
    std::vector<int64_t> cases;
    for (const std::string& phase : phases) cases.push_back(counts[row][phase]);
    table.add_bars({row.first, row.second}, cases, largest);
  }
  return table.str();
}

std::string conformance(const Report& r) {
  if (r.conformance.empty()) return "";
  HtmlTable table("Graph programs", 5, {"program", "variant", "class", "status", "why"});
  for (const ConformanceReport& c : r.conformance)
    table.add({c.id, c.variant, c.kind, c.status, c.why});
  return table.str();
}

std::string figure_cell(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "";
}

std::string bench(const Report& r) {
  if (!r.bench) return "";
  HtmlTable table("Bench", 3,
                  {"shape", "of", "what it says", "ratio", "goal", "ms", "GB/s", "GF/s"});
  for (const BenchRow& row : r.bench->rows) {
    const std::string said = !row.void_reason.empty() ? "void: " + row.void_reason
                             : !row.quiet             ? "not quiet"
                             : !row.goal              ? ""
                             : row.reached            ? "goal reached"
                                                      : "goal missed";
    table.add({row.shape, row.of, said, figure_cell(row.ratio),
               row.goal ? (row.at_most ? "\u2264 " : "\u2265 ") + figure_cell(row.goal) : "",
               figure_cell(row.ms), figure_cell(row.gbps), figure_cell(row.gflops)});
  }
  return table.str();
}

std::string histogram(const Histogram& h) {
  int64_t largest = 1;
  for (const auto& [label, count] : h.bins) largest = std::max(largest, count);
  std::string s = fmt::format(
      "<div class=\"panel\"><h3>{} <span class=\"soft\">median {:g}</span></h3>\n"
      "<div class=\"bars\">\n",
      escape_xml(h.name), h.median);
  for (const auto& [label, count] : h.bins)
    s +=
        fmt::format("<span>{}</span><i style=\"--share:{:.1f}%\"></i><span class=\"n\">{}</span>\n",
                    escape_xml(label),
                    100.0 * static_cast<double>(count) / static_cast<double>(largest), count);
  return s + "</div></div>\n";
}

std::string histograms(const Report& r) {
  if (r.histograms.empty()) return "";
  std::string s = "<h2>How cases were spread</h2>\n<div class=\"columns\">\n";
  for (const Histogram& h : r.histograms) s += histogram(h);
  return s + "</div>\n";
}

std::string not_looked_at_html(const Report& r) {
  const std::vector<std::string> lines = not_looked_at(r);
  if (lines.empty()) return "";
  std::string s = "<h2>What the run did not look at</h2>\n";
  for (const std::string& line : lines) s += "<p class=\"soft\">" + escape_xml(line) + "</p>\n";
  return s;
}

std::string caught_by(const FaultReport& f) {
  if (!f.planted)
    return fmt::format("<span class=\"tag soft\">{}</span> {}",
                       escape_xml(f.verdict.empty() ? "not planted" : f.verdict),
                       escape_xml(f.why_not));
  if (!f.detected) return "<span class=\"tag bad\">nothing</span>";
  std::string s;
  for (const std::string& law : f.by) s += "<code class=\"id\">" + escape_xml(law) + "</code> ";
  return s;
}

}  // namespace

std::string html_faults(const Report& r) {
  if (r.faults.empty()) return "";
  HtmlTable table("Planted faults", 3, {"fault", "what it does", "noticed by", "cases", "seconds"});
  for (const FaultReport& f : r.faults) {
    std::string what = escape_xml(f.title);
    if (!f.refs.empty())
      what += fmt::format("<br><span class=\"soft mono\">{}</span>",
                          escape_xml(fmt::format("{}", fmt::join(f.refs, " "))));
    if (!f.diagnosis.empty()) what += "<br>As if " + escape_xml(f.diagnosis[0].to_string());
    if (!f.reproducer.empty()) what += "<br><code>" + escape_xml(f.reproducer) + "</code>";
    table.add_raw({"<b>" + escape_xml(f.id) + "</b>", what, caught_by(f), std::to_string(f.cases),
                   fmt::format("{:.1f}", f.seconds)});
  }
  return table.str();
}

std::string html_tables(const Report& r) {
  return files(r) + coverage(r) + conformance(r) + bench(r) + histograms(r) + not_looked_at_html(r);
}

}  // namespace shadowgraph
