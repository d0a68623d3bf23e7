// Reports for other programs: JUnit, SARIF, GitHub's workflow commands.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/laws.h"
#include "report/escape.h"
#include "report/report.h"
#include "report/report_samples.h"

namespace shadowgraph::formats_test {
namespace {

using nlohmann::json;

std::string render_as(Format format, const Report& r, size_t max_findings = 100) {
  RenderOptions options;
  options.format = format;
  options.max_findings = max_findings;
  return render(r, options);
}

TEST(Formats, HaveTheNamesOfTheContract) {
  std::vector<std::string> names;
  for (const auto& [format, name] : formats()) names.emplace_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"text", "json", "junit", "sarif", "github", "html"}));
}

TEST(Formats, PassNoControlCharacter) {
  for (const auto& [format, name] : formats()) {
    std::istringstream text(render_as(format, hostile_report()));
    for (std::string line; std::getline(text, line);) {
      EXPECT_EQ(line, escape_controls(line)) << name;
      EXPECT_FALSE(line.starts_with("::error::")) << name;
      const bool markup = name == "junit" || name == "html";
      EXPECT_FALSE(markup && line.find("<script>") != std::string::npos) << name;
    }
  }
}

TEST(Junit, IsThis) {
  Report r = small_report();
  r.findings.push_back(small_finding());
  r.findings[1].id = "len.total", r.findings[1].case_id = "elsewhere";
  r.findings[1].refs.clear(), r.findings[1].waived = "known <upstream>";
  r.coverage.push_back({"flashattention", "decode", "replay", 7});
  EXPECT_EQ(render_as(Format::kJunit, r), R"(<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="shadowgraph" tests="3" failures="1" errors="0" skipped="1" time="0.250">
  <testsuite name="shadowgraph check" tests="3" failures="1" errors="0" skipped="1" time="0.250">
    <properties>
      <property name="version" value="9.8.7"/>
      <property name="seed" value="5"/>
      <property name="isa" value="generic"/>
      <property name="arith" value="portable"/>
      <property name="threads" value="2"/>
      <property name="cases" value="2"/>
      <property name="flagged" value="1"/>
      <property name="skipped" value="1"/>
      <property name="left_out" value="0"/>
      <property name="verdict" value="not clean: 2 cases judged, 1 finding, 1 waived, 1 skipped, 0.2 s"/>
    </properties>
    <testcase classname="shadowgraph.check.flashattention" name="decode replay" assertions="7" time="0.000"/>
    <testcase classname="shadowgraph.check.kernel vectors" name="a.safetensors" assertions="2" time="0.000">
      <failure type="num.bound" message="num.bound: a.safetensors#case001: out[3, 7] is 0.75, expected 0.5 within 0.001">error num.bound: The error is within its bound.
  case      a.safetensors#case001
  where     out[3, 7]
  expected  0.5 within 0.001
  got       0.75
  refs      verification.D, sglang#35045
  reproduce shadowgraph check a.safetensors --case case001
</failure>
    </testcase>
    <testcase classname="shadowgraph.check.len.total" name="elsewhere" assertions="1" time="0.000">
      <skipped message="waived: known &lt;upstream&gt;"/>
    </testcase>
  </testsuite>
</testsuites>
)");
}

TEST(Junit, AFindingStandsWithItsRow) {
  Report r;
  r.coverage = {{"a", "decode", "eager", 1}, {"a", "decode", "replay", 1}};
  Finding f = small_finding();
  f.where.backend = "a", f.where.mode = "decode", f.where.phase = "replay";
  r.findings = {f, f};
  const std::string text = render_as(Format::kJunit, r);
  EXPECT_NE(text.find(R"(name="decode eager" assertions="1" time="0.000"/>)"), std::string::npos);
  EXPECT_NE(text.find("expected 0.5 within 0.001 (and 1 more)\">"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(tests="2" failures="1")"), std::string::npos);
}

TEST(Junit, ALineOfATraceStandsWithItsFile) {
  Report r = small_report();
  r.findings[0].case_id = "step-7";
  r.evidence[0].path = "a.safetensors";
  EXPECT_NE(render_as(Format::kJunit, r).find(R"(tests="1" failures="1")"), std::string::npos);
}

TEST(Junit, AFaultThatNobodyNoticesFailsAndOneThatIsNotPlantedIsSkipped) {
  const std::string text = render_as(Format::kJunit, faults_report());
  EXPECT_NE(text.find(R"(tests="3" failures="1" errors="0" skipped="1")"), std::string::npos);
  EXPECT_NE(text.find(R"(message="nothing notices K32")"), std::string::npos);
  EXPECT_NE(text.find(R"(<skipped message="not planted: no twin has this kernel"/>)"),
            std::string::npos);
}

TEST(Junit, APairThatIsMissedFailsAndOneThatProvesNothingIsSkipped) {
  const std::string text = render_as(Format::kJunit, matrix_report());
  EXPECT_NE(text.find(R"(tests="24" failures="1" errors="0" skipped="22")"), std::string::npos);
  EXPECT_NE(text.find(R"(message="nothing notices K04 on backend2")"), std::string::npos);
  EXPECT_NE(text.find(R"(<skipped message="inert: nothing is changed"/>)"), std::string::npos);
  Report r = faults_report();
  r.faults[2].verdict = "never acted", r.faults[2].why_not = "no history had it";
  EXPECT_NE(render_as(Format::kJunit, r).find(R"(message="never acted: no history had it")"),
            std::string::npos);
}

/// A line without a twin, and a name that nobody knows in two others.
Report passing_report() {
  Report r = small_report();
  r.left_out = 2;
  r.passed_over = {
      {"skip.backend", "a,b.jsonl", "skipped, no twin of x yet (1 line)", 1, 7},
      {"left_out.unknown_name", "a,b.jsonl", "left out, colour: not known (2 lines)", 2, 3}};
  r.warnings = {r.passed_over[1].to_string(), "K31 never acted"};
  return r;
}

TEST(Junit, WhatIsPassedOverIsASkippedTestAndFailsIfItIsAFinding) {
  Report r = passing_report();
  const std::string text = render_as(Format::kJunit, r);
  EXPECT_NE(text.find(R"(tests="3" failures="1" errors="0" skipped="2")"), std::string::npos);
  const std::string row =
      "left_out.unknown_name\" name=\"a,b.jsonl: left out, colour: not known (2 lines)\" "
      "assertions=\"2\"";
  EXPECT_NE(text.find("classname=\"shadowgraph.check." + row), std::string::npos) << text;
  Finding strict = small_finding();
  strict.id = "left_out.unknown_name", strict.where = {}, strict.where.field = "colour";
  strict.got = "not known";
  r.findings.push_back(strict);
  r.evidence[1].path = "a,b.jsonl";
  EXPECT_NE(render_as(Format::kJunit, r).find(R"(tests="3" failures="2" errors="0" skipped="1")"),
            std::string::npos);
  r.findings[1].got = "null";  // about something else: it stands with its file
  EXPECT_NE(render_as(Format::kJunit, r).find(R"(tests="3" failures="1" errors="0" skipped="2")"),
            std::string::npos);
}

TEST(Sarif, WhatIsPassedOverIsANotificationWithItsIdAndPlaceOnce) {
  const json run = json::parse(render_as(Format::kSarif, passing_report()))["runs"][0];
  const json& notes = run["invocations"][0]["toolExecutionNotifications"];
  ASSERT_EQ(notes.size(), 3u) << notes.dump(1);
  EXPECT_EQ(notes[0], json::parse(R"json({
    "descriptor": {"id": "skip.backend"}, "level": "note",
    "message": {"text": "skipped, no twin of x yet (1 line)"},
    "locations": [{"physicalLocation": {"artifactLocation": {"uri": "a%2Cb.jsonl"},
                                        "region": {"startLine": 7}}}],
    "properties": {"count": 1}})json"));
  EXPECT_EQ(notes[1]["descriptor"]["id"], "left_out.unknown_name");
  EXPECT_EQ(notes[1]["level"], "warning");
  EXPECT_EQ(notes[2]["message"]["text"], "K31 never acted");
  EXPECT_EQ(run["tool"]["driver"]["notifications"][0]["shortDescription"]["text"],
            find_law("skip.backend")->sentence);
  EXPECT_EQ(run["properties"]["left_out"], 2);
}

TEST(Github, WhatIsPassedOverIsAnnotatedOnce) {
  const std::string text = render_as(Format::kGithub, passing_report());
  EXPECT_NE(text.find("\n::notice file=a%2Cb.jsonl,line=7,title=skip.backend::skipped, no twin"),
            std::string::npos);
  EXPECT_NE(text.find("\n::warning file=a%2Cb.jsonl,line=3,title=left_out.unknown_name::left out, "
                      "colour: not known (2 lines)\n::warning ::K31 never acted\n"),
            std::string::npos)
      << text;
}

TEST(Junit, ARunThatSaysNothingFails) {
  Report r;
  r.verb = "fuzz";
  r.void_verdict = "K31 never acted";
  const std::string text = render_as(Format::kJunit, r);
  EXPECT_NE(text.find(R"(tests="1" failures="1")"), std::string::npos);
  EXPECT_NE(text.find(R"(message="K31 never acted: 0 cases)"), std::string::npos);
}

TEST(Sarif, HasTheLawAsItsRuleAndTheElementAsItsPlace) {
  Report r = small_report();
  r.findings[0].where.backend = "flashattention", r.findings[0].where.mode = "decode";
  r.findings[0].where.phase = "replay";
  r.findings.push_back(small_finding());
  r.findings[1].severity = Severity::kNote, r.findings[1].waived = "known";
  r.evidence[0].path = "traces/a b%.jsonl", r.evidence[0].line = 12;
  r.warnings = {"K31 never acted"};
  const json run = json::parse(render_as(Format::kSarif, r))["runs"][0];
  const Law& law = *find_law("num.bound");
  EXPECT_EQ(run["tool"]["driver"]["name"], "shadowgraph");
  ASSERT_EQ(run["tool"]["driver"]["rules"].size(), 1u);
  const json& rule = run["tool"]["driver"]["rules"][0];
  EXPECT_EQ(rule["id"], "num.bound");
  EXPECT_EQ(rule["shortDescription"]["text"], law.sentence);
  EXPECT_EQ(rule["help"]["text"], law.mend);
  EXPECT_EQ(rule["properties"]["refs"], law.refs);
  ASSERT_EQ(run["results"].size(), 2u);
  const json& result = run["results"][0];
  EXPECT_EQ(result["level"], "error");
  EXPECT_EQ(result["ruleIndex"], 0);
  EXPECT_EQ(result["locations"][0], json::parse(R"({
    "physicalLocation": {"artifactLocation": {"uri": "traces/a%20b%25.jsonl"},
                         "region": {"startLine": 12}},
    "logicalLocations": [{"fullyQualifiedName": "flashattention/decode/replay/out[3, 7]",
                          "kind": "element", "name": "out"}]})"));
  EXPECT_EQ(result["properties"]["reproduce"], small_finding().reproduce);
  EXPECT_FALSE(result.contains("suppressions"));
  EXPECT_EQ(run["results"][1]["level"], "note");
  EXPECT_EQ(run["results"][1]["suppressions"],
            json::parse(R"([{"kind": "external", "justification": "known"}])"));
  EXPECT_EQ(run["invocations"][0]["exitCode"], 1);
  EXPECT_EQ(run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"],
            "K31 never acted");
}

TEST(Sarif, ALawThatIsNotListedHasTheFindingsSentence) {
  Report r = small_report();
  r.findings[0].id = "peer.law";
  const json run = json::parse(render_as(Format::kSarif, r))["runs"][0];
  EXPECT_EQ(run["tool"]["driver"]["rules"][0]["fullDescription"]["text"],
            "The error is within its bound.");
}

TEST(Github, IsThis) {
  Report r = small_report();
  r.findings[0].got = "100%\nof 3";
  r.findings.push_back(small_finding());
  r.findings[1].case_id = "a,b:c", r.findings[1].waived = "known", r.findings[1].refs.clear();
  r.evidence[0].path = "t:1,2.jsonl", r.evidence[0].line = 12;
  r.faults = faults_report().faults;
  r.warnings = {"K31 never acted"};
  EXPECT_EQ(render_as(Format::kGithub, r),
            "seed 5  check  isa generic  arith portable  threads 2  shadowgraph 9.8.7\n"
            "::error file=t%3A1%2C2.jsonl,line=12,title=num.bound a.safetensors#case001"
            "::The error is within its bound.%0Awhere: out[3, 7]%0Aexpected: 0.5 within 0.001"
            "%0Agot: 100%25\\x0aof 3%0Arefs: verification.D, sglang#35045"
            "%0Areproduce: shadowgraph check a.safetensors --case case001\n"
            "::notice title=num.bound a%2Cb%3Ac::The error is within its bound."
            "%0Awhere: out[3, 7]%0Aexpected: 0.5 within 0.001%0Agot: 0.75%0Awaived: known"
            "%0Areproduce: shadowgraph check a.safetensors --case case001\n"
            "::error title=nothing notices K32::" +
                faults_report().faults[1].title +
                "\n"
                "::warning ::K31 never acted\n"
                "::error title=shadowgraph check::not clean: 2 cases judged, 1 finding, 1 waived, "
                "1 skipped, 0.2 s\n");
}

TEST(Formats, ListAtMostMaxFindings) {
  Report r = small_report();
  r.findings.resize(5, small_finding());
  EXPECT_EQ(json::parse(render_as(Format::kSarif, r, 2))["runs"][0]["results"].size(), 2u);
  const std::string text = render_as(Format::kGithub, r, 2);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

}  // namespace
}  // namespace shadowgraph::formats_test
