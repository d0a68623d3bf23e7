// Faults reach the metadata of children, and every pair of a fault and a backend says what came of
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/history/fault_matrix.h"

namespace shadowgraph::matrix_test {
namespace {

std::vector<MatrixPair> matrix(const std::vector<std::string_view>& ids,
                               const std::vector<std::string_view>& names, uint64_t cases,
                               double seconds = 20) {
  std::vector<const Fault*> faults;
  std::vector<const Backend*> backends;
  for (const std::string_view id : ids) faults.push_back(find_fault(id));
  for (const std::string_view name : names) backends.push_back(find_backend(name));
  return run_fault_matrix(faults, backends, {.cases = cases, .seconds = seconds, .threads = 1},
                          [](size_t, size_t) {});
}

struct Reached {
  std::string_view fault;
  std::vector<std::string_view> backends;
};

class FaultOfChildren : public ::testing::TestWithParam<Reached> {};

TEST_P(FaultOfChildren, IsFound) {
  for (const MatrixPair& pair : matrix({GetParam().fault}, GetParam().backends, 600)) {
    EXPECT_EQ(pair.verdict, PlantVerdict::kFound)
        << pair.fault->id << " on " << pair.backend->info().name << ": " << pair.why << ", acted "
        << pair.acted << " of " << pair.cases;
    EXPECT_FALSE(pair.law.empty());
    EXPECT_FALSE(pair.choices.empty());
    EXPECT_EQ(pair.why, "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultOfChildren,
    ::testing::Values(
        Reached{"K04", {"flashattention", "flashattention_multi_step", "flashattention_two_batch"}},
        Reached{"K11", {"flashattention_two_batch", "triton_two_batch", "ascend_two_batch"}},
        Reached{"K11a",
                {"ascend_gdn", "ascend_multi_step", "ascend_two_batch", "ascend_ascend_gdn"}},
        Reached{"K11b",
                {"ascend_gdn", "ascend_multi_step", "ascend_two_batch", "ascend_ascend_gdn"}},
        Reached{"K13", {"flashmla", "deepseek_v4", "flashmla_multi_step", "deepseek_v4_two_batch"}},
        Reached{"K14",
                {"flashmla", "flashmla_multi_step", "flashinfer_two_batch", "triton_multi_step"}},
        Reached{"K25",
                {"flashmla", "flashmla_multi_step", "trtllm_mha_two_batch", "flashattention_gdn"}},
        Reached{"K34", {"triton_multi_step", "flashinfer_two_batch", "triton_kda"}},
        Reached{"K43",
                {"flashattention_multi_step", "flashinfer_two_batch", "flashattention_two_batch"}}),
    [](const auto& reached) { return std::string(reached.param.fault); });

TEST(FaultMatrix, HasAPairForEachFaultAndBackendFaultByFault) {
  const std::vector<MatrixPair> pairs = matrix({"K31", "K01"}, {"gdn", "trtllm_mha"}, 20, 0.1);
  ASSERT_EQ(pairs.size(), 4u);
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(pairs[i].fault->id, i < 2 ? "K31" : "K01");
    EXPECT_EQ(pairs[i].backend->info().name, i % 2 == 0 ? "gdn" : "trtllm_mha");
  }
  EXPECT_EQ(pairs[3].verdict, PlantVerdict::kFound);
  EXPECT_LE(pairs[3].cases, 20u);
}

TEST(FaultMatrix, SaysWhatABackendLacksThatAFaultActsOn) {
  const std::vector<MatrixPair> pairs = matrix({"K11a"}, {"ascend", "trtllm_mha"}, 25, 0.1);
  EXPECT_EQ(pairs[0].verdict, PlantVerdict::kFound);
  EXPECT_EQ(pairs[1].verdict, PlantVerdict::kNeverActed);
  EXPECT_EQ(pairs[1].cases, 25u);
  EXPECT_EQ(pairs[1].acted, 0u);
  EXPECT_TRUE(pairs[1].choices.empty());
  EXPECT_EQ(pairs[1].why, "no buffer actual_seq_lengths");
  const std::vector<MatrixPair> alone = matrix({"K11a"}, {"trtllm_mha"}, 10, 0.1);
  EXPECT_EQ(alone[0].why, "it acted on none of these backends");
}

TEST(FaultMatrix, AFaultThatIsRareOnABackendHasMoreHistoriesLikeThoseOfOthers) {
  const std::vector<MatrixPair> pairs =
      matrix({"K26"}, {"flashattention", "ascend_two_batch"}, 5, 5);
  EXPECT_LE(pairs[0].cases, 5u);
  EXPECT_GT(pairs[1].cases, 5u);
  for (const MatrixPair& pair : pairs) EXPECT_EQ(pair.verdict, PlantVerdict::kFound) << pair.why;
}

TEST(FaultMatrix, SaysWhatMetadataLacksThatAFaultChangesWhenItIsBound) {
  const std::vector<MatrixPair> pairs =
      matrix({"K90", "K71"}, {"triton_multi_step", "triton"}, 60, 0.1);
  EXPECT_EQ(pairs[0].verdict, PlantVerdict::kFound);
  EXPECT_EQ(pairs[1].why, "no metadata of parts");
  EXPECT_EQ(pairs[2].why, "no buffer depths");
  EXPECT_EQ(pairs[3].verdict, PlantVerdict::kFound);
}

TEST(FaultMatrix, SaysThatNothingThatIsReadChanged) {
  const std::vector<MatrixPair> pairs = matrix({"K11"}, {"dsa"}, 60, 0.1);
  EXPECT_EQ(pairs[0].verdict, PlantVerdict::kInert);
  EXPECT_GT(pairs[0].acted, 0u);
  EXPECT_EQ(pairs[0].why, "nothing that anything reads is changed");
}

}  // namespace
}  // namespace shadowgraph::matrix_test
