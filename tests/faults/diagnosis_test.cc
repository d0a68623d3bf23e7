// What wrong outputs say of a planted fault is what the catalogue says that it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "check/mistakes/mistakes.h"
#include "faults/faults.h"
#include "fuzz/history/fault_hunt.h"

namespace shadowgraph {
namespace {

constexpr uint64_t kHistories = 4000;
constexpr int64_t kDiagnosed = 80;  // enough for these, and half the time

class NamedFault : public ::testing::TestWithParam<const char*> {};

TEST_P(NamedFault, IsNamedByItsOutputsAlone) {
  const Fault* fault = find_fault(GetParam());
  ASSERT_NE(fault, nullptr);
  const Planted planted({fault});
  const FaultDiagnosis d = diagnose_fault(
      planted, {.seed = 1, .cases = kHistories, .threads = 1, .diagnosed = kDiagnosed});
  ASSERT_GT(d.failed, 0u);
  ASSERT_FALSE(d.mistakes.empty());
  EXPECT_TRUE(fault->is_seen_as(d.mistakes[0].mistake)) << d.mistakes[0].to_string();
}

// One of each kind: lengths, tables, masks, windows, numbers, merges, rows.
INSTANTIATE_TEST_SUITE_P(Diagnosis, NamedFault,
                         ::testing::Values("K01", "K01b", "K15", "K34", "K37", "K41", "K50", "K55",
                                           "K60", "K73", "K75"),
                         [](const auto& fault) { return std::string(fault.param); });

TEST(Diagnosis, AFaultOfTheStepItselfMakesNoOutputWrong) {
  const Planted planted({find_fault("K78")});
  const FaultDiagnosis d = diagnose_fault(planted, {.seed = 1, .cases = 300, .threads = 1});
  EXPECT_EQ(d.failed, 0u);
  EXPECT_GT(planted.acted(0), 0);
}

TEST(Diagnosis, FaultsAreKnownByMistakesOfTheList) {
  for (const Fault& fault : all_faults()) {
    std::string_view words = fault.mistakes;
    while (!words.empty()) {
      const std::string_view word = words.substr(0, words.find(' '));
      EXPECT_TRUE(
          std::ranges::any_of(all_mistakes(), [&](const Mistake& m) { return m.id == word; }))
          << fault.id << ": " << word;
      EXPECT_TRUE(fault.is_seen_as(word));
      words.remove_prefix(std::min(words.size(), word.size() + 1));
    }
    EXPECT_FALSE(fault.is_seen_as("window"));
  }
}

}  // namespace
}  // namespace shadowgraph
