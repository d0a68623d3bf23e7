#include "report/conclude.h"

#include <gtest/gtest.h>

#include "report/report_samples.h"

namespace shadowgraph::conclude_test {
namespace {

Report run_with(std::map<std::string, int64_t> planted, bool changed) {
  Report r;
  r.verb = "fuzz", r.cases = 3, r.planted = std::move(planted), r.changed = changed;
  return r;
}

TEST(Conclude, SaysWhatCameOfEachPlant) {
  Report r = run_with({{"K04", 0}, {"K31", 2}}, false);
  judge_plants("more", &r);
  EXPECT_EQ(r.void_verdict, "K04 never acted, K31 inert");
  ASSERT_EQ(r.warnings.size(), 2u);
  EXPECT_TRUE(r.warnings[0].starts_with("K04 never acted: no step of this run"));
  EXPECT_TRUE(r.warnings[1].starts_with("K31 inert: it acted 2 times in 3 cases, and nothing"));
  r = run_with({{"K31", 1}}, true);
  judge_plants("more", &r);
  EXPECT_EQ(r.void_verdict, "");
  EXPECT_EQ(r.missed_faults(), "K31");
  EXPECT_EQ(r.findings[0].got, "none: it acted 1 time in 3 cases; more");
}

TEST(Conclude, AFindingIsNoticeAlsoWhereItIsOnlyCounted) {
  for (const bool listed : {false, true}) {
    Report r = run_with({{"K31", 2}}, true);
    if (listed) r.findings.push_back(small_finding());
    if (!listed) r.unlisted = 1;
    conclude("why", "more", &r);
    EXPECT_EQ(r.void_verdict, "") << listed;
    EXPECT_EQ(r.open_findings(), 1) << listed;
  }
}

TEST(Conclude, ARowOfAFaultThatIsInertOrNeverActedProvesNothing) {
  Report r = run_with({}, false);
  const auto row = [&](const char* id, const char* verdict, bool planted, const char* why_not) {
    FaultReport& f = r.faults.emplace_back();
    f.id = id, f.verdict = verdict, f.planted = planted, f.why_not = why_not;
  };
  row("K01", "found", true, ""), row("K02", "missed", true, "");
  row("K03", "inert", false, "changed nothing"), row("K04", "never acted", false, "no draft");
  row("K05", "", false, "not run on a GPU");
  conclude("why", "more", &r);
  EXPECT_EQ(r.void_verdict, "K03 inert, K04 never acted");
  const std::vector<std::string> warnings = {"K03 inert: changed nothing",
                                             "K04 never acted: no draft"};
  EXPECT_EQ(r.warnings, warnings);
  take_back(&r);
  EXPECT_EQ(r.void_verdict, "");
  EXPECT_TRUE(r.warnings.empty());
}

TEST(Conclude, ARunThatJudgedNothingSaysWhy) {
  Report r;
  conclude("too short", "more", &r);
  EXPECT_EQ(r.void_verdict, "nothing was judged");
  EXPECT_EQ(r.warnings, std::vector<std::string>{"nothing was judged: too short"});
}

TEST(Conclude, AnInterruptedRunProvesNothingAndNeedNotSaySo) {
  Report r = run_with({{"K31", 0}}, false);
  r.interrupted = true, r.cases = 0;
  conclude("why", "more", &r);
  EXPECT_EQ(r.void_verdict, "");
}

TEST(Conclude, WhatItSaidIsTakenBackAndNothingElse) {
  RenderOptions options;
  options.format = Format::kJson;
  Report never = run_with({{"K04", 0}, {"K31", 2}}, false), missed = run_with({{"K31", 2}}, true);
  Report nothing = run_with({{"K04", 0}}, false), found = missed, other = never;
  nothing.cases = 0;
  found.findings.push_back(small_finding());
  other.findings.push_back(small_finding());  // a fault that a hunt missed is no plant of the run
  other.findings[0].id = "fault.missed", other.findings[0].where.field = "K13";
  for (Report r : {never, missed, nothing, found, other}) {
    r.warnings = {"K04: of another matter"};
    const std::string before = render(r, options);
    conclude("why", "more", &r);
    r.warnings.emplace_back("later");
    take_back(&r);
    ASSERT_EQ(r.warnings.back(), "later");
    r.warnings.pop_back();
    EXPECT_EQ(render(r, options), before);
  }
}

}  // namespace
}  // namespace shadowgraph::conclude_test
