#include "report/merge.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/laws.h"
#include "report/conclude.h"
#include "report/report_samples.h"

namespace shadowgraph::merge_test {
namespace {

struct ReportFile {
  std::string path;
  Report report;
};

/// Shard i of 3 of a fuzz run.
ReportFile shard(int i) {
  ReportFile file{"shard" + std::to_string(i) + ".json", {}};
  Report& r = file.report;
  r.verb = "fuzz", r.version = "9.8.7", r.seed = 5, r.arith = "portable", r.isa = "avx2";
  r.shard = std::to_string(i) + "/3";
  r.threads = i, r.cases = 10 * i, r.skipped = i, r.seconds = 0.5;
  r.coverage = {{"b", "decode", "eager", i}, {"a", "decode", "eager", 10 * i}};
  r.laws = {{"len.total", i}, {"mem.leak", 0}}, r.features = {{"histories topk", 2 * i}};
  r.parameters = {{"a sinks merged", i}};
  r.pairs = {{"histories a", {5, {i == 1, i > 1, false, i == 3, false}, {"x 1 x y 2"}}}};
  r.pairs["calls b"] = i == 2 ? PairsReport{1, {true}, {}} : PairsReport{};
  r.histograms = {{"keys", 0, {{"0..9", i}, {"10+", 1}}, {{i, i}, {20, 1}}}};
  return file;
}

std::string merge(const std::vector<ReportFile>& files, bool complete, Report* joined) {
  Merge merge;
  for (const ReportFile& file : files) merge.add(file.path, file.report);
  return merge.end(complete, joined).to_string();
}

/// Each part says of itself what it can say, and so does the sum.
std::string concluded(std::vector<ReportFile> files, Report* joined) {
  for (ReportFile& file : files) conclude("why", "more", &file.report);
  std::string status = merge(files, false, joined);
  conclude("why", "more", joined);
  return status;
}

TEST(Merge, AddsWhatShardsCounted) {
  Report r;
  ASSERT_EQ(merge({shard(3), shard(1), shard(2)}, true, &r), "ok");
  EXPECT_EQ(r.verb, "fuzz");
  EXPECT_EQ(r.shard, "");
  EXPECT_EQ(r.seed, 5u);
  EXPECT_EQ(r.cases, 60);
  EXPECT_EQ(r.skipped, 6);
  EXPECT_EQ(r.threads, 3);
  EXPECT_EQ(r.seconds, 1.5);
  EXPECT_EQ(r.isa, "avx2");
  EXPECT_EQ(r.parameters.at("a sinks merged"), 6);
  ASSERT_EQ(r.coverage.size(), 2u);
  EXPECT_EQ(r.coverage[0].backend, "a");
  EXPECT_EQ(r.coverage[0].cases, 60);
  EXPECT_EQ(r.coverage[1].cases, 6);
  ASSERT_EQ(r.laws.size(), 2u);
  EXPECT_EQ(r.laws["len.total"], 6);
  EXPECT_EQ(r.laws["mem.leak"], 0);
  ASSERT_EQ(r.features.size(), 1u);
  EXPECT_EQ(r.features["histories topk"], 12);
  ASSERT_EQ(r.pairs.size(), 2u);
  EXPECT_EQ(r.pairs["histories a"].met, (std::vector<bool>{true, true, false, true, false}));
  EXPECT_TRUE(r.pairs["histories a"].unmet.empty());
  EXPECT_EQ(r.pairs["calls b"].of, 1);
  ASSERT_EQ(r.histograms.size(), 1u);
  EXPECT_EQ(r.histograms[0].bins,
            (std::vector<std::pair<std::string, int64_t>>{{"0..9", 6}, {"10+", 3}}));
  EXPECT_EQ(r.histograms[0].median, 3);  // of 1 2 2 3 3 3 20 20 20
}

TEST(Merge, PartsThatCountOtherPairsAreRefused) {
  ReportFile one = shard(1), two = shard(2);
  two.report.pairs["histories a"] = {4, {true, true, true, true}, {}};
  Report r;
  const std::string status = merge({one, two}, false, &r);
  EXPECT_NE(status.find("5 of histories a"), std::string::npos) << status;
}

TEST(Merge, EachFindingIsThereOnceWithItsPictures) {
  ReportFile one = shard(1), two = shard(2);
  Finding other = small_finding();
  other.where.further = {8};
  one.report.findings = {small_finding()};
  two.report.findings = {small_finding(), other};
  two.report.evidence[0].path = "dropped";
  two.report.evidence[1].path = "kept";
  Report r;
  ASSERT_EQ(merge({one, two}, false, &r), "ok");
  ASSERT_EQ(r.findings.size(), 2u);
  EXPECT_EQ(r.findings[1].where.further, std::vector<int64_t>{8});
  ASSERT_EQ(r.evidence.size(), 1u);
  EXPECT_EQ(r.evidence.at(1).path, "kept");
  EXPECT_EQ(r.shard, "1,2/3");
}

TEST(Merge, OneReportAloneIsItself) {
  ReportFile whole{"a.json", small_report()};
  Report r;
  ASSERT_EQ(merge({whole}, true, &r), "ok");
  EXPECT_EQ(render(r, {}), render(small_report(), {}));
}

TEST(Merge, SaysEveryReasonAtOnce) {
  ReportFile seed = shard(2), verb = shard(2), whole = shard(3), count = shard(3), bad = shard(3);
  seed.report.seed = 6;
  verb.report.verb = "check", verb.report.version = "1", verb.report.arith = "fast";
  whole.report.shard = "", count.report.shard = "3/4", bad.report.shard = "4/3";
  Report r;
  r.verb = "untouched";
  EXPECT_EQ(merge({shard(1), seed, verb, whole, count, bad}, true, &r),
            "io.shard: shard2.json: seed is 6, expected 5, as in shard1.json\n"
            "io.shard: shard2.json: verb is check, expected fuzz, as in shard1.json\n"
            "io.shard: shard2.json: version is 1, expected 9.8.7, as in shard1.json\n"
            "io.shard: shard2.json: arith is fast, expected portable, as in shard1.json\n"
            "io.shard: shard2.json: shard is again, after shard2.json, expected shard 2 once\n"
            "io.shard: shard3.json: shard is the whole run, expected a shard, 2/4\n"
            "io.shard: shard3.json: shard is 3/4, expected one of 3 shards\n"
            "io.shard: shard3.json: shard is 4/3, expected a shard, 2/4\n"
            "io.shard: shard1.json: shard is without 3, expected all 3 shards");
  EXPECT_EQ(r.verb, "untouched");
}

TEST(Merge, AMissingShardIsRefusedOnlyIfAllAreAskedFor) {
  Report r;
  EXPECT_EQ(merge({shard(1), shard(3)}, true, &r),
            "io.shard: shard1.json: shard is without 2, expected all 3 shards");
  EXPECT_EQ(merge({shard(1), shard(3)}, false, &r), "ok");
  EXPECT_EQ(r.shard, "1,3/3");
}

TEST(Merge, FiguresOfSeveralBenchesAreNotAdded) {
  ReportFile one = shard(1), two = shard(2);
  one.report.verb = two.report.verb = "bench";
  one.report.bench.emplace(), two.report.bench.emplace();
  Report r;
  EXPECT_NE(merge({one, two}, false, &r), "ok");
  EXPECT_EQ(merge({one}, false, &r), "ok");
}

TEST(Merge, SaysNothingOnlyIfNoShardSaysAnything) {
  ReportFile one = shard(1), two = shard(2);
  one.report.planted = two.report.planted = {{"K31", 0}};
  two.report.planted["K31"] = 2;
  two.report.findings = {small_finding()};
  one.report.warnings = two.report.warnings = {"of another matter"};
  Report r;
  ASSERT_EQ(concluded({one, two}, &r), "ok");
  EXPECT_EQ(r.void_verdict, "");
  EXPECT_EQ(r.planted, (std::map<std::string, int64_t>{{"K31", 2}}));
  EXPECT_EQ(r.warnings, std::vector<std::string>{"of another matter"});
  two.report.planted["K31"] = 0, two.report.findings.clear();
  ASSERT_EQ(concluded({one, two}, &r), "ok");
  EXPECT_EQ(r.void_verdict, "K31 never acted");
  EXPECT_EQ(r.warnings.size(), 2u);
  one.report.cases = two.report.cases = 0;
  ASSERT_EQ(concluded({one, two}, &r), "ok");
  EXPECT_EQ(r.void_verdict, "K31 never acted, nothing was judged");
  EXPECT_EQ(r.warnings.back(), "nothing was judged: why");
}

TEST(Merge, AFaultIsMissedOnlyIfNoShardNoticesIt) {
  ReportFile one = shard(1), two = shard(2);
  one.report.planted = {{"K31", 2}}, two.report.planted = {{"K31", 3}};
  one.report.changed = true;
  Report r;
  ASSERT_EQ(concluded({one, two}, &r), "ok");
  EXPECT_EQ(r.missed_faults(), "K31");
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].got, "none: it acted 5 times in 30 cases; more");
  two.report.findings = {make_finding("table.slot", at("page_table"), "1", "2")};
  ASSERT_EQ(concluded({one, two}, &r), "ok");
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].id, "table.slot");
  two.report.findings.clear(), one.report.changed = false;
  ASSERT_EQ(concluded({one, two}, &r), "ok");
  EXPECT_EQ(r.void_verdict, "K31 inert");
}

TEST(Merge, WhatIsCountedAndNotListedStaysCounted) {
  ReportFile one = shard(1), two = shard(2);
  one.report.unlisted = 4;
  Report r;
  ASSERT_EQ(merge({one, two}, false, &r), "ok");
  EXPECT_EQ(r.open_findings(), 4);
  ASSERT_EQ(r.warnings.size(), 1u);
  EXPECT_TRUE(r.warnings[0].starts_with("shard1.json: 4 findings are counted and not listed"));
}

TEST(Merge, TheOrderOfShardsChangesNothing) {
  Report ordered, all, two;
  ASSERT_EQ(merge({shard(1), shard(2), shard(3)}, true, &ordered), "ok");
  std::vector<int> order = {1, 2, 3};
  do {
    std::vector<ReportFile> files;
    for (const int i : order) files.push_back(shard(i));
    ASSERT_EQ(merge(files, true, &all), "ok");
    EXPECT_EQ(render(all, {}), render(ordered, {}));
    // Two first, then the third.
    ASSERT_EQ(merge({files[0], files[1]}, false, &two), "ok");
    ASSERT_EQ(merge({{"two", two}, files[2]}, true, &all), "ok");
    EXPECT_EQ(render(all, {}), render(ordered, {}));
  } while (std::ranges::next_permutation(order).found);
}

/// Cases first to last of a fuzz run, in ranges.
ReportFile range(const std::string& text) {
  ReportFile file = shard(1);
  file.path = text + ".json", file.report.shard = "", file.report.range = text;
  return file;
}

TEST(Merge, RangesOfARunAreJoined) {
  Report r;
  ASSERT_EQ(merge({range("256-511"), range("600-700"), range("0-255")}, false, &r), "ok");
  EXPECT_EQ(r.range, "0-511,600-700");
  EXPECT_EQ(r.shard, "");
  EXPECT_EQ(r.cases, 30);
  Report more;
  ASSERT_EQ(merge({{"joined", r}, range("512-599")}, true, &more), "ok");
  EXPECT_EQ(more.range, "0-700");
}

TEST(Merge, AMissingPartIsMissingAlsoFromOneReportAlone) {
  Report r;
  EXPECT_EQ(merge({range("0-511,600-700")}, true, &r),
            "io.shard: 0-511,600-700.json: range is without 512-599, expected all cases of 0-700");
  EXPECT_EQ(merge({range("0-511,600-700")}, false, &r), "ok");
  EXPECT_EQ(r.range, "0-511,600-700");
  ReportFile one = shard(1);
  EXPECT_EQ(merge({one}, true, &r),
            "io.shard: shard1.json: shard is without 2, 3, expected all 3 shards");
}

TEST(Merge, ALedgersResultsAreNoPartsThatItChecks) {
  Report r;
  for (const size_t most : {0, 1}) {
    Merge merge({.checks_parts = false, .most_of_a_law = most});
    for (int i = 0; i < 3; ++i) merge.add("result", range("").report);
    ASSERT_EQ(merge.end(true, &r).to_string(), "ok");
    EXPECT_EQ(r.cases, 30);
    EXPECT_EQ(r.shard + r.range, "");
  }
}

}  // namespace
}  // namespace shadowgraph::merge_test
