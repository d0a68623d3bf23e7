// Histories of DeepSeek-V4: nothing is found, and what its lists have in them occurs.
#include <gtest/gtest.h>

#include <set>

#include "fuzz/fuzz.h"
#include "fuzz/history/history.h"

namespace shadowgraph::v4_histories_test {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint64_t kHistories = 60;

/// What a model or a step has.
void add_seen(const History& h, const std::vector<Step>& steps, std::set<std::string>* seen) {
  for (const LayerKind& kind : h.model.layers) {
    const V4Layer& l = *v4_of(kind);
    seen->insert("ratio " + std::to_string(l.ratio));
    if (l.layout == LatentLayout::kV4) seen->insert("packed");
  }
  if (h.model.swa_pool) seen->insert("swa_pool");
  if (h.runtime.radix) seen->insert("radix");
  if (h.runtime.prebuilt) seen->insert("prebuilt");
  for (const Step& step : steps) seen->insert(std::string(name_of(step.mode)));
}

std::set<std::string> seen_in_histories(const char* backend) {
  const Backend* backends[] = {find_backend(backend)};
  std::set<std::string> seen;
  for (uint64_t number = 0; number < kHistories; ++number) {
    Choices choices = history_choices(kSeed, number, backends);
    const History h = generate_history(choices, backends);
    std::vector<Step> steps;
    const HistoryResult result = run_history(h, choices, {}, &steps);
    EXPECT_EQ(result.findings.to_string(), "ok") << backend << " " << number;
    add_seen(h, steps, &seen);
  }
  return seen;
}

TEST(V4Histories, OfPagedPoolsFindNothing) {
  const std::set<std::string> seen = seen_in_histories("deepseek_v4");
  for (const char* what : {"ratio 0", "ratio 2", "ratio 4", "ratio 8", "packed", "swa_pool",
                           "radix", "prebuilt", "extend", "decode", "mixed", "target_verify",
                           "draft_extend", "draft_extend_v2", "draft_decode"})
    EXPECT_TRUE(seen.contains(what)) << what;
}

TEST(V4Histories, OfUnifiedPoolsFindNothingAndShareNoPrefix) {
  const std::set<std::string> seen = seen_in_histories("deepseek_v4_hip");
  EXPECT_FALSE(seen.contains("radix"));
  EXPECT_TRUE(seen.contains("ratio 4") && seen.contains("target_verify") &&
              seen.contains("prebuilt"));
}

TEST(V4Histories, OfTwoHalvesFindNothing) {
  EXPECT_TRUE(seen_in_histories("deepseek_v4_two_batch").contains("decode"));
}

}  // namespace
}  // namespace shadowgraph::v4_histories_test
