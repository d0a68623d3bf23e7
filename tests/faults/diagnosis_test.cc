// What wrong outputs say of a planted fault is what the catalogue says that it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "check/mistakes/mistakes.h"
#include "faults/faults.h"
#include "fuzz/history/fault_hunt.h"

namespace shadowgraph::diagnosis_test {
namespace {

constexpr uint64_t kHistories = 4000;
constexpr int64_t kDiagnosed = 40;  // findings: enough for these

/// A fault, and backends on which it makes outputs wrong: elsewhere it only costs histories.
struct Named {
  const char* fault;
  std::vector<const char*> backends;
};
void PrintTo(const Named& named, std::ostream* out) { *out << named.fault; }

class NamedFault : public ::testing::TestWithParam<Named> {};

TEST_P(NamedFault, IsNamedByItsOutputsAlone) {
  const Fault* fault = find_fault(GetParam().fault);
  ASSERT_NE(fault, nullptr);
  std::vector<const Backend*> backends;
  for (const char* name : GetParam().backends) backends.push_back(find_backend(name));
  const Planted planted({fault});
  const FaultDiagnosis d = diagnose_fault(planted, {.seed = 1,
                                                    .backends = backends,
                                                    .cases = kHistories,
                                                    .threads = 1,
                                                    .diagnosed = kDiagnosed});
  ASSERT_GT(d.failed, 0u);
  ASSERT_FALSE(d.mistakes.empty());
  EXPECT_TRUE(fault->is_seen_as(d.mistakes[0].mistake)) << d.mistakes[0].to_string();
}

// One of each kind: lengths, tables, masks, windows, numbers, merges, rows. K60 is not named on
// flashinfer: there its wrong LSE goes through a second merge, and merge.base explains more.
INSTANTIATE_TEST_SUITE_P(
    Diagnosis, NamedFault,
    ::testing::Values(
        Named{"K01", {"flashattention", "trtllm_mha", "cutedsl_mla", "triton", "flashinfer"}},
        Named{"K01b", {"flashattention", "trtllm_mha", "triton", "flashinfer", "aiter"}},
        Named{"K15", {"flashattention", "trtllm_mha", "trtllm_mla"}},
        Named{"K34", {"triton", "flashinfer"}},
        Named{"K37", {"flashinfer", "flashinfer_two_batch"}},
        Named{"K41", {"flashattention", "flashmla", "triton", "flashinfer"}},
        Named{"K50", {"triton", "flashinfer", "flashinfer_mla", "aiter"}},
        Named{"K55", {"flashattention", "flashinfer", "aiter"}},
        Named{"K60", {"flashmla", "triton"}}, Named{"K73", {"flashattention", "flashinfer"}},
        Named{"K75", {"flashattention", "trtllm_mha", "aiter"}}),
    [](const auto& named) { return std::string(named.param.fault); });

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
}  // namespace shadowgraph::diagnosis_test
