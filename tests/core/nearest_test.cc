// Suggestions for misspelt names.
#include "core/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace shadowgraph::nearest_test {
namespace {

using Names = std::vector<std::string>;

TEST(Nearest, TheNearestComesFirstAndNoMoreThanThree) {
  EXPECT_EQ(nearest("decde", {"extend", "decoder", "decode"}), (Names{"decode", "decoder"}));
  EXPECT_EQ(nearest("a1", {"a2", "a3", "a4", "a5"}).size(), 3U);
}

TEST(Nearest, CaseDoesNotCount) {
  EXPECT_EQ(nearest("PAGESIZE", {"page_size"}), Names{"page_size"});
  EXPECT_EQ(nearest("k31", {"K31"}), Names{"K31"});
}

TEST(Nearest, WhatContainsTheTextCounts) {
  EXPECT_EQ(nearest("in_graph", {"replay_in_graph"}), Names{"replay_in_graph"});
}

TEST(Nearest, HalfOfTheLettersWrongIsNoSlip) {
  EXPECT_EQ(nearest("wxyz", {"decode", "page"}), Names{});
  EXPECT_EQ(did_you_mean("wxyz", {"decode"}), "");
  EXPECT_EQ(did_you_mean("decodes", {"decode"}), "; did you mean decode?");
}

}  // namespace
}  // namespace shadowgraph::nearest_test
