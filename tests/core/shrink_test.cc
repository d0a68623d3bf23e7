#include "core/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/choices.h"
#include "core/laws.h"

namespace shadowgraph::shrink_test {
namespace {

/// A list of up to 20 numbers below 1000, made of choices.
std::vector<uint32_t> numbers(Choices& c) {
  std::vector<uint32_t> v(c.below(21));
  for (uint32_t& x : v) x = c.below(1000);
  return v;
}

ShrinkResult shrink_numbers(uint64_t seed,
                            const std::function<bool(const std::vector<uint32_t>&)>& bad) {
  Rng rng(seed);
  for (;;) {
    Choices random(Rng(rng.next()));
    if (!bad(numbers(random))) continue;
    return shrink(random.made(),
                  [&](std::span<const uint32_t> choices) -> std::optional<MadeCase> {
                    Choices again(choices);
                    if (!bad(numbers(again))) return std::nullopt;
                    return MadeCase{again.made()};
                  },
                  {});
  }
}

TEST(Shrink, OneLargeNumberIsLeftAlone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto bad = [](const std::vector<uint32_t>& v) {
      return std::ranges::any_of(v, [](uint32_t x) { return x >= 500; });
    };
    EXPECT_EQ(shrink_numbers(seed, bad).choices, (ChoiceSequence{1, 500})) << "seed " << seed;
  }
}

TEST(Shrink, NothingIsLeftThatIsNotNeeded) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto bad = [](const std::vector<uint32_t>& v) {
      return std::accumulate(v.begin(), v.end(), 0u) >= 1500;
    };
    const ChoiceSequence c = shrink_numbers(seed, bad).choices;
    ASSERT_FALSE(c.empty()) << "seed " << seed;
    EXPECT_EQ(c.size(), c[0] + 1u) << "seed " << seed;
    EXPECT_EQ(std::accumulate(c.begin() + 1, c.end(), 0u), 1500u) << "seed " << seed;
  }
}

TEST(Shrink, WhatFailsAnywayShrinksToNothing) {
  const auto always = [](const std::vector<uint32_t>&) { return true; };
  EXPECT_TRUE(shrink_numbers(1, always).choices.empty());
}

std::optional<MadeCase> anything(std::span<const uint32_t> c) {
  return MadeCase{ChoiceSequence(c.begin(), c.end())};
}

TEST(Shrink, EndsWithItsBudgetAndSaysSo) {
  const ShrinkResult tried = shrink(ChoiceSequence(100, 9), anything, {.tries = 1});
  EXPECT_EQ(tried.tries, 1);
  ChoiceSequence first_is_zero(100, 9);
  first_is_zero[0] = 0;
  EXPECT_EQ(tried.choices, first_is_zero);
  EXPECT_EQ(tried.ended, ", not the smallest: shrinking ended after 1 tries");
  const ShrinkResult late = shrink(ChoiceSequence(100, 9), anything, {.seconds = 0});
  EXPECT_EQ(late.tries, 0);
  EXPECT_EQ(late.choices, ChoiceSequence(100, 9));
  EXPECT_EQ(late.ended, ", not the smallest: shrinking ended after 0 s");
  EXPECT_EQ(shrink(ChoiceSequence(100, 9), anything, {}).ended, "");
}

TEST(Shrink, AFindingHasAThirdOfItsRunAtMost) {
  const ShrinkBudget budget{.seconds = 20};
  EXPECT_EQ(budget.in_run_of(0).seconds, 20);
  EXPECT_EQ(budget.in_run_of(30).seconds, 10);
  EXPECT_EQ(budget.in_run_of(600).seconds, 20);
}

/// Lists of three numbers, as long as the first is not 0; it fails with a list of which the last is
/// 7, if the numbers behind are whole lists.
std::optional<MadeCase> lists(std::span<const uint32_t> given) {
  Choices c(given);
  MadeCase made;
  bool bad = false;
  for (;;) {
    made.parts.push_back(c.made().size());
    if (c.below(10) == 0) break;
    const uint32_t second = c.below(10), third = c.below(10);
    if (second == 0) return std::nullopt;  // no case
    bad |= third == 7;
  }
  made.choices = c.made();
  return bad ? std::optional(made) : std::nullopt;
}

TEST(Shrink, DropsPartsAsAWhole) {
  ChoiceSequence many;
  for (uint32_t i = 0; i < 64; ++i) many.insert(many.end(), {9, 1 + i % 9, i == 40 ? 7u : i % 7});
  const ShrinkResult r = shrink(many, lists, {});
  EXPECT_EQ(r.choices, (ChoiceSequence{1, 1, 7}));
  EXPECT_EQ(r.ended, "");
}

/// Whatever is left, none of it can be left out, and no choice can be lower by one.
TEST(Shrink, WhatIsLeftNeedsEachChoice) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    const uint32_t wanted = 40 + rng.below(60);
    // A few choices matter, wherever they stand: their sum with weights by the place's parity.
    const auto fails = [&](std::span<const uint32_t> c) -> std::optional<MadeCase> {
      uint32_t sum = 0;
      for (size_t i = 0; i < c.size(); ++i) sum += c[i] * (i % 2 == 0 ? 1 : 3);
      if (sum < wanted || sum % 3 == 1) return std::nullopt;
      return MadeCase{ChoiceSequence(c.begin(), c.end())};
    };
    ChoiceSequence many(130);
    for (uint32_t& c : many) c = rng.below(9);
    if (!fails(many)) continue;
    const ChoiceSequence left = shrink(many, fails, {}).choices;
    for (size_t i = 0; i < left.size(); ++i) {
      ChoiceSequence less = left;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_FALSE(fails(less)) << "seed " << seed << ", without choice " << i;
      if (left[i] == 0) continue;
      less = left, less[i] = 0;
      EXPECT_FALSE(fails(less)) << "seed " << seed << ", choice " << i << " 0";
    }
  }
}

TEST(Shrink, TheWholeCasesDiagnosisStands) {
  const auto found = [](const char* mistake) {
    Finding f = make_finding("num.bound", at("out"), "1", "2");
    if (*mistake != 0) f.diagnosis.emplace_back().mistake = mistake;
    Status status;
    status.add(std::move(f));
    return status;
  };
  const auto named = [](const Status& status) {
    const Finding& f = status.findings()[0];
    return f.diagnosis.empty() ? "" : f.diagnosis[0].mistake;
  };
  Status small = found("extent.none");
  keep_diagnosis(found(""), &small);
  EXPECT_EQ(named(small), "extent.none");
  keep_diagnosis(found("lse.base"), &small);
  EXPECT_EQ(named(small), "lse.base");
  Status other = found("");
  keep_diagnosis(found("lse.base"), &other);
  EXPECT_EQ(named(other), "");
}

}  // namespace
}  // namespace shadowgraph::shrink_test
