#include "core/choices.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace shadowgraph::choices_test {
namespace {

/// A small "case": what it is depends on every choice before.
std::vector<int> some_case(Choices& c) {
  std::vector<int> made;
  const int n = c.between(1, 9);
  for (int i = 0; i < n; ++i) made.push_back(c.one_in(3) ? c.of({10, 20, 30}) : c.between(-5, 5));
  return made;
}

TEST(Choices, RecordedChoicesGiveTheSameCase) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Choices first{Rng(seed)};
    const auto made = some_case(first);
    Choices again(first.made());
    EXPECT_EQ(some_case(again), made);
    EXPECT_EQ(again.made(), first.made());
  }
}

TEST(Choices, PastTheEndEveryChoiceIsZero) {
  const std::vector<uint32_t> recorded = {2};
  Choices c(recorded);
  EXPECT_EQ(c.below(5), 2u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(c.below(5), 0u);
  EXPECT_EQ(c.between(3, 8), 3);
  EXPECT_FALSE(c.one_in(2));
  EXPECT_EQ(c.of({7, 8}), 7);
}

TEST(Choices, ACallerIsToldTheBoundAndItsNumberIsBroughtIntoRange) {
  std::vector<uint32_t> bounds;
  const auto choose = [](void* context, uint32_t bound) {
    static_cast<std::vector<uint32_t>*>(context)->push_back(bound);
    return bound + 2;
  };
  Choices c(choose, &bounds);
  EXPECT_EQ(c.below(5), 2u);
  EXPECT_EQ(c.between(3, 8), 5);
  EXPECT_EQ(bounds, (std::vector<uint32_t>{5, 6}));
  EXPECT_EQ(c.made(), (std::vector<uint32_t>{2, 2}));
}

/// Named draws: "wide" is rare, and the second "size" is a draw of its own.
std::vector<int> named_case(Choices& c) {
  const bool wide = c.one_in("wide", 1000);
  const int size = wide ? c.of("size", {64, 128}) : c.of("size", {1, 1, 1, 4});
  return {wide, size, c.between("size", 0, 9), c.between(0, 99)};
}

TEST(Choices, ANamedDrawTakesTheWishedLevelIfItHasThat) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Choices wished(Rng(seed), {{{"size", 128}, {"wide", 1}}});
    const std::vector<int> made = named_case(wished);
    EXPECT_EQ(made[0], 1);
    EXPECT_EQ(made[1], 128);
    Choices again(wished.made());
    EXPECT_EQ(named_case(again), made);
    EXPECT_EQ(again.levels(), wished.levels());

    Choices impossible(Rng(seed), {{{"size", 128}, {"wide", 0}, {"none", 1}}});
    EXPECT_LE(named_case(impossible)[1], 4);
  }
}

TEST(Choices, TheSecondDrawOfANameIsNotWishedFor) {
  std::set<int> second;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Choices c(Rng(seed), {{{"size", 4}, {"wide", 0}}});
    second.insert(named_case(c)[2]);
  }
  EXPECT_EQ(second.size(), 10u);
}

TEST(Choices, EvenWishesGiveEachLevelItsShare) {
  std::map<std::string, int> cases;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Choices c(Rng(seed), {{}, true});
    named_case(c);
    for (const Level& level : std::span(c.levels()).first(2)) ++cases[level.to_string()];
  }
  // Two levels: 2000 expected; a tenth less is 6 standard deviations.
  for (const char* half : {"wide no", "wide yes"}) EXPECT_GT(cases[half], 1800) << half;
  for (const char* quarter : {"size 1", "size 4", "size 64", "size 128"})
    EXPECT_GT(cases[quarter], 800) << quarter;
}

enum class Color : uint8_t { kRed, kBlue };
std::string_view name_of(Color color) { return color == Color::kRed ? "red" : "blue"; }

TEST(Choices, ALevelSaysItsFactorAndValue) {
  const std::vector<uint32_t> recorded = {1, 2, 1, 1};
  Choices c(recorded);
  c.one_in("radix", 2), c.of("scale", {1.0F, 2.0F, 0.25F}),
      c.of("color", {Color::kRed, Color::kBlue});
  c.between("steps", 3, 5);
  std::vector<std::string> said;
  for (const Level& level : c.levels()) said.push_back(level.to_string());
  EXPECT_EQ(said, (std::vector<std::string>{"radix yes", "scale 0.25", "color blue", "steps 4"}));
}

TEST(Choices, RecordedValuesAreBroughtIntoRange) {
  const std::vector<uint32_t> recorded = {17, 0xffffffffu};
  Choices c(recorded);
  EXPECT_EQ(c.below(5), 2u);
  EXPECT_EQ(c.between(1, 2), 2);
}

TEST(Choices, StayInTheirBounds) {
  Choices c{Rng(1)};
  std::set<uint32_t> below;
  std::set<int> between;
  for (int i = 0; i < 2000; ++i) {
    below.insert(c.below(7));
    between.insert(c.between(-2, 2));
    EXPECT_EQ(c.below(1), 0u);
  }
  EXPECT_EQ(below, (std::set<uint32_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(between, (std::set<int>{-2, -1, 0, 1, 2}));
}

TEST(Choices, TheOdometerGivesEveryCaseOnce) {
  std::set<std::vector<int>> cases;
  std::optional<std::vector<uint32_t>> next = std::vector<uint32_t>{};
  for (; next;) {
    Choices c(*next);
    std::vector<int> made;
    const int n = c.between(1, 3);
    for (int i = 0; i < n; ++i) made.push_back(c.one_in(2) ? c.of({10, 20, 30}) : c.between(0, 1));
    EXPECT_TRUE(cases.insert(made).second);
    next = next_choices(c);
  }
  EXPECT_EQ(cases.size(), 5u + 5 * 5 + 5 * 5 * 5);
}

TEST(Choices, TheOdometerLeavesTheFirstChoicesAsTheyAre) {
  std::vector<uint32_t> seen;
  std::optional<std::vector<uint32_t>> next = std::vector<uint32_t>{1};
  while (next && seen.size() < 9) {
    Choices c(*next);
    EXPECT_EQ(c.below(3), 1u);
    seen.push_back(c.below(4));
    next = next_choices(c, 1);
  }
  EXPECT_EQ(seen, (std::vector<uint32_t>{0, 1, 2, 3}));
}

TEST(Choices, ChoicesAreReadAsTheyAreWritten) {
  const std::vector<std::vector<uint32_t>> all = {{0}, {3, 0, 1}, {4294967295u, 7}};
  for (const std::vector<uint32_t>& choices : all) EXPECT_EQ(choices_of(to_text(choices)), choices);
  EXPECT_EQ(to_text(std::vector<uint32_t>{3, 0, 1}), "3.0.1");
  EXPECT_EQ(to_text({}), "0");  // a word of the command that a finding prints
  EXPECT_EQ(choices_of(""), std::vector<uint32_t>{});
  EXPECT_EQ(choices_of("007"), std::vector<uint32_t>{7});
}

TEST(Choices, AListIsReadAsItStandsOrItIsSaidWhereNot) {
  const auto read = [](std::vector<uint32_t> given, std::vector<uint32_t> made) {
    return compare_choices(given, made);
  };
  const ChoicesRead whole = read({3, 0, 1}, {3, 0, 1, 0, 0});
  EXPECT_TRUE(whole.out_of_range.empty() && whole.behind == 0 && !whole.none);
  const ChoicesRead part = read({3, 9, 7, 9, 2, 2}, {3, 1, 7, 0});
  EXPECT_EQ(part.out_of_range, (std::vector<size_t>{1, 3}));
  EXPECT_EQ(part.behind, 2U);
  EXPECT_FALSE(part.none);
  EXPECT_TRUE(read({}, {0, 0}).none);
  EXPECT_TRUE(read({9, 9}, {1, 0, 0}).none);
}

TEST(Choices, WhatIsNoListOfChoicesIsRefused) {
  for (const char* text :
       {".", "1.", ".1", "1..2", "-1", "+1", " 1", "1 ", "1,2", "4294967296", "0x1", "a", "1.b"})
    EXPECT_EQ(choices_of(text), std::nullopt) << text;
}

TEST(Rng, IsSplitMix64) {
  // The generator's published first outputs for seed 1234567.
  Rng rng(1234567);
  EXPECT_EQ(rng.next(), 6457827717110365317u);
  EXPECT_EQ(rng.next(), 3203168211198807973u);
  EXPECT_EQ(rng.next(), 9817491932198370423u);
}

TEST(Choices, ListsThatDifferInZerosAtTheirEndsMakeTheSameCase) {
  const std::vector<uint32_t> none, list = {1, 0, 2}, longer = {1, 0, 2, 0, 0};
  EXPECT_TRUE(same_choices(list, longer) && same_choices(longer, list));
  EXPECT_TRUE(same_choices(none, std::vector<uint32_t>{0, 0}));
  EXPECT_FALSE(same_choices(list, none));
  EXPECT_FALSE(same_choices(list, std::vector<uint32_t>{1, 0, 3}));
  EXPECT_FALSE(same_choices(list, std::vector<uint32_t>{1, 0, 2, 1}));
}

TEST(Rng, StreamsDifferAndAreRepeatable) {
  std::set<uint64_t> first;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (uint64_t index = 0; index < 30; ++index) {
      Rng a = Rng::stream(seed, index), b = Rng::stream(seed, index);
      const uint64_t value = a.next();
      EXPECT_EQ(value, b.next());
      first.insert(value);
    }
  }
  EXPECT_EQ(first.size(), 900u);
}

TEST(Rng, SignedUnitIsInMinusOneToOneInSteps) {
  Rng rng(3);
  float low = 1, high = -1;
  for (int i = 0; i < 10000; ++i) {
    const float x = rng.signed_unit();
    EXPECT_EQ(x * 0x1p23f, static_cast<float>(static_cast<int>(x * 0x1p23f)));
    low = std::min(low, x), high = std::max(high, x);
  }
  EXPECT_GE(low, -1.f);
  EXPECT_LT(high, 1.f);
  EXPECT_LT(low, -0.99f);
  EXPECT_GT(high, 0.99f);
}

}  // namespace
}  // namespace shadowgraph::choices_test
