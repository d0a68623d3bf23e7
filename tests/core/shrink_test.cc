#include "core/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/choices.h"

namespace shadowgraph {
namespace {

bool never() { return false; }

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
    return shrink(
        random.made(),
        [&](std::span<const uint32_t> choices) {
          Choices again(choices);
          return bad(numbers(again)) ? std::optional(again.made()) : std::nullopt;
        },
        never);
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

TEST(Shrink, GivesUpWhenTold) {
  int64_t calls = 0;
  const ShrinkResult r = shrink(
      ChoiceSequence(100, 9),
      [&](std::span<const uint32_t> c) {
        ++calls;
        return std::optional(ChoiceSequence(c.begin(), c.end()));
      },
      [&] { return calls >= 1; });
  EXPECT_EQ(r.tries, 1);
  EXPECT_EQ(r.choices, ChoiceSequence(50, 9));
}

}  // namespace
}  // namespace shadowgraph
