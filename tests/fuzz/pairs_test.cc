// Random cases meet every pair of levels early: of the draws by construction, of modes and phases
// as far as a run reaches them; and what acts only where rare features meet is found soon.
#include "fuzz/pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "faults/launches.h"
#include "fuzz/call/call_sizes.h"
#include "fuzz/call/generate.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::pairs_test {
namespace {

std::vector<std::string> unmet(const Covering& covering, const PairSet& met) {
  std::vector<std::string> texts;
  for (size_t pair = 0; pair < met.size(); ++pair)
    if (!met[pair]) texts.push_back(covering.text_of(pair));
  return texts;
}

TEST(Pairs, TheRowsOfEveryBackendMeetAll) {
  for (const Backend* backend : all_backends()) {
    const Covering& covering = *covering_of(*backend);
    EXPECT_GT(covering.pairs(), 500u) << backend->info().name;
    for (uint64_t seed = 1; seed < 4; ++seed) {
      PairSet met(covering.pairs());
      const uint64_t all = covering.rows() * kLargeEvery / (kLargeEvery - 1) + 1;
      for (uint64_t number = 0; number < all; ++number) {
        Choices choices = history_choices(seed, number, {&backend, 1});
        covering.add(levels_of(generate_history(choices, {&backend, 1}), choices), &met);
      }
      EXPECT_EQ(unmet(covering, met), std::vector<std::string>{}) << backend->info().name;
    }
  }
}

/// Terms of scores need a call that is small, and sizes have no names: a few pairs come later.
TEST(Pairs, TheRowsOfEveryKindOfCallMeetNearlyAllAndItsCasesAll) {
  std::map<size_t, PairSet> of_rows, met;
  std::map<size_t, size_t> visits;
  for (uint64_t number = 0; number < 24000; ++number) {
    Choices choices = case_choices(5, number);
    const size_t kind = call_kind_of(generate(choices));
    const Covering& covering = covering_of_call(kind);
    of_rows[kind].resize(covering.pairs()), met[kind].resize(covering.pairs());
    const size_t rows = covering.rows() * kLargeCallEvery / (kLargeCallEvery - 1) + 1;
    if (visits[kind]++ < rows) covering.add(choices.levels(), &of_rows[kind]);
    covering.add(choices.levels(), &met[kind]);
  }
  ASSERT_EQ(met.size(), num_call_kinds());
  for (const auto& [kind, pairs] : met) {
    EXPECT_GT(pairs.size(), 0u) << name_of_call_kind(kind);
    EXPECT_LE(100 * std::ranges::count(of_rows[kind], false), static_cast<int64_t>(pairs.size()))
        << name_of_call_kind(kind);
    EXPECT_EQ(unmet(covering_of_call(kind), pairs), std::vector<std::string>{})
        << name_of_call_kind(kind);
  }
}

TEST(Pairs, WhatAGeneratorNeverDrawsTogetherIsNone) {
  const Covering& covering = *covering_of(*find_backend("flashattention"));
  std::set<std::string> texts;
  for (size_t pair = 0; pair < covering.pairs(); ++pair) texts.insert(covering.text_of(pair));
  const auto has = [&](const std::string& a, const std::string& b) {
    return texts.contains(a + " x " + b) || texts.contains(b + " x " + a);
  };
  EXPECT_TRUE(has("local yes", "extra swa_pool"));
  EXPECT_TRUE(has("local yes", "page_size 4"));
  EXPECT_TRUE(has("speculates yes", "runs target_verify replay"));
  EXPECT_FALSE(has("speculates yes", "extra encoder"));
  EXPECT_FALSE(has("speculates yes", "runs decode eager"));
  EXPECT_FALSE(has("prebuilt yes", "runs extend eager"));
}

TEST(Pairs, EveryRoundHasEachBackendThreeTimesOrFour) {
  const Backend* backends[] = {find_backend("flashattention"), find_backend("kda"),
                               find_backend("flashmla")};
  std::set<std::string> orders;
  for (uint64_t round = 0; round < 12; ++round) {
    std::map<std::string_view, int> histories;
    std::string order;
    for (uint64_t at = 0; at < 10; ++at) {
      Choices choices = history_choices(9, round * 10 + at, backends);
      const std::string_view name = generate_history(choices, backends).backend->info().name;
      ++histories[name];
      order += std::string(name) + " ";
    }
    EXPECT_EQ(histories, (std::map<std::string_view, int>{
                             {"flashattention", 4}, {"flashmla", 3}, {"kda", 3}}));
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 3u);
}

TEST(Pairs, HistoriesRunInTheModesAndPhasesThatTheyMayHave) {
  FuzzOptions options;
  options.seed = 3, options.kernels = false;
  const Backend* backend = find_backend("cutlass_mla");
  options.histories.backends = {backend};
  const Covering& covering = *covering_of(*backend);
  options.cases = 4 * covering.rows();
  const FuzzResult result = run_fuzz(options, {}, false);
  EXPECT_EQ(result.findings.to_string(), "ok");
  EXPECT_EQ(unmet(covering, result.pairs.at("histories cutlass_mla")), std::vector<std::string>{});
}

TEST(Pairs, AKindWithoutACaseHasNone) {
  FuzzOptions options;
  options.cases = 1;
  options.histories.backends = {find_backend("triton"), find_backend("kda")};
  const PairCounts pairs = run_fuzz(options, {}, false).pairs;
  EXPECT_EQ(pairs.size(), 2 + num_call_kinds());
  int with_cases = 0;
  for (const auto& [kind, met] : pairs) {
    EXPECT_NE(covering_of_kind(kind), nullptr) << kind;
    with_cases += !met.empty();
  }
  EXPECT_EQ(with_cases, 1);
  EXPECT_EQ(covering_of_kind("histories nobody"), nullptr);
}

/// The last launch is missing where rare features meet, and nowhere else.
template <class Meets>
struct MissingLaunch final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override {
    if (all.empty() || !Meets()(meta.limits, all, capturing)) return;
    all.pop_back();
    act();
  }
};

bool has_local(const ModelConfig& m) { return std::ranges::any_of(m.layers, &LayerKind::local); }
bool has_cap(const ModelConfig& m) {
  return std::ranges::any_of(m.layers,
                             [](const LayerKind& k) { return k.params.logits_soft_cap > 0; });
}
bool reads_fp8(std::vector<TappedLaunch> all) {
  return std::ranges::any_of(all, [](TappedLaunch& one) {
    return change_attention(&one.launch, [](auto& c) {
      if constexpr (requires { c.cache.k.dtype; }) return size_of(c.cache.k.dtype) == 1;
      return false;
    });
  });
}

struct LocalInWindowPoolsPages {
  bool operator()(const Limits& l, const std::vector<TappedLaunch>&, bool) const {
    return l.model.swa_pool && has_local(l.model) && l.model.page_size == 4;
  }
};
struct Fp8OnRanks {
  bool operator()(const Limits& l, const std::vector<TappedLaunch>& all, bool) const {
    return l.model.dcp_size > 1 && reads_fp8(all);
  }
};
struct TablesOfWindowPoolsInGraphs {
  bool operator()(const Limits& l, const std::vector<TappedLaunch>&, bool capturing) const {
    return capturing && l.model.in_graph_tables && l.model.swa_pool;
  }
};
struct CappedPrefixChunks {
  bool operator()(const Limits& l, const std::vector<TappedLaunch>&, bool) const {
    return l.model.prefix_chunk_tokens > 0 && l.model.prefix_chunk_tokens < 20 && has_cap(l.model);
  }
};
struct WideTreesInLargePages {
  bool operator()(const Limits& l, const std::vector<TappedLaunch>&, bool capturing) const {
    return capturing && l.model.topk == 3 && l.model.num_steps == 5 && l.model.page_size >= 16;
  }
};

/// One thread has run so many cases after some 20 seconds.
constexpr uint64_t kSoon = 3000;

template <class Meets>
void expect_found_soon() {
  FuzzOptions options;
  options.cases = kSoon, options.threads = 2, options.max_findings = 1;
  const auto all = all_backends();
  options.histories.backends.assign(all.begin(), all.end());
  options.histories.shrink.tries = 0;
  options.histories.tap = tap_of<MissingLaunch<Meets>>();
  const FuzzResult result = run_fuzz(options, {}, false);
  ASSERT_TRUE(result.first);
  ::testing::Test::RecordProperty("case", std::to_string(result.first->number));
}

TEST(RarePairs, LocalLayersInPagesOfFourOfAWindowPool) {
  expect_found_soon<LocalInWindowPoolsPages>();
}
TEST(RarePairs, Fp8OnRanksOfContextParallelism) { expect_found_soon<Fp8OnRanks>(); }
TEST(RarePairs, TablesOfAWindowPoolThatGraphsMake) {
  expect_found_soon<TablesOfWindowPoolsInGraphs>();
}
TEST(RarePairs, PrefixChunksUnderASoftCap) { expect_found_soon<CappedPrefixChunks>(); }
TEST(RarePairs, WideTreesInGraphsWithLargePages) { expect_found_soon<WideTreesInLargePages>(); }

}  // namespace
}  // namespace shadowgraph::pairs_test
