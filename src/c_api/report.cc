#include "c_api/report.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "c_api/errors.h"
#include "core/laws.h"
#include "core/nearest.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/version.h"

namespace shadowgraph::c_api {
namespace {

constexpr size_t kLongestError = 1024;
thread_local char last_error[kLongestError] = "";

std::string joined(std::span<const std::string> refs) {
  std::string all;
  for (const std::string& ref : refs) all += (all.empty() ? "" : " ") + ref;
  return all;
}

sg_report::Words words_of(const Finding& f) {
  const Law* law = find_law(f.id);
  std::string diagnosis;
  for (const Explanation& e : f.diagnosis)
    diagnosis += (diagnosis.empty() ? "" : "\n") + e.to_string();
  return {law == nullptr ? "" : std::string(law->mend), f.where.index(), joined(f.refs),
          f.to_string(), std::move(diagnosis)};
}

}  // namespace

sg_status fail(sg_status status, std::string_view what) noexcept {
  const size_t size = std::min(what.size(), kLongestError - 1);
  std::memcpy(last_error, what.data(), size);
  last_error[size] = 0;
  return status;
}

sg_status fail_word(const char* member, std::string_view word,
                    const std::vector<std::string>& known, std::string_view hint) {
  const std::string meant = hint.empty() ? did_you_mean(word, known) : std::string(hint);
  return fail(SG_USAGE, std::string(member) + " is " + std::string(word) + meant + ", expected " +
                            one_of(known));
}

sg_status hand_out(const Status& findings, sg_status wrong, sg_report** report) {
  if (findings.ok()) return SG_OK;
  const std::span<const Finding> all = findings.findings();
  const bool no_memory = std::ranges::any_of(
      all, [](const Finding& f) { return f.id == "input.memory" || f.id == "io.memory"; });
  std::string text = all.front().to_string();
  if (all.size() > 1) text += " (and " + std::to_string(all.size() - 1) + " more)";
  if (report != nullptr) *report = new sg_report(all);
  return fail(no_memory ? SG_INTERNAL : wrong, text);
}

}  // namespace shadowgraph::c_api

using namespace shadowgraph;

sg_report::sg_report(std::span<const Finding> findings) {
  report.verb = "check";
  report.version = SHADOWGRAPH_VERSION;
  report.isa = current_isa();
  report.cases = 1;
  report.findings.assign(findings.begin(), findings.end());
  for (const Finding& f : findings) words.push_back(c_api::words_of(f));
}

void sg_report::add(const sg_report& more, const char* case_id) {
  sg_report sum = *this;
  for (Finding f : more.report.findings) {
    if (case_id != nullptr) f.case_id = case_id;
    sum.words.push_back(c_api::words_of(f));
    sum.report.findings.push_back(std::move(f));
  }
  for (const PassedOver& note : more.report.passed_over) sum.report.passed_over.push_back(note);
  sum.report.left_out += more.report.left_out, sum.report.cases += more.report.cases;
  sum.texts.clear();
  *this = std::move(sum);
}

const std::string* sg_report::rendered(const char* format) const {
  for (const auto& [value, name] : formats()) {
    if (name != format) continue;
    std::string& text = texts[value];
    if (text.empty())
      text = render(report, {.format = value, .max_findings = report.findings.size()});
    return &text;
  }
  return nullptr;
}

extern "C" {

uint32_t sg_abi_version() { return SG_ABI_MAJOR << 16 | SG_ABI_MINOR; }

const char* sg_version() { return SHADOWGRAPH_VERSION; }

const char* sg_last_error() { return c_api::last_error; }

int64_t sg_report_size(const sg_report* report) {
  return report == nullptr ? 0 : std::ssize(report->words);
}

sg_status sg_report_get(const sg_report* report, int64_t i, sg_finding* out) {
  if (out == nullptr || out->struct_size < sizeof(size_t))
    return c_api::fail(SG_USAGE, "out is no sg_finding: begin with SG_FINDING_INIT");
  if (i < 0 || i >= sg_report_size(report))
    return c_api::fail(SG_USAGE, "the report has no finding of that number");
  const Finding& f = report->report.findings[static_cast<size_t>(i)];
  const sg_report::Words& words = report->words[static_cast<size_t>(i)];
  const sg_finding found = {.struct_size = out->struct_size,
                            .id = f.id.c_str(),
                            .title = f.title.c_str(),
                            .mend = words.mend.c_str(),
                            .field = f.where.field.c_str(),
                            .index = words.index.c_str(),
                            .expected = f.expected.c_str(),
                            .got = f.got.c_str(),
                            .refs = words.refs.c_str(),
                            .text = words.text.c_str(),
                            .severity = name_of(f.severity),
                            .row = f.where.row.value_or(-1),
                            .col = f.where.col.value_or(-1),
                            .diagnosis = words.diagnosis.c_str()};
  std::memcpy(out, &found, std::min(out->struct_size, sizeof found));
  return SG_OK;
}

const char* sg_report_text(const sg_report* report, const char* format) {
  const char* text = nullptr;
  c_api::guarded(nullptr, [&] {
    thread_local std::unique_ptr<sg_report> clean;
    if (report == nullptr && clean == nullptr) clean = std::make_unique<sg_report>();
    if (format == nullptr) return c_api::fail(SG_USAGE, "format is NULL");
    const std::string* whole = (report == nullptr ? clean.get() : report)->rendered(format);
    if (whole == nullptr) {
      std::vector<std::string> known;
      for (const auto& [value, name] : formats()) known.emplace_back(name);
      return c_api::fail_word("format", format, known);
    }
    text = whole->c_str();
    return sg_status{SG_OK};
  });
  return text;
}

sg_status sg_report_add(sg_report** report, const sg_report* more, const char* case_id) {
  return c_api::guarded(nullptr, [&] {
    if (report == nullptr) return c_api::fail(SG_USAGE, "report is NULL");
    std::unique_ptr<sg_report> made;
    if (*report == nullptr) {
      made = std::make_unique<sg_report>();
      made->report.cases = 0;
    }
    (made ? *made : **report).add(more == nullptr ? sg_report() : *more, case_id);
    if (made) *report = made.release();
    return sg_status{SG_OK};
  });
}

sg_status sg_report_finding(sg_report** report, const char* id, const char* field, int64_t row,
                            int64_t col, const char* expected, const char* got) {
  return c_api::guarded(nullptr, [&] {
    if (report == nullptr || id == nullptr || field == nullptr || expected == nullptr ||
        got == nullptr)
      return c_api::fail(SG_USAGE, "report, or a text, is NULL");
    const Law* law = find_law(id);
    if (law == nullptr)
      return c_api::fail(SG_USAGE,
                         "id is " + std::string(id) + ", expected one of `shadowgraph list laws`");
    const auto axis = [](int64_t n) { return n < 0 ? std::nullopt : std::optional<int64_t>(n); };
    Finding finding;
    finding.id = law->id, finding.title = law->sentence, finding.severity = law->severity;
    finding.where = at(field, axis(row), axis(col));
    finding.expected = expected, finding.got = got;
    std::istringstream refs{std::string(law->refs)};
    finding.refs.assign(std::istream_iterator<std::string>(refs), {});
    auto made = std::make_unique<sg_report>(std::span(&finding, 1));
    if (*report == nullptr) {
      *report = made.release();
    } else {
      made->report.cases = 0;  // one more finding of the same case
      (*report)->add(*made, nullptr);
    }
    return sg_status{SG_OK};
  });
}

void sg_report_free(sg_report* report) { delete report; }

}  // extern "C"
