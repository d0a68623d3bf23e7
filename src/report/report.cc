#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/laws.h"
#include "report/render.h"

namespace shadowgraph {

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::kError: return "error";
    case Severity::kWarning: return "warning";
    case Severity::kNote: return "note";
  }
  return "";
}

double median_of(const std::map<int64_t, int64_t>& counts) {
  int64_t total = 0, below = 0;
  for (const auto& [value, cases] : counts) total += cases;
  for (const auto& [value, cases] : counts) {
    below += cases;
    if (2 * below >= total) return static_cast<double>(value);
  }
  return 0;
}

void Report::add_laws(const LawCounts& counts, std::span<const std::string_view> runs) {
  for (size_t i = 0; i < std::size(kLaws); ++i) {
    const Law& law = kLaws[i];
    const int64_t judged = counts.all()[i];
    const bool expected =
        std::ranges::any_of(runs, [&](std::string_view run) { return is_judged_in(law, run); });
    if (!expected && judged == 0) continue;
    laws[std::string(law.id)] += judged;
  }
}

std::vector<std::string> Report::idle_laws() const {
  std::vector<std::string> ids;
  for (const auto& [id, judged] : laws)
    if (judged == 0) ids.push_back(id);
  return ids;
}

std::vector<std::string> Report::laws_of_other_runs() const {
  std::vector<std::string> ids;
  for (const Law& law : kLaws) {
    std::string id(law.id);
    if (!laws.empty() && !law.judged_in.empty() && !laws.contains(id)) ids.push_back(std::move(id));
  }
  return ids;
}

std::string PassedOver::to_string() const {
  const std::string id = law == "waiver.unused" ? "" : " [" + law + ']';
  return path + ": " + what + id;
}

int64_t Report::open_findings() const {
  return unlisted + std::count_if(findings.begin(), findings.end(),
                                  [](const Finding& f) { return f.waived.empty(); });
}

std::vector<std::string> Report::acted() const {
  std::vector<std::string> ids;
  for (const auto& [id, times] : planted)
    if (times > 0) ids.push_back(id);
  return ids;
}

std::string Report::missed_faults() const {
  std::string ids;
  for (const Finding& f : findings) {
    if (f.id != "fault.missed") return "";
    ids += (ids.empty() ? "" : ", ") + f.where.field;
  }
  return unlisted > 0 ? "" : ids;
}

std::string Report::found_faults() const {
  constexpr size_t kMostNamed = 3;
  std::vector<std::string> by;
  for (const Finding& f : findings)
    if (f.id != "fault.missed" && std::ranges::count(by, f.id) == 0) by.push_back(f.id);
  const std::vector<std::string> plants = acted();
  if (plants.empty() || by.empty()) return "";
  const size_t more = by.size() > kMostNamed ? by.size() - kMostNamed : 0;
  by.resize(by.size() - more);
  return fmt::format("{}: found by {}{}", fmt::join(plants, ", "), fmt::join(by, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

int64_t Report::waived_findings() const {
  return unlisted_waived + std::count_if(findings.begin(), findings.end(),
                                         [](const Finding& f) { return !f.waived.empty(); });
}

int64_t Report::flagged_cases() const {
  int64_t flagged = 0;
  for (const FileReport& file : files) flagged += file.flagged;
  return flagged;
}

int64_t Report::marked_rows() const {
  int64_t marked = 0;
  for (const CaseReport& c : case_list) marked += c.marked_rows;
  return marked;
}

bool Report::is_partial() const { return left_out > 0 || (skipped > 0 && verb == "check"); }

std::map<std::string, double> Report::largest_gpu_error() const {
  std::map<std::string, double> largest;
  for (const CaseReport& c : case_list) {
    if (!c.gpu_error_over_bound) continue;
    double& so_far = largest.emplace(c.dtype, 0).first->second;
    // A NaN is worse than any number, and stays.
    const double value = *c.gpu_error_over_bound;
    if (std::isnan(value) || value > so_far) so_far = value;
  }
  return largest;
}

int Report::exit_code() const {
  if (bad_input) return 3;
  if (open_findings() > 0) return 1;
  return void_verdict.empty() ? 0 : 3;
}

std::string Report::verdict() const {
  const int64_t open = open_findings();
  const std::string missed = missed_faults(), found = found_faults();
  const auto caught =
      std::ranges::count_if(faults, &FaultReport::detected) +
      std::ranges::count_if(matrix, [](const FaultPair& p) { return p.verdict == "found"; });
  std::string s = bad_input               ? "bad input"
                  : !missed.empty()       ? "not noticed: " + missed
                  : !found.empty()        ? found + "; not clean"
                  : open > 0              ? "not clean"
                  : !void_verdict.empty() ? void_verdict
                  : cases == 0            ? "nothing was judged"
                  : is_partial()          ? "clean as far as judged"
                  : caught > 0 ? fmt::format("{} planted fault{} found, none missed", caught,
                                             caught == 1 ? "" : "s")
                               : "clean";
  s += fmt::format(": {} case{} judged", cases, cases == 1 ? "" : "s");
  // A fault that is found leaves no finding.
  if (caught == 0 || open > 0) s += fmt::format(", {} finding{}", open, open == 1 ? "" : "s");
  if (waived_findings() > 0) s += fmt::format(", {} waived", waived_findings());
  if (skipped > 0) s += fmt::format(", {} skipped", skipped);
  if (unknown_backends > 0) s += fmt::format(" ({} of unknown backends)", unknown_backends);
  if (left_out > 0) s += fmt::format(", {} field{} left out", left_out, left_out == 1 ? "" : "s");
  if (const int64_t marked = marked_rows(); marked > 0)
    s += fmt::format(", {} row{} of no key marked by the kernel", marked, marked == 1 ? "" : "s");
  s += fmt::format(", {:.1f} s", seconds);
  return interrupted ? "interrupted; until then " + s : s;
}

std::span<const std::pair<Format, std::string_view>> formats() {
  static constexpr std::pair<Format, std::string_view> kFormats[] = {
#define SG_FORMAT(constant, name) {Format::constant, #name},
#include "report/formats.inc"
#undef SG_FORMAT
  };
  return kFormats;
}

std::string render(const Report& report, const RenderOptions& options) {
  switch (options.format) {
#define SG_FORMAT(constant, name) \
  case Format::constant:          \
    return render_##name(report, options);
#include "report/formats.inc"
#undef SG_FORMAT
  }
  return "";
}

std::string render(const Listing& listing, const RenderOptions& options) {
  return options.format == Format::kJson ? render_json(listing) : render_text(listing, options);
}

}  // namespace shadowgraph
