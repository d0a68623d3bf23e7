// JUnit XML, as CI servers read it: one suite a run, one test a row of what was covered (backend,
// mode and phase; file; fault; program; shape), with the findings of that row as its failure. A
// finding of no row is a test of its own.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "report/escape.h"
#include "report/render.h"
#include "report/words.h"

namespace shadowgraph {
namespace {

struct Test {
  std::string group, name;
  int64_t cases = 1;
  double seconds = 0;
  std::string failed, skipped;  // why; empty: it is not
  std::function<bool(const Finding&)> owns = [](const Finding&) { return false; };
  std::vector<size_t> findings = {};
  const PassedOver* passed = nullptr;  // whose row it is

  bool is_about(const Finding& f, const std::string& path) const {
    if (passed == nullptr) return owns(f) || (!path.empty() && path == name);
    return f.id == passed->law && path == passed->path &&
           passed->what.find(f.where.field) != std::string::npos &&
           passed->what.find(f.got) != std::string::npos;
  }
};

void add_coverage(const Report& r, std::vector<Test>* tests) {
  for (const CoverageReport& c : r.coverage) {
    Test& t = tests->emplace_back();
    t.group = c.backend, t.name = c.mode + ' ' + c.phase, t.cases = c.cases;
    t.owns = [&c](const Finding& f) {
      return f.where.backend == c.backend && f.where.mode == c.mode && f.where.phase == c.phase;
    };
  }
}

void add_files(const Report& r, std::vector<Test>* tests) {
  for (const FileReport& file : r.files) {
    Test& t = tests->emplace_back();
    t.group = file.kind.empty() ? "file" : file.kind;
    t.name = file.path, t.cases = file.cases;
    t.owns = [&file](const Finding& f) {
      return f.case_id == file.path || f.case_id.starts_with(file.path + '#');
    };
    if (file.cases == 0)
      t.skipped = fmt::format("nothing was judged; {}", fmt::join(file.notes, "; "));
  }
}

/// Before the files: a finding of --strict about it is its failure, not that of the file.
void add_passed_over(const Report& r, std::vector<Test>* tests) {
  for (const PassedOver& p : r.passed_over) {
    Test& t = tests->emplace_back();
    t.group = p.law, t.name = p.path + ": " + p.what, t.cases = p.count;
    t.skipped = p.what;
    t.passed = &p;
  }
}

void add_faults(const Report& r, std::vector<Test>* tests) {
  for (const FaultReport& f : r.faults) {
    Test& t = tests->emplace_back();
    t.group = "fault", t.name = f.id + ": " + f.title, t.cases = f.cases, t.seconds = f.seconds;
    if (!f.planted) {
      t.skipped = (f.verdict.empty() ? "not planted" : f.verdict) + ": " + f.why_not;
    } else if (!f.detected) {
      t.failed = "nothing notices " + f.id;
    }
  }
}

void add_matrix(const Report& r, std::vector<Test>* tests) {
  for (const FaultPair& p : r.matrix) {
    Test& t = tests->emplace_back();
    t.group = "fault " + p.fault, t.name = p.backend, t.cases = p.cases;
    t.owns = [id = p.fault + " on " + p.backend](const Finding& f) { return f.case_id == id; };
    if (p.verdict == "missed") t.failed = "nothing notices " + p.fault + " on " + p.backend;
    if (p.verdict == "inert" || p.verdict == "never acted") t.skipped = p.verdict + ": " + p.why;
  }
}

void add_programs(const Report& r, std::vector<Test>* tests) {
  for (const ConformanceReport& c : r.conformance) {
    Test& t = tests->emplace_back();
    t.group = "program " + c.id, t.name = c.variant;
    t.owns = [id = c.id + ' ' + c.variant](const Finding& f) { return f.case_id == id; };
    if (c.status == "differs") t.failed = c.why;
    if (c.status == "skipped") t.skipped = c.why;
  }
}

void add_shapes(const Report& r, std::vector<Test>* tests) {
  if (!r.bench) return;
  for (const BenchRow& row : r.bench->rows) {
    Test& t = tests->emplace_back();
    t.group = "bench", t.name = row.shape;
    t.owns = [id = "bench " + row.shape](const Finding& f) { return f.case_id == id; };
    t.skipped = row.void_reason;
  }
}

/// Rows first; a finding stands with the first row that it is about.
std::vector<Test> tests_of(const Report& r, size_t most) {
  std::vector<Test> tests;
  for (const auto add :
       {add_coverage, add_passed_over, add_files, add_faults, add_matrix, add_programs, add_shapes})
    add(r, &tests);
  const size_t rows = tests.size();
  for (const size_t i : findings_in_order(r, most)) {
    const Finding& f = r.findings[i];
    const auto evidence = r.evidence.find(i);
    const std::string path = evidence == r.evidence.end() ? "" : evidence->second.path;
    const auto is_owner = [&](const Test& t) { return t.is_about(f, path); };
    const auto end = tests.begin() + static_cast<ptrdiff_t>(rows);
    auto test = std::find_if(tests.begin(), end, is_owner);
    if (test == end) {
      tests.push_back({f.id, f.case_id.empty() ? f.title : f.case_id, 1, 0, "", "", {}});
      test = tests.end() - 1;
    }
    test->findings.push_back(i);
  }
  if (r.exit_code() == 3 && r.open_findings() == 0)
    tests.push_back({"run", "the run says something", 0, 0, r.verdict(), "", {}});
  return tests;
}

/// The text of a finding, every line escaped.
std::string text_of(const Finding& f) {
  std::string s = escape_xml(fmt::format("{} {}: {}", name_of(f.severity), f.id, f.title)) + '\n';
  if (!f.case_id.empty()) s += fmt::format("  {:<9} {}\n", "case", escape_xml(f.case_id));
  for (const auto& [label, text] : details_of(f))
    s += fmt::format("  {:<9} {}\n", label, escape_xml(text));
  return s;
}

/// What is said of a test with these findings: a failure of what counts, else skipped.
void judge(const Report& r, Test* t, std::string* type, std::string* text) {
  const Finding* first = nullptr;
  size_t open = 0;
  for (const size_t i : t->findings) {
    const Finding& f = r.findings[i];
    *text += text_of(f);
    if (!f.waived.empty()) continue;
    if (open++ == 0) first = &f;
  }
  if (first != nullptr) {
    t->failed = first->to_string() + (open > 1 ? fmt::format(" (and {} more)", open - 1) : "");
    *type = first->id;
  } else if (!t->findings.empty() && t->failed.empty()) {
    t->skipped = "waived: " + r.findings[t->findings[0]].waived;
  }
}

std::string render_test(const Report& r, Test& t) {
  std::string type = t.group, text;
  judge(r, &t, &type, &text);
  std::string s = fmt::format(
      R"(    <testcase classname="{}" name="{}" assertions="{}" time="{:.3f}")",
      escape_xml("shadowgraph." + r.verb + '.' + t.group), escape_xml(t.name), t.cases, t.seconds);
  if (!t.failed.empty()) {
    s += fmt::format(">\n      <failure type=\"{}\" message=\"{}\">{}</failure>\n    </testcase>\n",
                     escape_xml(type), escape_xml(t.failed), text);
  } else if (!t.skipped.empty()) {
    s +=
        fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n", escape_xml(t.skipped));
  } else {
    s += "/>\n";
  }
  return s;
}

std::string properties(const Report& r) {
  const auto count = [&](int64_t n) { return r.files.empty() ? "" : std::to_string(n); };
  const std::pair<const char*, std::string> all[] = {{"version", r.version},
                                                     {"seed", std::to_string(r.seed)},
                                                     {"shard", r.shard},
                                                     {"isa", r.isa},
                                                     {"arith", r.arith},
                                                     {"threads", std::to_string(r.threads)},
                                                     {"cases", count(r.cases)},
                                                     {"flagged", count(r.flagged_cases())},
                                                     {"skipped", count(r.skipped)},
                                                     {"left_out", count(r.left_out)},
                                                     {"verdict", r.verdict()}};
  std::string s = "    <properties>\n";
  for (const auto& [name, value] : all) {
    if (!value.empty())
      s += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name, escape_xml(value));
  }
  return s + "    </properties>\n";
}

}  // namespace

std::string render_junit(const Report& r, const RenderOptions& options) {
  std::vector<Test> tests = tests_of(r, options.max_findings);
  std::string body;
  for (Test& t : tests) body += render_test(r, t);
  const auto failed = std::ranges::count_if(tests, [](const Test& t) { return !t.failed.empty(); });
  const auto skipped = std::ranges::count_if(
      tests, [](const Test& t) { return t.failed.empty() && !t.skipped.empty(); });
  const std::string counts =
      fmt::format(R"(tests="{}" failures="{}" errors="0" skipped="{}" time="{:.3f}")", tests.size(),
                  failed, skipped, r.seconds);
  std::string s = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  s += fmt::format("<testsuites name=\"shadowgraph\" {}>\n", counts);
  s += fmt::format("  <testsuite name=\"{}\" {}>\n", escape_xml("shadowgraph " + r.verb), counts);
  s += properties(r) + body;
  if (!r.warnings.empty()) {
    s += "    <system-err>";
    for (const std::string& line : r.warnings) s += escape_xml(line) + '\n';
    s += "</system-err>\n";
  }
  return s + "  </testsuite>\n</testsuites>\n";
}

}  // namespace shadowgraph
