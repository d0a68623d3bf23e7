// Random cases have every feature, and every law of theirs is judged: what a report names as not
// looked at was not drawn, and not out of reach.
#include "fuzz/features.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/laws.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::features_test {
namespace {

FuzzResult fuzz(const FuzzOptions& options) {
  const std::atomic<bool> stop{false};
  FuzzResult result = run_fuzz(options, nullptr, stop);
  EXPECT_EQ(result.findings.to_string(), "ok");
  return result;
}

FuzzOptions histories_of(std::vector<const Backend*> backends) {
  FuzzOptions options;
  options.seed = 44, options.kernels = false;
  options.histories.backends = std::move(backends);
  return options;
}

void expect_all(const FeatureCounts& features) {
  EXPECT_FALSE(features.empty());
  for (const auto& [name, cases] : features) EXPECT_GT(cases, 0) << name;
}

/// Laws.inc says which runs judge a law, and that is what they do.
void expect_judged(const LawCounts& laws, std::string_view run) {
  for (size_t i = 0; i < std::size(kLaws); ++i)
    EXPECT_EQ(laws.all()[i] > 0, is_judged_in(kLaws[i], run)) << kLaws[i].id;
}

TEST(Features, HistoriesHaveEachAndJudgeEachOfTheirLaws) {
  FuzzOptions options = histories_of({all_backends().begin(), all_backends().end()});
  options.cases = 1200;
  const FuzzResult result = fuzz(options);
  expect_all(result.features);
  expect_judged(result.laws, "histories");
}

TEST(Features, CallsHaveEachAndJudgeEachOfTheirLaws) {
  FuzzOptions options;
  options.seed = 45, options.cases = 4000;
  const FuzzResult result = fuzz(options);
  expect_all(result.features);
  expect_judged(result.laws, "calls");
}

/// A parameter of calls, and the feature of histories that has it; or why none has.
struct ParameterOfBoth {
  std::string_view calls, histories, why;
};
constexpr std::string_view kNotHanded = "no engine of a twin hands it to its kernels";
constexpr ParameterOfBoth kParameters[] = {
    {"causal", "max_encoder_len", ""},
    {"window_left", "window_left", ""},
    {"window_right", "", "the engines have windows on the left only"},
    {"logits_soft_cap", "logits_soft_cap", ""},
    {"sinks", "sinks", ""},
    {"alibi", "", kNotHanded},
    {"bias", "", kNotHanded},
    {"temperature", "", "a term of one model, which no launch of a twin has"},
    {"attention_chunk", "local", ""},
    {"request_causal", "", kNotHanded},
    {"cache_leftpad", "", kNotHanded},
    {"bidirectional", "", kNotHanded},
    {"mask_of_heads", "", kNotHanded},
    {"head_scales", "", "the engines have one scale of K and one of V a layer"},
    {"padded_rows", "", "every replay of a bucket that is not full"},
    {"row_scales", "", kNotHanded},
    {"custom_mask", "topk", ""},
    {"layout", "", "the pools of the engines lie one way, which is the twins'"},
    {"kv_indptr", "", "every step of a backend that reads lists"},
    {"store_kv", "", "every step"},
    {"i8", "", kNotHanded},
    {"fp8", "fp8", ""},
};

/// Histories draw every parameter that single calls draw.
TEST(Features, HistoriesHaveEveryParameterThatCallsHave) {
  const FeatureCounts all = all_features(all_backends(), true);
  for (const auto& [name, cases] : all) {
    if (!name.starts_with("calls ")) continue;
    const std::string own = name.substr(6), word = own.substr(0, own.find(' '));
    constexpr std::string_view kOfNoLayer[] = {"kernel",  "call", "data", "state",
                                               "threads", "far",  "nan",  "size"};
    if (std::ranges::find(kOfNoLayer, word) != std::end(kOfNoLayer)) continue;
    const auto* const p = std::ranges::find(kParameters, word, &ParameterOfBoth::calls);
    ASSERT_NE(p, std::end(kParameters)) << name;
    EXPECT_NE(p->histories.empty(), p->why.empty()) << name;
    EXPECT_TRUE(p->histories.empty() || all.contains("histories " + std::string(p->histories)))
        << name;
  }
}

TEST(Features, AreThoseThatSomeBackendServes) {
  const Backend* triton = find_backend("triton");
  const FeatureCounts served = all_features(std::vector{triton}, false);
  EXPECT_TRUE(served.contains("histories topk"));
  EXPECT_FALSE(served.contains("histories dcp_size"));
  EXPECT_FALSE(served.contains("calls sinks"));
  EXPECT_TRUE(all_features({}, true).contains("calls sinks"));
  for (const auto& [name, cases] : all_features(std::vector{triton}, true))
    EXPECT_EQ(cases, 0) << name;
}

/// `list features` and `explain` know what reports name.
TEST(Features, EachIsDescribedOnce) {
  FeatureCounts all = all_features(all_backends(), true);
  for (const FuzzFeature& f : describe_features()) {
    EXPECT_EQ(all.erase(f.name), 1u) << f.name;
    EXPECT_FALSE(f.what.empty()) << f.name;
    EXPECT_EQ(f.backends.empty(), f.name.starts_with("calls ")) << f.name;
  }
  EXPECT_TRUE(all.empty()) << all.begin()->first;
}

TEST(Features, ARunOfOneBackendSaysWhichLawsItCouldNotJudge) {
  FuzzOptions options = histories_of({find_backend("triton")});
  options.cases = 60;
  const FuzzResult result = fuzz(options);
  EXPECT_EQ(result.laws.of("sparse.choice"), 0);
  EXPECT_GT(result.laws.of("len.kv_extent"), 0);
  EXPECT_GT(result.laws.of("mem.not_uploaded"), 0);
  EXPECT_GT(result.features.at("histories page_size"), 0);
}

TEST(Features, ShrinkingAFailureIsNotCounted) {
  FuzzOptions options = histories_of({find_backend("flashattention")});
  options.cases = 30, options.histories.shrink.tries = 20;
  const FuzzResult clean = fuzz(options);
  const Planted planted(std::vector<const Fault*>{find_fault("K01")});
  options.histories.tap = planted.tap();
  const std::atomic<bool> stop{false};
  const FuzzResult result = run_fuzz(options, nullptr, stop);
  ASSERT_GT(result.failures.size(), 0u);
  EXPECT_LE(result.laws.of("step.request"), clean.laws.of("step.request"));
}

}  // namespace
}  // namespace shadowgraph::features_test
