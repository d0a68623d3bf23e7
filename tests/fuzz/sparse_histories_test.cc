// Histories of sparse layers: queries see more keys than they choose, in every mode, and in several
// pages; eager steps and replays agree.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "fuzz/fuzz.h"
#include "fuzz/history/history.h"

namespace shadowgraph::sparse_histories_test {
namespace {

constexpr uint64_t kSeed = 5;

TEST(SparseHistories, ChooseFewOfManyKeysInEveryMode) {
  const Backend* backends[] = {find_backend("dsa"), find_backend("dsa_two_batch")};
  std::map<std::string, int64_t> coverage;
  int64_t tokens = 0, choosing = 0, in_pages = 0;
  std::set<LatentLayout> layouts;
  std::set<bool> ragged;
  for (uint64_t number = 0; number < 60; ++number) {
    Choices choices = history_choices(kSeed, number, backends);
    const History h = generate_history(choices, backends);
    const SparseLayer& layer = *sparse_of(h.model.layers[0]);
    layouts.insert(layer.latents);
    ragged.insert(layer.ragged_prefill);
    std::vector<Step> steps;
    const HistoryResult result = run_history(h, choices, {}, &steps);
    EXPECT_EQ(result.findings.to_string(), "ok") << number << " " << h.to_string();
    for (const auto& [name, count] : result.coverage) coverage[name] += count;
    for (const Step& step : steps) {
      const ForwardBatch batch = step.batch();
      for (int64_t i = 0; i < batch.size(); ++i) {
        const RequestExtent e = batch.extent(i);
        tokens += e.q_len;
        choosing += e.kv_len > layer.topk ? e.q_len : 0;
        in_pages += e.kv_len > h.model.page_size ? e.q_len : 0;
      }
    }
  }
  EXPECT_GT(choosing, tokens / 2);
  EXPECT_GT(in_pages, tokens / 10);
  EXPECT_EQ(layouts.size(), 2U);
  EXPECT_EQ(ragged.size(), 2U);
  for (const char* mode : {"extend eager", "decode eager", "decode replay", "target_verify replay",
                           "draft_decode replay"})
    EXPECT_GT(coverage["dsa " + std::string(mode)], 5) << mode;
  EXPECT_GT(coverage["dsa draft_extend_v2 eager"], 5);
  EXPECT_GT(coverage["dsa_two_batch decode replay"], 5);
}

}  // namespace
}  // namespace shadowgraph::sparse_histories_test
