// Merge with most_of_a_law.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "report/merge.h"
#include "report/read.h"
#include "report/report_samples.h"

namespace shadowgraph::merge_cap_test {
namespace {

std::string json_of(const Report& r) {
  RenderOptions options;
  options.format = Format::kJson, options.max_findings = std::numeric_limits<size_t>::max();
  return render(r, options);
}

/// Reads a report as another program does.
Report read_again(const Report& r) {
  Report read;
  EXPECT_EQ(parse_report(json_of(r), "r.json", &read).to_string(), "ok");
  return read;
}

Report merge(const std::vector<Report>& reports, size_t most_of_a_law) {
  Merge merge({.checks_parts = false, .most_of_a_law = most_of_a_law});
  for (const Report& r : reports) merge.add("r.json", r);
  Report joined;
  EXPECT_EQ(merge.end(false, &joined).to_string(), "ok");
  return read_again(joined);
}

Finding finding(const std::string& law, const std::string& case_id) {
  Finding f;
  f.id = law, f.case_id = case_id, f.title = "t", f.expected = f.got = "1", f.reproduce = "again";
  return f;
}

Report result_with(std::vector<Finding> findings) {
  Report r;
  r.verb = "fuzz", r.version = "9.8.7", r.arith = "portable", r.cases = 1;
  r.findings = std::move(findings);
  return r;
}

/// "law case" of each listed finding.
std::vector<std::string> listed(const Report& r) {
  std::vector<std::string> all;
  for (const Finding& f : r.findings) all.push_back(f.id + ' ' + f.case_id);
  return all;
}

TEST(MergeCap, ACaseCountsForTheLawOfItsFirstFinding) {
  const Report r = result_with({finding("a.a", "1"), finding("b.b", "1"),  // a.a
                                finding("b.b", "2"), finding("a.a", "2"),  // b.b
                                finding("a.a", "3"),                       // a.a
                                finding("a.a", "4"), finding("b.b", "4"),  // a.a, one too many
                                finding("b.b", "5")});
  const Report two = merge({r}, 2);
  EXPECT_EQ(listed(two),
            (std::vector<std::string>{"a.a 1", "b.b 1", "b.b 2", "a.a 2", "a.a 3", "b.b 5"}));
  EXPECT_EQ(two.unlisted, 1);
  EXPECT_EQ(two.open_findings(), 7);
  EXPECT_EQ(listed(merge({r}, 0)).size(), 8u);
  EXPECT_EQ(listed(merge({r, result_with({finding("b.b", "6"), finding("c.c", "7")})}, 2)).back(),
            "c.c 7");
}

TEST(MergeCap, FindingsOfNoCaseStandAlone) {
  const Report r = merge({result_with({finding("a.a", ""), finding("a.a", ""), finding("a.a", "")}),
                          result_with({finding("a.a", "")})},
                         2);
  EXPECT_EQ(listed(r).size(), 2u);
  EXPECT_EQ(r.unlisted, 2);
}

TEST(MergeCap, WhatIsWaivedIsCountedAsWaived) {
  Finding waived = finding("a.a", "2");
  waived.waived = "known";
  const Report r = merge({result_with({finding("a.a", "1"), waived, finding("a.a", "3")})}, 1);
  EXPECT_EQ(r.unlisted, 1);
  EXPECT_EQ(r.unlisted_waived, 1);
  EXPECT_EQ(r.open_findings(), 2);
}

TEST(MergeCap, EvidenceFollowsItsFinding) {
  Report one = result_with({finding("a.a", "1"), finding("a.a", "2"), finding("b.b", "3")});
  for (size_t i = 0; i < 3; ++i) one.evidence[i].path = std::to_string(i + 1);
  Report two = result_with({finding("a.a", "4"), finding("c.c", "5")});
  two.evidence[1].path = "5";
  const Report r = merge({one, two}, 1);
  EXPECT_EQ(listed(r), (std::vector<std::string>{"a.a 1", "b.b 3", "c.c 5"}));
  ASSERT_EQ(r.evidence.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(r.evidence.at(i).path, r.findings[i].case_id);
}

/// A result of some cases, of which some fail: with every member that results have.
Report any_result(int number) {
  const auto below = [](int end) { return *rc::gen::inRange(0, end); };
  Report r = result_with({});
  const int cases = below(5);
  for (int c = 0; c < cases; ++c) {
    const std::string id = below(8) == 0 ? "" : std::to_string(number) + "/" + std::to_string(c);
    for (int f = below(4); f > 0; --f) {
      Finding& mine = r.findings.emplace_back(finding(std::string(1, "abc"[below(3)]) + ".x", id));
      if (below(4) == 0) mine.waived = "known";
      if (below(2) == 0) r.evidence[r.findings.size() - 1].path = std::to_string(below(100));
    }
  }
  r.cases = cases, r.skipped = below(2), r.unlisted = below(3), r.isa = below(2) ? "avx2" : "";
  r.planted = {{"K31", below(3)}}, r.changed = below(2) == 1;
  r.warnings = {std::to_string(below(3)) + " of something"};
  r.coverage = {{std::string(1, "ab"[below(2)]), "decode", "eager", below(9)}};
  r.laws = {{"len.total", below(9)}}, r.features = {{"histories topk", below(2)}};
  r.pairs = {{"histories a", {2, {below(2) == 1, below(2) == 1}, {}}}};
  if (below(2) == 1) r.pairs["calls b"] = {1, {true}, {}};
  r.histograms = {{"keys", 0, {{"0..9", below(3)}, {"10+", below(3)}}, {{below(20), 1}}}};
  r.faults = {faults_report().faults[below(3)]};
  return read_again(r);
}

RC_GTEST_PROP(MergeCap, JoiningJoinedReportsGivesTheSameWhereverTheOrderIsCut, ()) {
  constexpr unsigned kReports = 10;
  std::vector<Report> all;
  for (unsigned i = 0; i < kReports; ++i) all.push_back(any_result(static_cast<int>(i)));
  const size_t most = *rc::gen::inRange(1, 4);
  const std::string whole = json_of(merge(all, most));
  // Each bit cuts behind a report; one random cut of the joined ones again.
  const unsigned again = *rc::gen::inRange(0u, 1u << (kReports - 1));
  for (const unsigned cuts : {0u, again, (1u << (kReports - 1)) - 1, again >> 1, ~again}) {
    std::vector<Report> parts, some;
    for (unsigned i = 0; i < kReports; ++i) {
      some.push_back(all[i]);
      if ((cuts >> i & 1) == 0 && i + 1 < kReports) continue;
      parts.push_back(merge(some, most));
      some.clear();
    }
    RC_ASSERT(json_of(merge(parts, most)) == whole);
    Report folded = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) folded = merge({folded, parts[i]}, most);
    RC_ASSERT(json_of(folded) == whole);
  }
}

}  // namespace
}  // namespace shadowgraph::merge_cap_test
