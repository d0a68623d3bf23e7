// The simulated device against an H200: cuda_graph/*.jsonl of tests/data, and known.jsonl of the
// folder that SHADOWGRAPH_VECTORS names.
#include "conformance/conformance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "core/laws.h"

namespace shadowgraph::conformance_test {
namespace {

const RecordFile& known() {
  static const RecordFile file = [] {
    const char* folder = std::getenv("SHADOWGRAPH_VECTORS");
    RecordFile read;
    const Status status = read_records(
        std::string(folder ? folder : SHADOWGRAPH_TEST_DATA) + "/cuda_graph/known.jsonl", &read);
    EXPECT_EQ(status.to_string(), "ok");
    return read;
  }();
  return file;
}

const RecordFile& more() {
  static const RecordFile file = [] {
    RecordFile read;
    EXPECT_EQ(read_records(SHADOWGRAPH_TEST_DATA "/cuda_graph/more.jsonl", &read).to_string(),
              "ok");
    return read;
  }();
  return file;
}

ProgramVerdict run(const ConformanceCase& c, const DeviceFactory& device = simulated_device) {
  return run_case(c, device, Seeds(), std::atomic<bool>(false));
}

RecordedProgram recorded(const std::string& id, const std::string& variant) {
  for (const RecordedProgram& c : known().cases) {
    if (c.record.id == id && c.record.variant == variant) return c;
  }
  ADD_FAILURE() << "no record of " << id << ' ' << variant;
  return {};
}

ConformanceCase case_of(const RecordedProgram& c) { return {c.record.id, c.record.variant, &c}; }

TEST(Conformance, TheSimulatedDeviceAnswersAsRecorded) {
  for (const RecordFile* file : {&known(), &more()}) {
    ASSERT_FALSE(file->cases.empty());
    for (const ConformanceCase& c : cases_of(*file)) {
      const ProgramVerdict verdict = run(c);
      EXPECT_TRUE(verdict.findings.ok() && verdict.status != Conformance::kSkipped)
          << c.id << ' ' << c.variant << ' ' << name_of(verdict.status) << ": " << verdict.why;
    }
  }
}

TEST(Conformance, EveryProgramKeepsItsClassWithoutARecord) {
  for (const ConformanceCase& c : all_cases()) {
    const ProgramVerdict verdict = run(c);
    EXPECT_TRUE(verdict.findings.ok()) << c.id << ' ' << c.variant << ": " << verdict.why;
  }
}

TEST(Conformance, ASecondCaptureLeavesTheContextClean) {
  int64_t variants = 0;
  for (const ConformanceCase& c : all_cases()) {
    if (c.id != "M:cudaStreamBeginCapture_second") continue;
    const Record answer = run(c).first;
    ++variants;
    EXPECT_TRUE(answer.facts.empty()) << c.variant << ": " << answer.facts.begin()->first;
    for (const RecordedStep& step : answer.steps) EXPECT_EQ(step.ret, 0) << c.variant << step.call;
    EXPECT_EQ(answer.steps.back().out, "graph=valid") << c.variant;
  }
  EXPECT_EQ(variants, 12);
}

TEST(Conformance, ADifferenceFromTheRecordIsFound) {
  RecordedProgram c = recorded("G12", "n.global");
  EXPECT_EQ(run(case_of(c)).status, Conformance::kEqual);
  c.record.steps[3].ret = 1;
  const ProgramVerdict verdict = run(case_of(c));
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
  const Finding& finding = std::as_const(verdict.findings).findings()[0];
  EXPECT_EQ(finding.id, "conformance.record");
  EXPECT_EQ(finding.case_id, "G12 n.global");
  EXPECT_EQ(finding.expected, "1");
}

TEST(Conformance, ARecordOfAnotherClassIsFound) {
  RecordedProgram c = recorded("G12", "n.global");
  c.verdict = Verdict::kUndefined;
  const ProgramVerdict verdict = run(case_of(c));
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
  EXPECT_EQ(verdict.why, "class: E, recorded U");
}

TEST(Conformance, WhatCannotBeRunIsSkippedAndAFinding) {
  for (const auto& [id, variant] : {std::pair{"G999", "n.global"}, {"G12", "n.relaxed"}}) {
    const ProgramVerdict verdict = run({id, variant, nullptr});
    EXPECT_EQ(verdict.status, Conformance::kSkipped);
    EXPECT_FALSE(verdict.findings.ok());
    EXPECT_FALSE(verdict.why.empty());
  }
}

TEST(Conformance, ADeviceThatFindsNothingDiagnosesNothing) {
  const RecordedProgram c = recorded("G135", "n.global");
  EXPECT_EQ(run(case_of(c)).status, Conformance::kDiagnosed);
  const auto blind = [](uint64_t seed) {
    TestedDevice device = simulated_device(seed);
    device.take_findings = [] { return Status(); };
    return device;
  };
  EXPECT_EQ(run(case_of(c), blind).status, Conformance::kDiffers);
}

TEST(Conformance, ADeviceThatFindsTooMuchRaisesAFalseAlarm) {
  const RecordedProgram c = recorded("G12", "n.global");
  const auto nervous = [](uint64_t seed) {
    TestedDevice device = simulated_device(seed);
    device.take_findings = [] {
      Status status;
      status.add(make_finding("mem.race", at("A"), "", ""));
      return status;
    };
    return device;
  };
  EXPECT_EQ(run(case_of(c), nervous).status, Conformance::kDiffers);
}

TEST(Conformance, ADeviceThatIgnoresItsSeedReachesNoOtherMember) {
  const RecordedProgram c = recorded("G99", "n.global.one_more_chain");
  EXPECT_EQ(run(case_of(c)).status, Conformance::kInSet);
  const ProgramVerdict verdict = run(case_of(c), [](uint64_t) { return simulated_device(0); });
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
  EXPECT_EQ(std::as_const(verdict.findings).findings()[0].id, "conformance.set");
}

TEST(Conformance, TheDevicesOwnAnswersAreReadBackEqual) {
  std::vector<RecordedProgram> answers;
  for (const char* id : {"G01", "G53", "G77", "G123", "Q07", "M:cudaMalloc"}) {
    for (const ConformanceCase& c : all_cases()) {
      if (c.id == id) answers.push_back({Verdict::kExact, "", run(c).first});
    }
  }
  ASSERT_GT(answers.size(), 6u);
  const std::string path = ::testing::TempDir() + "conformance_test.jsonl";
  ASSERT_TRUE(write_records(path, "simulated", "1", answers).ok());
  RecordFile file;
  ASSERT_EQ(read_records(path, &file).to_string(), "ok");
  ASSERT_EQ(file.cases.size(), answers.size());
  for (const ConformanceCase& c : cases_of(file)) {
    EXPECT_EQ(run(c).status, Conformance::kEqual) << c.id << ' ' << c.variant;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace shadowgraph::conformance_test
