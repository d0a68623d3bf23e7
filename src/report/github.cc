// Workflow commands of GitHub Actions: findings become annotations, at the file where one is known.
// GitHub shows the first ten of a step; the log has all.
#include <fmt/format.h>

#include <algorithm>

#include "report/escape.h"
#include "report/render.h"
#include "report/words.h"

namespace shadowgraph {
namespace {

/// What would end a command's data, or a property (":" and ","), is written out.
std::string escape_data(std::string_view text, bool property = false) {
  std::string s;
  for (const char c : text) {
    const bool special = c == '%' || c == '\n' || (property && (c == ':' || c == ','));
    s += special ? fmt::format("%{:02X}", static_cast<unsigned>(c)) : std::string(1, c);
  }
  return s;
}

std::string escape_property(std::string_view text) {
  return escape_data(escape_controls(text), true);
}

/// notice: what does not count.
const char* command_of(const Finding& f) {
  if (!f.waived.empty() || f.severity == Severity::kNote) return "notice";
  return f.severity == Severity::kError ? "error" : "warning";
}

std::string annotation(const Finding& f, const Evidence& evidence) {
  std::string s = fmt::format("::{} ", command_of(f));
  if (!evidence.path.empty()) s += "file=" + escape_property(evidence.path) + ',';
  if (evidence.line) s += fmt::format("line={},", *evidence.line);
  s += "title=" + escape_property(f.case_id.empty() ? f.id : f.id + ' ' + f.case_id);
  std::string text = escape_controls(f.title);
  for (const auto& [label, detail] : details_of(f))
    text += fmt::format("\n{}: {}", label, escape_controls(detail));
  return s + "::" + escape_data(text) + '\n';
}

/// notice: a case that is skipped; warning: what of a judged one is left out, and unused waivers.
std::string annotation(const PassedOver& p) {
  std::string s = p.law.starts_with("skip.") ? "::notice " : "::warning ";
  s += "file=" + escape_property(p.path) + ',';
  if (p.line) s += fmt::format("line={},", *p.line);
  return s + "title=" + escape_property(p.law) + "::" + escape_data(escape_controls(p.what)) + '\n';
}

}  // namespace

std::string render_github(const Report& r, const RenderOptions& options) {
  std::string s = escape_controls(head_of(r)) + '\n';
  for (const size_t i : findings_in_order(r, options.max_findings)) {
    const auto evidence = r.evidence.find(i);
    s += annotation(r.findings[i], evidence == r.evidence.end() ? Evidence{} : evidence->second);
  }
  for (const FaultReport& f : r.faults) {
    if (f.planted && !f.detected)
      s += "::error title=" + escape_property("nothing notices " + f.id) +
           "::" + escape_data(escape_controls(f.title)) + '\n';
  }
  for (const PassedOver& p : r.passed_over) s += annotation(p);
  for (const std::string& warning : other_warnings(r))
    s += "::warning ::" + escape_data(escape_controls(warning)) + '\n';
  const char* command = r.ok() ? "notice" : "error";
  return s + fmt::format("::{} title=shadowgraph {}::{}\n", command, escape_property(r.verb),
                         escape_data(escape_controls(r.verdict())));
}

}  // namespace shadowgraph
