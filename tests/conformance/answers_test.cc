// Programs in processes of their own: what ends, what does not, and what is not right.
#include "conformance/answers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::answers_test {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<DeviceApi> open_simulated(std::string* /*why*/) {
  return std::make_unique<SimDevice>(SimOptions{});
}

/// Those cases that run quickly and are of one class each.
std::vector<ConformanceCase> some_cases() {
  return {{"G01", "n.global", nullptr}, {"G07", "n.global", nullptr}, {"G08", "n.global", nullptr}};
}

std::map<size_t, Record> collect(std::span<const ConformanceCase> cases, const OpenDevice& open,
                                 const AnswerOptions& options = {}) {
  std::map<size_t, Record> answers;
  answers_of(cases, open, options, std::atomic<bool>(false),
             [&](size_t i, Record record) { EXPECT_TRUE(answers.emplace(i, record).second); });
  return answers;
}

TEST(Answers, AProcessAnswersAsTheDeviceDoesHere) {
  const std::vector<ConformanceCase> cases = some_cases();
  const std::map<size_t, Record> answers = collect(cases, open_simulated, {.processes = 2});
  ASSERT_EQ(answers.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(answers.at(i).complete);
    const RecordedProgram recorded{Verdict::kExact, "", answers.at(i)};
    ConformanceCase c = cases[i];
    c.recorded = &recorded;
    EXPECT_EQ(run_case(c, simulated_device, {}, std::atomic<bool>(false)).status,
              Conformance::kEqual);
  }
}

TEST(Answers, WhatNeverEndsIsEndedAndNotComplete) {
  const auto hangs = [](std::string*) -> std::unique_ptr<DeviceApi> {
    for (;;) std::this_thread::sleep_for(milliseconds(100));
  };
  const std::vector<ConformanceCase> cases = some_cases();
  const std::map<size_t, Record> answers = collect(cases, hangs, {.limit = milliseconds(50)});
  ASSERT_EQ(answers.size(), cases.size());
  for (const auto& [i, record] : answers) {
    EXPECT_FALSE(record.complete);
    EXPECT_EQ(record.id, cases[i].id);
  }
}

TEST(Answers, AProcessThatDiesTakesNoOtherWithIt) {
  const auto dies = [](std::string*) -> std::unique_ptr<DeviceApi> { std::_Exit(3); };
  for (const auto& [i, record] : collect(some_cases(), dies)) EXPECT_FALSE(record.complete) << i;
}

TEST(Answers, NothingRunsOnceItIsToStop) {
  answers_of(some_cases(), open_simulated, {}, std::atomic<bool>(true),
             [](size_t, const Record&) { ADD_FAILURE() << "it ran"; });
}

TEST(Answers, ADeviceThatIsMissingSaysWhy) {
  EXPECT_EQ(why_no_device(open_simulated), "");
  EXPECT_EQ(why_no_device([](std::string* why) -> std::unique_ptr<DeviceApi> {
              *why = "it is out of the house";
              return nullptr;
            }),
            "it is out of the house");
}

TEST(Answers, ADifferenceFromTheRecordIsAFinding) {
  const std::vector<ConformanceCase> cases = {{"G08", "n.global", nullptr}};
  Record answer = collect(cases, open_simulated).at(0);
  RecordedProgram recorded{Verdict::kExact, "", answer};
  const ConformanceCase c{"G08", "n.global", &recorded};
  EXPECT_EQ(judge_answer(c, answer).status, Conformance::kEqual);
  ASSERT_TRUE(answer.buffers.contains("A"));
  ++answer.buffers["A"][0];
  ProgramVerdict verdict = judge_answer(c, std::move(answer));
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
  ASSERT_FALSE(verdict.findings.ok());
  EXPECT_EQ(verdict.findings.findings()[0].id, "conformance.record");
  EXPECT_EQ(verdict.findings.findings()[0].case_id, "G08 n.global");
}

TEST(Answers, WhatIsUndefinedIsNotJudged) {
  Record answer;
  answer.id = "G26", answer.variant = "n.global";
  const RecordedProgram recorded{Verdict::kUndefined, "", answer};
  const ProgramVerdict verdict = judge_answer({"G26", "n.global", &recorded}, std::move(answer));
  EXPECT_EQ(verdict.status, Conformance::kSkipped);
  EXPECT_EQ(verdict.why, "CUDA leaves it undefined");
}

}  // namespace
}  // namespace shadowgraph::answers_test
