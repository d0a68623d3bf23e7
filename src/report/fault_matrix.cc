#include "report/fault_matrix.h"

#include <algorithm>
#include <map>
#include <span>

namespace shadowgraph {
namespace {

constexpr size_t kGroup = 5;    // columns without a gap
constexpr size_t kLegend = 34;  // of a column's name

struct Mark {
  std::string_view verdict, text;
};
constexpr Mark kMarks[] = {{"found", "#"}, {"missed", "!"}, {"inert", "o"}, {"never acted", "."}};

std::string_view mark_of(const FaultPair& pair) {
  const auto mark = std::ranges::find(kMarks, std::string_view(pair.verdict), &Mark::verdict);
  return mark == std::end(kMarks) ? "?" : mark->text;
}

std::string styled(const FaultPair& pair, const Style& style) {
  const std::string_view mark = mark_of(pair);
  if (pair.verdict == "found") return style.good(mark);
  return pair.verdict == "missed" ? style.bad(mark) : style.dim(mark);
}

/// The pairs of one fault after those of another.
std::vector<std::span<const FaultPair>> rows_of(const Report& r) {
  std::vector<std::span<const FaultPair>> rows;
  for (auto first = r.matrix.begin(); first != r.matrix.end();) {
    const auto other = [&](const FaultPair& p) { return p.fault != first->fault; };
    const auto end = std::find_if(first, r.matrix.end(), other);
    rows.emplace_back(first, end);
    first = end;
  }
  return rows;
}

int64_t count_of(std::span<const FaultPair> pairs, std::string_view verdict) {
  return std::ranges::count(pairs, verdict, &FaultPair::verdict);
}

/// One text for each column, with gaps between groups.
template <class Fn>
std::string columns(size_t count, Fn text) {
  std::string s;
  for (size_t i = 0; i < count; ++i) s += (i > 0 && i % kGroup == 0 ? " " : "") + text(i);
  return s;
}

/// "1-3 7": the numbers of columns.
std::string ranges_of(const std::vector<size_t>& numbers) {
  std::string s;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    s += (s.empty() ? "" : " ") + std::to_string(numbers[i]);
    if (end - i > 1) s += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return s;
}

std::string legend(std::span<const FaultPair> row) {
  constexpr size_t kAcross = 3;
  const size_t lines = (row.size() + kAcross - 1) / kAcross;
  std::string s;
  for (size_t line = 0; line < lines; ++line) {
    std::string text;
    for (size_t i = line; i < row.size(); i += lines) {
      const std::string name = escape_controls(row[i].backend);
      text += fmt::format("{:>3} {:<{}} ", i + 1, name, kLegend);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    s += text + '\n';
  }
  return s;
}

/// Why pairs of this verdict are of it, fault by fault, the columns of one reason together.
std::string reasons(const std::vector<std::span<const FaultPair>>& rows, std::string_view verdict,
                    const Style& style) {
  Table table(3, {"fault", "columns", "why"});
  bool any = false;
  for (const auto row : rows) {
    std::map<std::string, std::vector<size_t>> of_reason;
    for (size_t i = 0; i < row.size(); ++i)
      if (row[i].verdict == verdict) of_reason[row[i].why].push_back(i + 1);
    for (const auto& [why, numbers] : of_reason) {
      any = true;
      table.add({row[0].fault, ranges_of(numbers), why});
    }
  }
  if (!any) return "";
  return '\n' + style.bold(verdict) + '\n' + table.render(style);
}

std::string counts_of(std::span<const FaultPair> pairs) {
  std::string s;
  for (const Mark& mark : kMarks)
    s += fmt::format("{}{} {} {}", s.empty() ? "" : ", ", mark.text, mark.verdict,
                     count_of(pairs, mark.verdict));
  return s;
}

}  // namespace

std::string matrix_text(const Report& r, const Style& style) {
  if (r.matrix.empty()) return "";
  const auto rows = rows_of(r);
  const size_t backends = rows[0].size();
  const auto digit = [](size_t number) { return std::string(1, "0123456789"[number % 10]); };
  std::string s =
      fmt::format("\n{} faults x {} backends: {}\n\n", rows.size(), backends, counts_of(r.matrix));
  s += legend(rows[0]) + '\n';
  const std::string tens =
      columns(backends, [&](size_t i) { return i < 9 ? " " : digit((i + 1) / 10); });
  const std::string ones = columns(backends, [&](size_t i) { return digit(i + 1); });
  s += style.bold(fmt::format("{:<7}{}", "", tens)) + '\n';
  s += style.bold(fmt::format("{:<7}{}  found", "fault", ones)) + '\n';
  for (const auto row : rows) {
    s += fmt::format("{:<7}", escape_controls(row[0].fault)) +
         columns(row.size(), [&](size_t i) { return styled(row[i], style); }) +
         fmt::format("  {:>5}\n", count_of(row, "found"));
  }
  for (const std::string_view verdict : {"missed", "inert", "never acted"})
    s += reasons(rows, verdict, style);
  return s;
}

std::string matrix_html(const Report& r) {
  if (r.matrix.empty()) return "";
  const auto rows = rows_of(r);
  std::string s = "<h2>Faults and backends</h2>\n<p>" + escape_xml(counts_of(r.matrix)) +
                  "</p>\n<div class=\"scroll\"><table><tr><th>fault</th>";
  for (size_t i = 0; i < rows[0].size(); ++i)
    s += fmt::format("<th title=\"{}\">{}</th>", escape_xml(rows[0][i].backend), i + 1);
  s += "</tr>\n";
  for (const auto row : rows) {
    s += "<tr><td class=\"id\"><b>" + escape_xml(row[0].fault) + "</b></td>";
    for (const FaultPair& p : row) {
      const char* look = p.verdict == "found" ? "good" : p.verdict == "missed" ? "bad" : "soft";
      const std::string said = p.verdict == "found" ? p.by : p.why;
      s += fmt::format("<td class=\"{}\" title=\"{}\">{}</td>", look,
                       escape_xml(p.backend + ": " + p.verdict + ", " + said), mark_of(p));
    }
    s += "</tr>\n";
  }
  s += "</table></div>\n<p class=\"soft\">";
  for (size_t i = 0; i < rows[0].size(); ++i)
    s += fmt::format("{}{} {}", i > 0 ? ", " : "", i + 1, escape_xml(rows[0][i].backend));
  return s + "</p>\n";
}

}  // namespace shadowgraph
