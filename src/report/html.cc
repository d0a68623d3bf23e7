// One HTML file for people, which needs nothing else: no script, no font, no picture from outside.
// Findings stand by their law, each with its pictures and the command that shows it again.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/laws.h"
#include "report/escape.h"
#include "report/fault_matrix.h"
#include "report/html_drawings.h"
#include "report/html_style.h"
#include "report/html_tables.h"
#include "report/render.h"
#include "report/words.h"

namespace shadowgraph {
namespace {

std::string tile(std::string_view name, std::string_view value) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span class=\"soft\">{}</span></div>\n",
                     escape_xml(value), escape_xml(name));
}

std::string summary(const Report& r) {
  std::string s = "<div class=\"tiles\">\n";
  s += tile("cases judged", std::to_string(r.cases));
  s += tile("findings", std::to_string(r.open_findings()));
  if (r.waived_findings() > 0) s += tile("waived", std::to_string(r.waived_findings()));
  if (r.skipped > 0) s += tile("skipped", std::to_string(r.skipped));
  if (r.left_out > 0) s += tile("fields left out", std::to_string(r.left_out));
  if (!r.faults.empty()) {
    const auto planted = std::ranges::count_if(r.faults, &FaultReport::planted);
    const auto noticed = std::ranges::count_if(r.faults, &FaultReport::detected);
    s += tile("planted faults noticed", fmt::format("{} of {}", noticed, planted));
  }
  return s + tile("seconds", fmt::format("{:.1f}", r.seconds)) + "</div>\n";
}

std::string warnings(const Report& r) {
  std::string s;
  for (const std::string& warning : r.warnings)
    s += "<p class=\"warn\">" + escape_xml(warning) + "</p>\n";
  return s;
}

std::string drawings(const std::vector<Picture>& pictures) {
  std::string s;
  for (const Picture& picture : pictures) {
    if (is_whole(picture)) s += draw(picture);
  }
  return s;
}

/// "error", "warning", "note" or "waived", as a tag.
std::string tag(const Finding& f) {
  const bool counts = f.waived.empty() && f.severity == Severity::kError;
  return fmt::format("<span class=\"tag {}\">{}</span>", counts ? "bad" : "soft",
                     f.waived.empty() ? name_of(f.severity) : "waived");
}

std::string card(const Finding& f, const Evidence* evidence, bool open) {
  std::string s = open ? "<details class=\"card\" open>" : "<details class=\"card\">";
  const std::string name = f.case_id.empty() ? place_of(f) : f.case_id;
  s += fmt::format("<summary>{} {}</summary>\n<dl>\n", tag(f), escape_xml(name));
  const auto row = [&](std::string_view what, std::string_view value) {
    s += fmt::format("<dt>{}</dt><dd>{}</dd>\n", what, escape_xml(value));
  };
  if (evidence != nullptr && !evidence->path.empty())
    row("file", evidence->path + (evidence->line ? fmt::format(":{}", *evidence->line) : ""));
  for (const auto& [what, value] : details_of(f)) {
    if (std::string_view(what) != "reproduce") row(what, value);
  }
  s += "</dl>\n";
  if (evidence != nullptr) s += drawings(evidence->pictures);
  if (!f.reproduce.empty()) s += "<pre>" + escape_xml(f.reproduce) + "</pre>\n";
  return s + "</details>\n";
}

/// The findings of one law, the first of them open.
std::string law_section(const Report& r, const std::string& id, const std::vector<size_t>& listed) {
  const Law* law = find_law(id);
  std::string cards, sentence;
  int64_t count = 0;
  for (const size_t i : listed) {
    const Finding& f = r.findings[i];
    if (f.id != id) continue;
    const auto evidence = r.evidence.find(i);
    cards += card(f, evidence == r.evidence.end() ? nullptr : &evidence->second, count++ == 0);
    sentence = f.title;
  }
  std::string s = fmt::format(
      "<section class=\"law\">\n<h3><code>{}</code> <span class=\"soft\">{} "
      "finding{}</span></h3>\n",
      escape_xml(id), count, count == 1 ? "" : "s");
  s += "<p>" + escape_xml(law != nullptr ? law->sentence : sentence) + "</p>\n";
  if (law != nullptr && !law->mend.empty())
    s += "<p class=\"soft\">To mend it: " + escape_xml(law->mend) + "</p>\n";
  if (law != nullptr && !law->refs.empty())
    s += "<p class=\"soft mono\">" + escape_xml(law->refs) + "</p>\n";
  return s + cards + "</section>\n";
}

std::string findings(const Report& r, size_t most) {
  if (r.findings.empty()) return "";
  const std::vector<size_t> listed = findings_in_order(r, most);
  std::string s = "<h2>Findings</h2>\n";
  std::set<std::string> seen;
  for (const size_t i : listed) {
    if (seen.insert(r.findings[i].id).second) s += law_section(r, r.findings[i].id, listed);
  }
  if (listed.size() < r.findings.size())
    s += fmt::format("<p class=\"soft\">{} more findings: --max-findings {}</p>\n",
                     r.findings.size() - listed.size(), r.findings.size());
  return s;
}

/// Cases by how near they came to their bounds, and what a run drew of itself.
std::string run_pictures(const Report& r) {
  std::string s = drawings(r.pictures);
  if (const auto errors = error_map(r)) s += draw(*errors);
  return s.empty() ? s : "<h2>Pictures</h2>\n<div class=\"panel\">\n" + s + "</div>\n";
}

}  // namespace

std::string render_html(const Report& r, const RenderOptions& options) {
  const std::string verdict = r.verdict();
  std::string s = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>shadowgraph {}: {}</title>\n<style>{}</style>\n</head>\n<body>\n",
      escape_xml(r.verb), escape_xml(verdict.substr(0, verdict.find(':'))), kHtmlStyle);
  s += fmt::format("<h1>shadowgraph {}</h1>\n<p class=\"soft mono head\">{}</p>\n",
                   escape_xml(r.verb), escape_xml(head_of(r)));
  s +=
      fmt::format("<p class=\"verdict {}\">{}</p>\n", r.ok() ? "good" : "bad", escape_xml(verdict));
  s += summary(r) + warnings(r) + findings(r, options.max_findings) + html_faults(r) +
       matrix_html(r) + run_pictures(r) + html_tables(r);
  return s + "</body>\n</html>\n";
}

}  // namespace shadowgraph
