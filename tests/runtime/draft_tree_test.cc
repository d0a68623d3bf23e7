#include "runtime/draft_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace shadowgraph::draft_tree_test {
namespace {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

void expect_legal(const DraftTree& t, const DraftShape& s) {
  ASSERT_EQ(t.size(), s.num_draft_tokens);
  EXPECT_EQ(t.parent[0], -1);
  EXPECT_EQ(t.depth[0], 0);
  std::map<int32_t, int32_t> children;
  std::map<int32_t, std::set<int32_t>> parents;  // of each depth
  for (size_t i = 1; i < t.parent.size(); ++i) {
    const int32_t p = t.parent[i];
    ASSERT_TRUE(p >= 0 && p < static_cast<int32_t>(i));
    EXPECT_EQ(t.depth[i], t.depth[static_cast<size_t>(p)] + 1);
    EXPECT_GE(t.depth[i], t.depth[i - 1]);
    EXPECT_LE(t.depth[i], s.num_steps);
    EXPECT_LE(++children[p], s.topk);
    parents[t.depth[i]].insert(p);
    EXPECT_LE(parents[t.depth[i]].size(), static_cast<size_t>(s.topk));
  }
}

TEST(DraftTree, IsWhatABeamCanLeave) {
  for (int32_t topk = 1; topk <= 3; ++topk) {
    for (int32_t steps = 1; steps <= 3; ++steps) {
      DraftShape shape{topk, steps, 1};
      for (; shape.num_draft_tokens <= shape.max_tokens(); ++shape.num_draft_tokens) {
        for (uint64_t seed = 0; seed < 20; ++seed) {
          Choices choices{Rng(seed)};
          expect_legal(DraftTree::random(shape, choices), shape);
        }
      }
    }
  }
}

TEST(DraftTree, OfOneBranchIsAChain) {
  Choices choices{Rng(1)};
  const DraftTree t = DraftTree::random({1, 3, 4}, choices);
  EXPECT_EQ(t.parent, (Ints{-1, 0, 1, 2}));
  EXPECT_EQ(t.depth, (Ints{0, 1, 2, 3}));
}

TEST(DraftTree, AllShapesOfASmallBeamAreReached) {
  // Three tokens beside the root: 3 of the first depth; 2 and 1, below either; 1 and 2; 1, 1, 1.
  std::set<Ints> seen;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Choices choices{Rng(seed)};
    seen.insert(DraftTree::random({3, 3, 4}, choices).parent);
  }
  EXPECT_EQ(seen, (std::set<Ints>{
                      {-1, 0, 0, 0}, {-1, 0, 0, 1}, {-1, 0, 0, 2}, {-1, 0, 1, 1}, {-1, 0, 1, 2}}));
}

TEST(DraftTree, TheMaskIsThePrefixAndTheAncestors) {
  const DraftTree t{{-1, 0, 0, 1}, {0, 1, 1, 2}};
  std::vector<uint8_t> mask;
  t.append_mask(2, &mask);
  EXPECT_EQ(mask, (std::vector<uint8_t>{1, 1, 1, 0, 0, 0,  //
                                        1, 1, 1, 1, 0, 0,  //
                                        1, 1, 1, 0, 1, 0,  //
                                        1, 1, 1, 1, 0, 1}));
}

TEST(DraftTree, WhatIsAcceptedIsAPathFromTheRoot) {
  const DraftShape shape{3, 3, 9};
  std::set<size_t> lengths;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Choices choices{Rng(seed)};
    const DraftTree t = DraftTree::random(shape, choices);
    const Ints path = t.accept(3, choices);
    ASSERT_TRUE(!path.empty() && path[0] == 0 && path.size() <= 3);
    lengths.insert(path.size());
    for (size_t i = 1; i < path.size(); ++i)
      EXPECT_EQ(t.parent[static_cast<size_t>(path[i])], path[i - 1]);
  }
  EXPECT_EQ(lengths, (std::set<size_t>{1, 2, 3}));
}

Ints counted(int32_t first, int32_t n) {
  Ints row;
  for (int32_t i = 0; i < n; ++i) row.push_back(first + i);
  return row;
}

TEST(DraftLayout, BranchesFollowEachOtherWithPagesOfOneToken) {
  const DraftLayout l{{2, 3, 4}, 1, 5};
  Longs slots;
  std::vector<SlotCopy> copies;
  const Ints row = counted(100, 20);
  l.append_slots(row, &slots);
  l.append_copies(row, &copies);
  EXPECT_EQ(slots, (Longs{105, 106, 107, 108, 109, 110}));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(l.end(), 11);
  EXPECT_EQ((DraftLayout{{1, 3, 9}, 4, 5}.end()), 14);
}

TEST(DraftLayout, EachBranchHasPagesThatBeginWithThePrefixsTail) {
  // Pages of 2: the prefix of 7 ends at slot 26, branch 1 begins with a copy of it in slot 32.
  const DraftLayout l{{2, 5, 4}, 2, 7};
  Ints row = counted(20, 7);
  for (const int32_t slot : counted(27, 11)) row.push_back(slot);
  Longs slots;
  std::vector<SlotCopy> copies;
  l.append_slots(row, &slots);
  l.append_copies(row, &copies);
  EXPECT_EQ(slots, (Longs{27, 28, 29, 30, 31, 33, 34, 35, 36, 37}));
  EXPECT_EQ(copies, (std::vector<SlotCopy>{{26, 32}}));
  EXPECT_EQ(l.branch_stride(), 6);
  EXPECT_EQ(l.end(), 18);
}

TEST(DraftLayout, TheReserveHoldsEveryDraft) {
  for (const int32_t page_size : {1, 2, 4, 8}) {
    for (int32_t topk = 1; topk <= 4; ++topk) {
      for (int32_t prefix = 0; prefix < 20; ++prefix) {
        const DraftShape shape{topk, 2, 3};
        EXPECT_LE((DraftLayout{shape, page_size, prefix}.end()),
                  prefix + draft_reserve(shape, page_size) / 2);
      }
    }
  }
  EXPECT_EQ(draft_reserve({4, 2, 12}, 8), 2 * 2 * 8 * 4);
  EXPECT_EQ(draft_reserve({4, 2, 12}, 1), 2 * 12);
  EXPECT_EQ(draft_reserve({}, 8), 0);
}

}  // namespace
}  // namespace shadowgraph::draft_tree_test
