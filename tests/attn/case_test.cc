// A case says in one line what it is made of.
#include "attn/cases/case.h"

#include <gtest/gtest.h>

namespace shadowgraph::case_test {
namespace {

bool says(const AttentionCase& x, const std::string& words) {
  return x.to_string("random").find(words) != std::string::npos;
}

TEST(Case, NamesBothScalesWhereEitherIsNotOne) {
  AttentionCase x;
  EXPECT_FALSE(says(x, "k_scale"));
  x.k_scale = 0.5f;
  EXPECT_TRUE(says(x, " k_scale=0.5 v_scale=1")) << x.to_string("random");
  x.k_scale = 1, x.v_scale = 2;
  EXPECT_TRUE(says(x, " k_scale=1 v_scale=2")) << x.to_string("random");
}

TEST(Case, NamesWindowsCapsAndSinksThatItHas) {
  AttentionCase x;
  for (const char* words : {"window", "cap", "sinks", "mask"}) EXPECT_FALSE(says(x, words));
  x.window_left = 0, x.window_right = 3, x.logits_soft_cap = 30, x.sinks = true;
  EXPECT_TRUE(says(x, " window_left=0 window_right=3 soft_cap=30 sinks")) << x.to_string("random");
}

}  // namespace
}  // namespace shadowgraph::case_test
