#include "report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/report_samples.h"

namespace shadowgraph::report_test {
namespace {

using nlohmann::json;

std::string text_of(const Report& r, RenderOptions options = {}) { return render(r, options); }

json json_of(const Report& r, size_t max_findings = 100) {
  RenderOptions options;
  options.format = Format::kJson;
  options.max_findings = max_findings;
  return json::parse(render(r, options));
}

TEST(Text, IsThis) {
  EXPECT_EQ(text_of(small_report()),
            R"(seed 5  check  isa generic  arith portable  threads 2  shadowgraph 9.8.7

file           recognised as   cases  agreed  flagged  skipped
a.safetensors  kernel vectors      2       1        1        1
a.safetensors: skipped, kind not known yet: x

Error over its derived bound, the 2 largest of 2 cases
case                   kind    dtype   ours  ours lse   gpu  gpu lse
a.safetensors#case001  decode  bf16     250         -     -        -
a.safetensors#case000  decode  f16    0.125         -  0.25        -
largest of the recorded GPU results in f16: 0.25

notes
a.safetensors#case000: rows that see no key: lse +inf
a.safetensors#case001: known wrong: naive_merged: 37 times its bound

error num.bound a.safetensors#case001
  The error is within its bound.
  where     out[3, 7]
  expected  0.5 within 0.001
  got       0.75
  refs      verification.D, sglang#35045
  reproduce shadowgraph check a.safetensors --case case001

not clean: 2 cases judged, 1 finding, 1 skipped, 0.2 s
)");
}

TEST(Text, QuietShowsFindingsAndVerdictOnly) {
  RenderOptions options;
  options.quiet = true;
  const std::string text = text_of(small_report(), options);
  EXPECT_EQ(text.find("kernel vectors"), std::string::npos);
  EXPECT_NE(text.find("error num.bound"), std::string::npos);
  EXPECT_NE(text.find("not clean"), std::string::npos);
}

TEST(Text, HasColoursOnlyWhenAsked) {
  EXPECT_EQ(text_of(small_report()).find('\x1b'), std::string::npos);
  RenderOptions options;
  options.color = true;
  EXPECT_NE(text_of(small_report(), options).find("\x1b[31;1m"), std::string::npos);
}

TEST(Text, PutsErrorsFirstAndWaivedLast) {
  Report r = small_report();
  r.findings[0].id = "a.waived", r.findings[0].waived = "known";
  r.findings.push_back(small_finding());
  r.findings[1].id = "b.note", r.findings[1].severity = Severity::kNote;
  r.findings.push_back(small_finding());
  r.findings[2].id = "c.error";
  const std::string text = text_of(r);
  const size_t waived = text.find("a.waived"), note = text.find("b.note"),
               error = text.find("c.error");
  EXPECT_LT(error, note);
  EXPECT_LT(note, waived);
  EXPECT_NE(waived, std::string::npos);
}

TEST(Text, ListsAtMostMaxFindingsAndSaysHowManyMore) {
  Report r = small_report();
  r.findings.resize(5, small_finding());
  RenderOptions options;
  options.max_findings = 2;
  const std::string text = text_of(r, options);
  size_t listed = 0;
  for (size_t p = text.find("error num.bound"); p != std::string::npos;
       p = text.find("error num.bound", p + 1))
    ++listed;
  EXPECT_EQ(listed, 2u);
  EXPECT_NE(text.find("... 3 more findings; see them with --max-findings 5"), std::string::npos);
  EXPECT_NE(text.find("5 findings"), std::string::npos);
}

TEST(Text, DrawsHistogramsToScale) {
  Report r;
  r.histograms.push_back({"keys", 96, {{"1..63", 10}, {"64..127", 20}, {"128..", 0}}});
  const std::string text = text_of(r);
  EXPECT_NE(text.find("keys (median 96)"), std::string::npos);
  EXPECT_NE(text.find("  1..63  " + std::string(20, '#') + std::string(20, ' ') + " 10\n"),
            std::string::npos);
  EXPECT_NE(text.find("64..127  " + std::string(40, '#') + " 20\n"), std::string::npos);
  EXPECT_NE(text.find("  128..  " + std::string(40, ' ') + " 0\n"), std::string::npos);
}

TEST(Text, SumsUpByModeWhatIsMoreThanAScreen) {
  Report r;
  for (const char* backend : {"a", "b", "c", "d", "e", "f", "g"})
    for (const char* phase : {"eager", "replay"})
      r.coverage.push_back({backend, "decode", phase, 2});
  r.histograms.push_back({"keys", 96, {{"64..127", 20}}});
  EXPECT_NE(text_of(r).find("g        decode  replay      2\n"), std::string::npos) << text_of(r);
  for (const char* backend : {"a", "b", "x"}) {
    r.coverage.push_back({backend, "extend", "eager", 1});
    r.coverage.push_back({backend, "mixed", "eager", 1});
  }
  r.coverage.push_back({"x", "prebuilt", "received", 5});
  const std::string text = text_of(r);
  EXPECT_NE(text.find("mode      of  eager  replay  received\n"
                      "decode     7     14      14         0\n"
                      "extend     3      3       0         0\n"
                      "mixed      3      3       0         0\n"
                      "prebuilt   1      0       0         5\n"
                      "medians of kernels' calls: keys 96\n"
                      "8 backends and kernels; --coverage shows each\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("####"), std::string::npos);
  RenderOptions all;
  all.coverage = true;
  EXPECT_NE(text_of(r, all).find("g        decode    replay        2\n"), std::string::npos)
      << text_of(r, all);
  EXPECT_NE(text_of(r, all).find("####"), std::string::npos);
}

TEST(Text, PassesNoControlCharacter) {
  Report r = small_report();
  const std::string evil = "\x1b]0;x\x07\n\x7f\xc2\x9b\xe2\x80\xae\xff";
  r.files[0].path = r.files[0].notes[0] = r.case_list[0].id = r.case_list[0].notes[0] = evil;
  r.findings[0].case_id = r.findings[0].got = r.findings[0].where.field = r.findings[0].title =
      evil;
  const std::string text = text_of(r);
  for (char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
  EXPECT_NE(text.find(R"(\x1b]0;x\x07\x0a\x7f\xc2\x9b\xe2\x80\xae\xff)"), std::string::npos);
}

TEST(Json, HasTheSchemasKeys) {
  const json j = json_of(small_report());
  const json expected = json::parse(R"json({
    "schema": "shadowgraph.report/1", "verb": "check", "version": "9.8.7", "seed": 5, "isa": "generic",
    "threads": 2, "arith": "portable", "ok": false, "interrupted": false, "bad_input": false,
    "summary": {"cases": 2, "findings": 1, "waived": 0, "skipped": 1, "unknown_backends": 0, "left_out": 0,
                "seconds": 0.25, "flagged": 1, "gpu_error_over_bound": {"f16": 0.25}},
    "files": [{"path": "a.safetensors", "kind": "kernel vectors", "cases": 2, "agreed": 1, "flagged": 1,
               "waived": 0, "skipped": 1, "notes": ["skipped, kind not known yet: x"]}],
    "coverage": [],
    "cases": [{"case": "a.safetensors#case000", "kind": "decode", "dtype": "f16", "error_over_bound": 0.125,
               "gpu_error_over_bound": 0.25, "notes": ["rows that see no key: lse +inf"], "known_wrong": []},
              {"case": "a.safetensors#case001", "kind": "decode", "dtype": "bf16", "error_over_bound": 250.0,
               "notes": [], "known_wrong": ["naive_merged: 37 times its bound"]}],
    "findings": [{"id": "num.bound", "title": "The error is within its bound.", "severity": "error",
                  "case": "a.safetensors#case001", "where": {"field": "out", "row": 3, "col": 7},
                  "expected": "0.5 within 0.001", "got": "0.75", "refs": ["verification.D", "sglang#35045"],
                  "reproduce": "shadowgraph check a.safetensors --case case001"}]
  })json");
  EXPECT_EQ(j, expected) << j.dump(2);
}

TEST(Json, SaysWhatARunDoesNotSay) {
  Report r = small_report();
  r.warnings = {"a.jsonl: left out, colour: not known (1 line)"};
  r.void_verdict = "K31 never acted";
  r.left_out = 3;
  const json j = json_of(r);
  EXPECT_EQ(j["warnings"], json(r.warnings));
  EXPECT_EQ(j["void"], "K31 never acted");
  EXPECT_EQ(j["summary"]["left_out"], 3);
}

TEST(Json, SaysOfEachCaseWhetherItsKernelWasAccepted) {
  Report r = small_report();
  r.case_list[0].kernel = "accepted", r.case_list[1].marked_rows = 12;
  const json j = json_of(r);
  EXPECT_EQ(j["cases"][0]["kernel"], "accepted");
  EXPECT_FALSE(j["cases"][1].contains("kernel"));
  EXPECT_FALSE(j["cases"][0].contains("marked_rows"));
  EXPECT_EQ(j["cases"][1]["marked_rows"], 12);
  EXPECT_EQ(j["summary"]["marked_rows"], 12);
}

TEST(Verdict, CountsRowsThatAKernelMarked) {
  Report r = small_report();
  EXPECT_EQ(r.verdict().find("marked"), std::string::npos);
  r.case_list[0].marked_rows = 1;
  EXPECT_NE(r.verdict().find(", 1 row of no key marked by the kernel, "), std::string::npos);
  r.case_list[1].marked_rows = 11;
  EXPECT_NE(r.verdict().find(", 12 rows of no key marked by the kernel, "), std::string::npos);
}

TEST(Json, StartsWithItsSchema) {
  RenderOptions options;
  options.format = Format::kJson;
  EXPECT_TRUE(render(Report{}, options).starts_with("{\n  \"schema\": \"shadowgraph.report/1\","));
}

TEST(Json, WritesWhatIsNoNumberAsAString) {
  Report r = small_report();
  r.case_list[0].error_over_bound = std::numeric_limits<double>::infinity();
  r.case_list[0].gpu_error_over_bound = std::nan("");
  r.case_list[1].error_over_bound = -std::numeric_limits<double>::infinity();
  const json j = json_of(r);
  EXPECT_EQ(j["cases"][0]["error_over_bound"], "inf");
  EXPECT_EQ(j["cases"][1]["error_over_bound"], "-inf");
  EXPECT_EQ(j["summary"]["gpu_error_over_bound"]["f16"], "nan");
}

TEST(Json, KeepsEverySeed) {
  Report r;
  r.seed = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(json_of(r)["seed"], std::numeric_limits<uint64_t>::max());
}

TEST(Json, IsAsciiAndValidWhateverAPathHolds) {
  Report r = small_report();
  r.files[0].path = "\x1b[31m\xff\xc2\x9b\xe2\x80\xae";
  RenderOptions options;
  options.format = Format::kJson;
  const std::string text = render(r, options);
  for (char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
  EXPECT_EQ(json::parse(text)["files"][0]["path"], "\x1b[31m\xef\xbf\xbd\xc2\x9b\xe2\x80\xae");
}

TEST(Json, CountsFindingsThatItDoesNotList) {
  Report r = small_report();
  r.findings.resize(7, small_finding());
  const json j = json_of(r, 3);
  EXPECT_EQ(j["findings"].size(), 3u);
  EXPECT_EQ(j["summary"]["findings"], 7);
}

TEST(Json, HoldsHistogramsAndCoverage) {
  Report r;
  r.coverage.push_back({"engine", "decode", "eager", 12});
  r.histograms.push_back({"keys", 96, {{"64..127", 20}}});
  const json j = json_of(r);
  EXPECT_EQ(
      j["coverage"],
      json::parse(R"([{"backend": "engine", "mode": "decode", "phase": "eager", "cases": 12}])"));
  EXPECT_EQ(j["histogram"], json::parse(R"({"keys": {"median": 96.0, "bins": {"64..127": 20}}})"));
}

TEST(Text, SaysWhatCaughtEachFault) {
  const std::string cut = std::string(57, 'x') + "...";
  const std::string table =
      "\nfault  "
      "what it does" +
      std::string(48, ' ') +
      "  caught by           cases  seconds\n"
      "K31    request 0's encoder length for every request" +
      std::string(16, ' ') +
      "  mem.uninit_read +1     33      0.2\n"
      "K32    " +
      cut +
      "  NOTHING               100     60.0\n"
      "K33    a kernel's own" +
      std::string(46, ' ') +
      "  not planted             0      0.0\n"
      "K31: as if extent.of_request: The length is another request's, of row 0 (a part: 24 of 28 "
      "wrong results, but 1 right ones would be wrong)\n"
      "K33: no twin has this kernel\n"
      "1 of 1 faults that change outputs are named first\n";
  EXPECT_NE(text_of(faults_report()).find(table), std::string::npos) << text_of(faults_report());
}

TEST(Json, ListsFaultsAndNoEmptyReason) {
  const json j = json_of(faults_report());
  EXPECT_EQ(j["faults"][0], json::parse(R"({"id": "K31",
    "title": "request 0's encoder length for every request", "refs": ["sglang#25045"],
    "planted": true, "detected": true, "by": ["mem.uninit_read", "len.kv_extent"], "cases": 33,
    "seconds": 0.25, "reproducer": "K31.json", "diagnosis": [
      {"mistake": "extent.of_request", "sentence": "The length is another request's, of row 0",
       "explained": 24, "wrong": 28, "broken": 1}], "named": true})"));
  EXPECT_EQ(j["faults"][2]["why_not"], "no twin has this kernel");
  EXPECT_FALSE(j["faults"][2].contains("reproducer"));
}

TEST(Text, ShowsAFaultsVerdictWhereNothingNoticedIt) {
  Report r = faults_report();
  r.faults[1].planted = false, r.faults[1].verdict = "inert", r.faults[1].why_not = "as without it";
  r.faults[2].verdict = "never acted", r.faults[2].why_not = "no history had it";
  const std::string text = text_of(r);
  EXPECT_NE(text.find("xxx...  inert            "), std::string::npos) << text;
  EXPECT_NE(text.find("never acted"), std::string::npos) << text;
  EXPECT_NE(text.find("K32: as without it\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("NOTHING"), std::string::npos) << text;
  EXPECT_EQ(json_of(r)["faults"][1]["verdict"], "inert");
}

TEST(Text, AMatrixHasAMarkForEachPairAndItsReasons) {
  const std::string text = text_of(matrix_report());
  for (const char* part :
       {"\n2 faults x 12 backends: # found 1, ! missed 1, o inert 1, . never acted 21\n",
        "\n  1 backend1 ", "  5 backend5 ", " 12 backend12\n",
        ("\n                 1 11\n"
         "fault  12345 67890 12  found\n"
         "K31    #o... ..... ..      1\n"
         "K04    .!... ..... ..      0\n"),
        "\nmissed\nfault  columns  why\nK04    2        attention reads something else\n",
        "\ninert\nfault  columns  why\nK31    2        nothing is changed\n",
        "K31    3-12     no encoder\nK04    1 3-12   no encoder\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
}

TEST(Json, AMatrixIsAListOfPairs) {
  const json j = json_of(matrix_report());
  ASSERT_EQ(j["matrix"].size(), 24u);
  EXPECT_EQ(j["matrix"][0], json::parse(R"({"fault": "K31", "backend": "backend1",
    "verdict": "found", "cases": 7, "acted": 2, "by": "table.slot",
    "reproducer": "shadowgraph fuzz --choices 0"})"));
  EXPECT_EQ(j["matrix"][13]["why"], "attention reads something else");
  EXPECT_FALSE(json_of(faults_report()).contains("matrix"));
}

/// Programs of every class, one that differs, one that cannot be run.
Report conformance_report() {
  Report r;
  r.verb = "conformance";
  r.conformance = {{"G01", "n.global", "E", "equal", ""},
                   {"G99", "n.global.x", "S", "in_set", ""},
                   {"G02", "n.global", "E", "differs", "step 5: ret 0, recorded 901"},
                   {"G133", "n.global", "U", "diagnosed", ""},
                   {"G999", "n.global", "E", "skipped", "there is no program G999"}};
  return r;
}

TEST(Text, CountsProgramsByClassAndListsThemWhenTheyAreFew) {
  Report r = conformance_report();
  const std::string counted = R"(
class  equal  in_set  diagnosed  differs  skipped
E          1       0          0        1        1
S          0       1          0        0        0
U          0       0          1        0        0
)";
  const std::string listed = R"(
program  variant     class  status     why
G01      n.global    E      equal
G99      n.global.x  S      in_set
G02      n.global    E      differs    step 5: ret 0, recorded 901
G133     n.global    U      diagnosed
G999     n.global    E      skipped    there is no program G999
)";
  EXPECT_NE(text_of(r).find(counted + listed), std::string::npos) << text_of(r);
  r.conformance.resize(21, r.conformance[0]);
  EXPECT_EQ(text_of(r).find("program  variant"), std::string::npos);
  EXPECT_NE(text_of(r).find("E         17 "), std::string::npos) << text_of(r);
}

TEST(Json, ListsEveryProgramAndWhyOnlyWhereThereIsOne) {
  Report r = conformance_report();
  r.conformance.resize(3);
  EXPECT_EQ(json_of(r)["conformance"], json::parse(R"([
    {"id": "G01", "variant": "n.global", "class": "E", "status": "equal"},
    {"id": "G99", "variant": "n.global.x", "class": "S", "status": "in_set"},
    {"id": "G02", "variant": "n.global", "class": "E", "status": "differs",
     "why": "step 5: ret 0, recorded 901"}])"));
}

TEST(Report, WaivedFindingsDoNotCount) {
  Report r = small_report();
  EXPECT_EQ(r.exit_code(), 1);
  r.findings[0].waived = "known upstream";
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.exit_code(), 0);
  const json j = json_of(r);
  EXPECT_EQ(j["summary"]["findings"], 0);
  EXPECT_EQ(j["summary"]["waived"], 1);
  EXPECT_EQ(j["findings"][0]["waived"], "known upstream");
}

TEST(Report, BadInputIsItsOwnVerdict) {
  Report r;
  r.bad_input = true;
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.exit_code(), 3);
  EXPECT_TRUE(r.verdict().starts_with("bad input"));
}

TEST(Report, WithoutAJudgedCaseIsNotCalledClean) {
  Report r;
  EXPECT_TRUE(r.verdict().starts_with("nothing was judged"));
  r.cases = 1;
  EXPECT_TRUE(r.verdict().starts_with("clean: 1 case judged"));
}

TEST(Report, ItsHeadSaysWhatThereIsOfTheRun) {
  Report r = small_report();
  const auto head = [&] {
    const std::string text = render(r, {});
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(head(), "seed 5  check  isa generic  arith portable  threads 2  shadowgraph 9.8.7");
  r.isa.clear(), r.threads = 0, r.range = "0-511";
  EXPECT_EQ(head(), "seed 5  check  arith portable  shadowgraph 9.8.7  range 0-511");
}

TEST(Report, AVoidRunIsNotCleanButFindingsComeFirst) {
  Report r;
  r.cases = 3;
  r.void_verdict = "K31 never acted";
  EXPECT_EQ(r.exit_code(), 3);
  EXPECT_FALSE(r.ok());
  EXPECT_TRUE(r.verdict().starts_with("K31 never acted: 3 cases judged"));
  r.findings.push_back({});
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_TRUE(r.verdict().starts_with("not clean"));
}

TEST(Report, SaysWhichLawsNoticedThePlantedFault) {
  Report r;
  r.cases = 3;
  for (const char* law : {"table.slot", "num.bound", "table.slot"})
    r.findings.emplace_back().id = law;
  EXPECT_TRUE(r.verdict().starts_with("not clean: 3 cases"));
  r.planted = {{"K04", 0}, {"K31", 2}};
  EXPECT_TRUE(r.verdict().starts_with("K31: found by table.slot, num.bound; not clean: 3 cases"));
  EXPECT_EQ(json_of(r)["acted"], json({"K31"}));
  EXPECT_EQ(json_of(r)["planted"], json({{"K04", 0}, {"K31", 2}}));
  for (const char* law : {"num.bits", "num.empty_row"}) r.findings.emplace_back().id = law;
  EXPECT_EQ(r.found_faults(), "K31: found by table.slot, num.bound, num.bits and 1 more");
  r.findings.resize(1);
  r.findings[0].id = "fault.missed", r.findings[0].where.field = "K31";
  EXPECT_TRUE(r.verdict().starts_with("not noticed: K31: 3 cases"));
}

TEST(Report, CountsWhatNobodyLookedAtInTheVerdict) {
  Report r;
  r.cases = r.skipped = r.unknown_backends = r.left_out = 1;
  EXPECT_TRUE(r.verdict().starts_with(
      "clean as far as judged: 1 case judged, 0 findings, 1 skipped (1 of unknown backends), "
      "1 field left out, "));
  r.left_out = 2;
  EXPECT_NE(r.verdict().find(", 2 fields left out, "), std::string::npos);
}

TEST(Report, ACheckThatSkipsIsNotJustCleanAndAFuzzThatSkipsIs) {
  Report r;
  r.verb = "check", r.cases = r.skipped = 1;
  EXPECT_TRUE(r.verdict().starts_with("clean as far as judged: 1 case judged, 0 findings, 1 sk"));
  EXPECT_EQ(r.exit_code(), 0);
  r.skipped = 0;
  EXPECT_TRUE(r.verdict().starts_with("clean: "));
  r.verb = "fuzz", r.skipped = 1;
  EXPECT_TRUE(r.verdict().starts_with("clean: "));
}

TEST(Text, WarningsAreShownWithQuietToo) {
  Report r = small_report();
  r.warnings = {"a.jsonl: left out, \x1b[31m"};
  RenderOptions options;
  options.quiet = true;
  EXPECT_NE(render(r, options).find("\na.jsonl: left out, \\x1b[31m\n"), std::string::npos);
}

TEST(Text, TheRowOfALineIsItsNumber) {
  Report r;
  Finding f;
  f.id = "io.line";
  f.where.field = "input.raw_bs";
  f.where.row = 7;
  r.findings.push_back(f);
  EXPECT_NE(render(r, {}).find("line 7, input.raw_bs\n"), std::string::npos);
}

TEST(Report, SaysThatItWasInterrupted) {
  Report r = small_report();
  r.interrupted = true;
  EXPECT_TRUE(r.verdict().starts_with("interrupted; until then not clean"));
  EXPECT_EQ(json_of(r)["interrupted"], true);
}

TEST(Report, LargestGpuErrorIsPerDtypeAndNaNIsTheLargest) {
  Report r;
  const auto add = [&](const char* dtype, double ratio) {
    r.case_list.emplace_back().dtype = dtype;
    r.case_list.back().gpu_error_over_bound = ratio;
  };
  add("f16", 0.5), add("f16", 0.75), add("f16", 0.25), add("bf16", 0.5), add("bf16", std::nan("")),
      add("bf16", 2);
  EXPECT_EQ(r.largest_gpu_error().at("f16"), 0.75);
  EXPECT_TRUE(std::isnan(r.largest_gpu_error().at("bf16")));
}

}  // namespace
}  // namespace shadowgraph::report_test
