#include "report/read.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/report_samples.h"

namespace shadowgraph::read_test {
namespace {

using nlohmann::json;

std::string json_text(const Report& r, size_t max_findings = 100) {
  RenderOptions options;
  options.format = Format::kJson;
  options.max_findings = max_findings;
  return render(r, options);
}

/// A report with something of everything that JSON keeps.
Report full_report() {
  Report r = pictures_report();
  r.shard = "2/4", r.range = "512-767", r.seed = std::numeric_limits<uint64_t>::max();
  r.unknown_backends = 1, r.left_out = 2, r.interrupted = true, r.void_verdict = "K31 never acted";
  r.warnings = {"K31 never acted"}, r.planted = {{"K04", 7}, {"K31", 0}}, r.changed = true;
  r.passed_over = {{"skip.kind", "a.safetensors", "skipped, kind not known yet: x", 1},
                   {"left_out.null", "a.jsonl", "left out, x: null (2 lines)", 2, 7, "x", "null"}};
  r.files[0].role = "current";
  r.files[0].unread = {{"unread.field", "a.jsonl", "not read, x: y", 2, 7, "x", "y"}};
  r.files[0].steps = {{"decode", "eager", 1, 2, 3, 4}};
  r.case_list[0].twin_error_over_bound = HUGE_VAL;
  r.case_list[0].kernel = "not accepted", r.case_list[0].marked_rows = 12;
  r.case_list[1].gpu_lse_error_over_bound = std::nan("");
  r.faults = faults_report().faults;
  r.coverage = {{"a", "decode", "eager", 10}};
  r.laws = {{"len.total", 12}, {"mem.leak", 0}}, r.features = {{"histories topk", 3}};
  r.parameters = {{"a sinks merged", 3}};
  r.pairs = {{"histories a", {5, {true, false, true, true, false}, {"x 1 x y 2", "x 1 x y 3"}}},
             {"histories b", {}}};
  r.conformance = {{"G01", "n.global", "E", "differs", "step 5"}};
  r.histograms = {{"keys", 20, {{"0", 1}, {"1..15", 2}, {"16..63", 3}, {"128+", 4}}, {{20, 7}}}};
  r.findings.push_back(small_finding());
  r.findings[1].waived = "known", r.findings[1].severity = Severity::kNote;
  r.findings[1].where.row = -1, r.findings[1].where.backend = "a";
  return r;
}

TEST(ReadReport, RenderedAgainItSaysTheSame) {
  Report hostile = hostile_report();
  hostile.histograms.clear();  // a key without control characters is all that is read
  Report diagnosed = faults_report();
  diagnosed.findings.push_back(small_finding());
  diagnosed.findings[0].diagnosis = {{"window.shorter", "The window is a key too short", 8, 9, 1}};
  for (const Report& report :
       {small_report(), full_report(), hostile, diagnosed, matrix_report(), Report{}}) {
    const std::string text = json_text(report);
    Report read;
    ASSERT_EQ(parse_report(text, "r.json", &read).to_string(), "ok");
    EXPECT_EQ(json_text(read), text);
  }
}

TEST(PairsReport, DigitsThatAreNotOfSoManyPairsAreRefused) {
  PairsReport pairs;
  pairs.of = 5;
  EXPECT_TRUE(pairs.set_hex("a8"));
  EXPECT_EQ(pairs.met, (std::vector<bool>{true, false, true, false, true}));
  EXPECT_EQ(pairs.to_hex(), "a8");
  for (const char* digits : {"", "a", "a80", "a4", "ag"}) EXPECT_FALSE(pairs.set_hex(digits));
}

TEST(ReadReport, ABenchSaysTheSame) {
  Report read;
  const std::string text = json_text(bench_report());
  ASSERT_EQ(parse_report(text, "r.json", &read).to_string(), "ok");
  // Probes come back in the order of their names.
  EXPECT_EQ(json::parse(json_text(read)), json::parse(text));
}

TEST(ReadReport, CountsWhatIsNotListed) {
  Report r = small_report();
  r.findings.resize(7, small_finding());
  r.findings[6].waived = "known";
  Report read;
  ASSERT_EQ(parse_report(json_text(r, 3), "r.json", &read).to_string(), "ok");
  EXPECT_EQ(read.findings.size(), 3u);
  EXPECT_EQ(read.open_findings(), 6);
  EXPECT_EQ(read.waived_findings(), 1);
}

/// Fields of the findings that a changed report has.
std::vector<std::string> faults_of(const std::string& text) {
  Report read;
  read.verb = "untouched";
  const Status status = parse_report(text, "r.json", &read);
  EXPECT_EQ(read.verb, "untouched");
  std::vector<std::string> fields;
  for (const Finding& f : status.findings()) {
    EXPECT_EQ(f.id, "io.report");
    EXPECT_EQ(f.case_id, "r.json");
    fields.push_back(f.where.field);
  }
  return fields;
}

TEST(ReadReport, SaysEveryFaultAtOnce) {
  json j = json::parse(json_text(full_report()));
  j["seed"] = -1;
  j["colour"] = "blue";
  j["files"][0]["cases"] = "many";
  j["coverage"][0]["cases"] = -4, j["coverage"][0]["shape"] = "round";
  j["findings"][0]["severity"] = "fatal";
  j["findings"][1].erase("got");
  j["findings"][0]["pictures"][0]["rows"] = 7;
  j["histogram"]["keys"]["counts"]["seven"] = 7;
  EXPECT_EQ(
      faults_of(j.dump()),
      (std::vector<std::string>{"seed", "files[0].cases", "coverage[0].cases", "coverage[0].shape",
                                "histogram.keys.counts.seven", "findings[0].pictures[0].rows",
                                "findings[0].severity", "findings[1].got", "colour"}));
}

TEST(ReadReport, EveryFaultOfABenchIsNamed) {
  json j = json::parse(json_text(bench_report()));
  j["bench"][0]["ratio"] = "fast";
  j["bench"][1]["goal_is"] = "near";
  j["bench"][3].erase("low");
  j["probes"]["stream_read"]["gbps"] = true;
  j["machine"]["cpu"] = 7;
  j["against"]["rows"][0].erase("verdict");
  EXPECT_EQ(
      faults_of(j.dump()),
      (std::vector<std::string>{"machine.cpu", "probes.stream_read.gbps", "bench[0].ratio",
                                "bench[1].goal_is", "bench[3].ratio", "against.rows[0].verdict"}));
}

TEST(ReadReport, RefusesWhatIsNoReport) {
  EXPECT_EQ(faults_of(R"({"schema": "shadowgraph.report/2", "verb": "fuzz"})"),
            (std::vector<std::string>{"schema"}));
  EXPECT_EQ(faults_of("[]").size(), 1u);
  EXPECT_EQ(faults_of("{").size(), 1u);
}

TEST(ReadReport, ACountOfFewerFindingsThanAreListedIsRefused) {
  json j = json::parse(json_text(full_report()));
  j["summary"]["findings"] = 0;
  EXPECT_EQ(faults_of(j.dump()), (std::vector<std::string>{"summary"}));
}

TEST(ReadReport, AMissingFileIsSaid) {
  Report read;
  const Status status = read_report("/nowhere/r.json", &read);
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "io.open");
}

}  // namespace
}  // namespace shadowgraph::read_test
