#include "core/covering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace shadowgraph::covering_test {
namespace {

/// Draws with names, as a generator of cases has them: some are rare, some need others. A "local"
/// case with "fp8" scales and pages of 4 comes once in 14,000.
void draw_case(Choices& c) {
  const int page = c.of("page", {1, 1, 1, 1, 1, 2, 4, 16});
  const bool fp8 = c.one_in("fp8", 12);
  if (fp8) c.of("scale", {1.0F, 0.5F, 4.0F});
  const int window = c.one_in("window", 3) ? c.between("window_left", 0, 4) : -1;
  c.below(1000);  // has no name
  if (page <= window + 1 && c.one_in("local", 15)) c.between("chunks", 1, 2);
  c.one_in("radix", 4);
  c.of("only", {7});
}

bool every_number(std::string_view) { return true; }
bool no_number(std::string_view) { return false; }
bool pages(std::string_view factor) { return factor == "page"; }

std::vector<Level> levels_of_case(Choices& c) {
  draw_case(c);
  return c.levels();
}

std::string text_of(const Level& a, const Level& b) {
  return a.to_string() < b.to_string() ? a.to_string() + " x " + b.to_string()
                                       : b.to_string() + " x " + a.to_string();
}

using Texts = std::set<std::string>;

void add_pairs(std::span<const Level> levels, Texts* pairs) {
  for (const Level& a : levels)
    for (const Level& b : levels)
      if (a.factor < b.factor && a.factor != "only" && b.factor != "only")
        pairs->insert(text_of(a, b));
}

/// So many cases that none is missing.
const Texts& all_pairs() {
  static const Texts kPairs = [] {
    Texts pairs;
    for (uint64_t i = 0; i < 5000; ++i) {
      Choices c(Rng::stream(1, i), {{}, true});
      add_pairs(levels_of_case(c), &pairs);
    }
    return pairs;
  }();
  return kPairs;
}

TEST(Covering, KnowsThePairsThatCanStandTogether) {
  const Covering covering(levels_of_case, {}, every_number);
  Texts known;
  for (size_t pair = 0; pair < covering.pairs(); ++pair) {
    const std::string text = covering.text_of(pair);
    const size_t cross = text.find(" x ");
    known.insert(std::min(text, text.substr(cross + 3) + " x " + text.substr(0, cross)));
  }
  EXPECT_EQ(known, all_pairs());
  EXPECT_TRUE(known.contains("local yes x page 4"));
  EXPECT_FALSE(known.contains("local yes x page 16"));
  EXPECT_FALSE(known.contains("fp8 no x scale 4.0"));
}

TEST(Covering, TheFirstRowsMeetEveryPairWhateverTheSeed) {
  const Covering covering(levels_of_case, {}, every_number);
  // No array has fewer rows than two factors have pairs of levels; this one has twice as many.
  EXPECT_LE(covering.rows(), 2 * 4 * 5u);
  for (uint64_t seed = 1; seed < 20; ++seed) {
    Texts met;
    for (uint64_t n = 0; n < covering.rows(); ++n) {
      Choices c(Rng::stream(seed, n), covering.wishes(seed, n));
      add_pairs(levels_of_case(c), &met);
    }
    EXPECT_EQ(met, all_pairs()) << "seed " << seed;
  }
}

TEST(Covering, MostPairsComeInTheFirstRows) {
  const Covering covering(levels_of_case, {}, every_number);
  PairSet met(covering.pairs());
  for (uint64_t n = 0; n < covering.rows() / 2; ++n)
    covering.add(covering.wishes(1, n).levels, &met);
  EXPECT_GT(std::ranges::count(met, true), static_cast<int64_t>(covering.pairs() * 3 / 4));
}

TEST(Covering, NoRowAddsMorePairsThanTheRowBeforeIt) {
  const Covering covering(levels_of_case, {}, every_number);
  PairSet met(covering.pairs());
  int64_t before = std::ssize(met);
  for (uint64_t row = 0; row < covering.rows(); ++row) {
    const int64_t known = std::ranges::count(met, true);
    covering.add(covering.wishes(1, row).levels, &met);
    const int64_t added = std::ranges::count(met, true) - known;
    EXPECT_LE(added, before) << row;
    before = added;
  }
  EXPECT_EQ(std::ranges::count(met, true), std::ssize(met));
}

TEST(Covering, BehindTheRowsSeedsHaveOrdersOfTheirOwn) {
  const Covering covering(levels_of_case, {}, every_number);
  std::set<std::string> firsts;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::string first;
    for (const Level& level : covering.wishes(seed, covering.rows()).levels)
      first += level.to_string() + " ";
    firsts.insert(first);
  }
  EXPECT_GT(firsts.size(), 10u);
}

TEST(Covering, BehindTheRowsRareLevelsMeetInThrees) {
  const Covering covering(levels_of_case, {}, every_number);
  int met = 0;
  for (uint64_t n = covering.rows(); n < covering.rows() + 2000; ++n) {
    Choices c(Rng::stream(1, n), covering.wishes(1, n));
    const std::vector<Level> levels = levels_of_case(c);
    const auto has = [&](std::string_view factor, int64_t value) {
      return std::ranges::find(levels, Level{factor, value}) != levels.end();
    };
    met += has("local", 1) && has("fp8", 1) && has("page", 4);
  }
  EXPECT_GT(met, 3);
}

TEST(Covering, ItIsTheSameEveryTime) {
  const Covering one(levels_of_case, {}, every_number), other(levels_of_case, {}, every_number);
  ASSERT_EQ(one.pairs(), other.pairs());
  for (size_t pair = 0; pair < one.pairs(); ++pair)
    EXPECT_EQ(one.text_of(pair), other.text_of(pair));
  for (uint64_t n = 0; n < one.rows(); ++n)
    EXPECT_EQ(one.wishes(3, n).levels, other.wishes(3, n).levels);
}

TEST(Covering, WhatIsAlwaysWishedIsNoFactor) {
  const Covering covering(levels_of_case, {{"page", 4}}, every_number);
  for (size_t pair = 0; pair < covering.pairs(); ++pair)
    EXPECT_EQ(covering.text_of(pair).find("page"), std::string::npos);
  for (uint64_t n = 0; n < 100; ++n) {
    Choices c(Rng::stream(1, n), covering.wishes(1, n));
    EXPECT_EQ(levels_of_case(c)[0], (Level{"page", 4}));
  }
}

std::set<std::string> texts_of(const Covering& covering) {
  std::set<std::string> texts;
  for (size_t pair = 0; pair < covering.pairs(); ++pair) texts.insert(covering.text_of(pair));
  return texts;
}

TEST(Covering, OfANumberItsLeastValueAndAnyLargerOneCount) {
  const Covering covering(levels_of_case, {}, pages);
  const std::set<std::string> texts = texts_of(covering);
  for (const char* text : {"window_left > 0 x radix yes", "window_left 0 x radix yes",
                           "page 4 x window_left > 0", "page 16 x radix no"}) {
    const std::string pair = text, a = pair.substr(0, pair.find(" x ")),
                      b = pair.substr(pair.find(" x ") + 3);
    EXPECT_TRUE(texts.contains(pair) || texts.contains(b + " x " + a)) << pair;
  }
  for (const std::string& text : texts) {
    EXPECT_EQ(text.find("window_left 3"), std::string::npos) << text;
    EXPECT_EQ(text.find("page > "), std::string::npos) << text;
  }
  EXPECT_LT(covering.rows(), Covering(levels_of_case, {}, every_number).rows());
}

TEST(Covering, AmongTheRowsIsEachValueOfANumber) {
  const Covering covering(levels_of_case, {}, no_number);
  std::set<std::string> values;
  for (uint64_t n = 0; n < covering.rows(); ++n)
    for (const Level& level : covering.wishes(1, n).levels)
      values.insert(std::string(level.factor) + " " + std::to_string(level.value));
  for (const char* value : {"page 1", "page 2", "page 4", "page 16", "window_left 0",
                            "window_left 1", "window_left 2", "window_left 3", "window_left 4"})
    EXPECT_TRUE(values.contains(value)) << value;
}

TEST(Covering, ALargerNumberIsMetByAnyOfThem) {
  const Covering covering(levels_of_case, {}, pages);
  PairSet one(covering.pairs()), other(covering.pairs()), least(covering.pairs());
  covering.add(std::vector<Level>{{"window_left", 1}, {"radix", 1}}, &one);
  covering.add(std::vector<Level>{{"window_left", 4}, {"radix", 1}}, &other);
  covering.add(std::vector<Level>{{"window_left", 0}, {"radix", 1}}, &least);
  EXPECT_EQ(std::ranges::count(one, true), 1);
  EXPECT_EQ(one, other);
  EXPECT_EQ(std::ranges::count(least, true), 1);
  EXPECT_NE(one, least);
}

TEST(Covering, OneCaseInEveryHasAnotherLevel) {
  const Covering covering(levels_of_case, {{"page", 0}}, every_number);
  for (const uint64_t at : {0, 1, 5}) {
    std::vector<int64_t> others;
    uint64_t row = 0;
    for (uint64_t n = 0; n < 24; ++n) {
      const std::vector<Level> levels = covering.wishes(1, n, {"page", 3, 6, at}).levels;
      ASSERT_EQ(levels[0].factor, "page");
      if (n % 6 == at)
        others.push_back(levels[0].value);
      else
        EXPECT_EQ(levels, covering.wishes(1, row++).levels) << n;
    }
    EXPECT_EQ(others, (std::vector<int64_t>{1, 2, 3, 1})) << at;
  }
}

TEST(Covering, AddsThePairsOfACase) {
  const Covering covering(levels_of_case, {}, every_number);
  PairSet met(covering.pairs());
  covering.add(std::vector<Level>{{"page", 2}, {"radix", 1}, {"unknown", 3}, {"only", 7}}, &met);
  std::vector<std::string> texts;
  for (size_t pair = 0; pair < met.size(); ++pair)
    if (met[pair]) texts.push_back(covering.text_of(pair));
  EXPECT_EQ(texts, std::vector<std::string>{"page 2 x radix yes"});
}

TEST(Rounds, EachKindHasItsPlacesInEveryRound) {
  const std::vector<size_t> kinds = {0, 0, 0, 1, 2, 2};
  std::map<size_t, uint64_t> visits;
  std::set<std::vector<size_t>> orders;
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<size_t> order;
    for (uint64_t at = 0; at < kinds.size(); ++at) {
      const RoundPlace place = place_in_rounds(kinds, 7, round * kinds.size() + at);
      order.push_back(place.kind);
      EXPECT_EQ(place.visit, visits[place.kind]++);
    }
    orders.insert(order);
    std::ranges::sort(order);
    EXPECT_EQ(order, kinds);
  }
  EXPECT_GT(orders.size(), 5u);
}

}  // namespace
}  // namespace shadowgraph::covering_test
