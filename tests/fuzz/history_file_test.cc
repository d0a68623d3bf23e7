// A case file is the same history again, and hostile ones are refused.
#include "fuzz/file/history_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "faults/faults.h"
#include "fuzz/fuzz.h"
#include "fuzz/history/buffer_log.h"

namespace shadowgraph::history_file_test {
namespace {

HistoryCase case_number(uint64_t number, const MakeTap& tap = {},
                        std::span<const Backend* const> backends = all_backends()) {
  Choices choices = history_choices(1, number, backends);
  const History h = generate_history(choices, backends);
  (void)run_history(h, choices, tap);
  return case_of(choices.made(), backends, tap);
}

/// A file of this test's own.
class CaseFile : public ::testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  Status read(const std::string& text, HistoryCase* x) {
    std::ofstream(path_, std::ios::binary) << text;
    return read_case(path_, x);
  }

  const std::string path_ = ::testing::TempDir() + "case_file_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".json";
};

TEST_F(CaseFile, GivesBackEveryNumber) {
  for (uint64_t number = 0; number < 60; ++number) {
    const HistoryCase x = case_number(number);
    HistoryCase y;
    ASSERT_EQ(read(to_json(x), &y).to_string(), "ok") << number;
    EXPECT_EQ(to_json(y), to_json(x));
  }
}

TEST_F(CaseFile, RunsAsTheHistoryDid) {
  int64_t steps = 0;
  for (uint64_t number = 0; number < 40; ++number) {
    const HistoryCase x = case_number(number);
    EXPECT_EQ(run_case(x, nullptr, [&](size_t, const Status&) { ++steps; }).to_string(), "ok");
  }
  EXPECT_GT(steps, 200);
}

TEST_F(CaseFile, ShowsTheFindingOfItsFaultAgain) {
  const Planted planted({find_fault("K31")});
  const Backend* const acts_on[] = {find_backend("flashattention")};
  int found = 0;
  for (uint64_t number = 0; number < 2000 && found < 3; ++number) {
    const HistoryCase made = case_number(number, planted.tap(), acts_on);
    if (made.law.empty()) continue;
    ++found;
    HistoryCase x;
    ASSERT_TRUE(read(to_json(made), &x).ok());
    const std::unique_ptr<Tap> tap = planted.tap()();
    const Status again = run_case(x, tap.get());
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.findings()[0].id, made.law);
    EXPECT_EQ(again.findings()[0].to_string(), made.got);
    EXPECT_EQ(run_case(x, nullptr).to_string(), "ok");
  }
  EXPECT_EQ(found, 3);
}

TEST_F(CaseFile, IsRefusedWithEveryReasonAtOnce) {
  const std::string text = to_json(case_number(3));
  HistoryCase x;
  const std::pair<std::string, std::string> slips[] = {
      {"\"schema\": \"shadowgraph.case/1\"", "\"schema\": \"other/1\""},
      {"\"page_size\": ", "\"page_size\": 3"},
      {"\"max_tokens\": ", "\"max_tokens\": \"many\", \"more\": "},
      {"\"causal\": true", "\"causal\": 1"},
      {"\"req_to_token\": [", "\"req_to_token\": [99999999, "},
      {"\"seq_lens\": [", "\"seq_lens\": [-5, "},
      {"\"mode\": \"", "\"mode\": \"un"},
      {"\"backend\": \"", "\"backend\": \"no"}};
  for (const auto& [from, to] : slips) {
    std::string bad = text;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    EXPECT_FALSE(read(bad, &x).ok()) << to;
  }
  EXPECT_EQ(x.history.backend, nullptr);
  std::string two = text;
  two.replace(two.find("\"slots\": "), 9, "\"slots\": null, \"slotts\": ");
  two.replace(two.find("\"backend\": \""), 12, "\"backend\": \"no");
  const Status status = read(two, &x);
  EXPECT_GE(status.findings().size(), 2u);
}

/// A fuzzer learns nothing from a seed that is refused.
TEST_F(CaseFile, SeedsAreRead) {
  int seeds = 0;
  for (const auto& file : std::filesystem::directory_iterator(SHADOWGRAPH_FUZZ_CORPUS "/cases")) {
    HistoryCase x;
    EXPECT_EQ(read_case(file.path().string(), &x).to_string(), "ok") << file.path();
    ++seeds;
  }
  EXPECT_GT(seeds, 0);
}

TEST_F(CaseFile, CutAnywhereIsRefused) {
  const std::string text = to_json(case_number(1));
  HistoryCase x;
  for (size_t size = 0; size + 2 < text.size(); size += 1 + text.size() / 200)
    EXPECT_FALSE(read(text.substr(0, size), &x).ok()) << size;
}

TEST_F(CaseFile, ItsLogHasWhatFillChanged) {
  BufferLog log;
  std::vector<StepLog> steps;
  for (uint64_t number = 0; steps.empty() && number < 20; ++number) {
    ASSERT_TRUE(run_case(case_number(number), &log).ok());
    steps = log.take();
  }
  ASSERT_FALSE(steps.empty());
  int filled = 0;
  for (const StepLog& step : steps) {
    for (const BufferStates& b : step.buffers) {
      filled += b.filled != b.before && !b.filled.empty();
      EXPECT_EQ(b.after.size(), b.before.size());
    }
  }
  EXPECT_GT(filled, 0);
  EXPECT_TRUE(log.take().empty());
}

}  // namespace
}  // namespace shadowgraph::history_file_test
