#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "attn/finding_ids.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph::recurrent_lists_test {
namespace {

using Ints = std::vector<int32_t>;

/// Builds from `parents`, whose entries at a row's first token are 0, the lists that name each
/// token once. Siblings stand in an order of their own.
struct Tree {
  Ints first_child, next_sibling, parents;

  explicit Tree(Ints of, size_t steps, bool backwards) : parents(std::move(of)) {
    first_child.assign(parents.size(), -1), next_sibling = first_child;
    for (size_t row = 0; row < parents.size(); row += steps) {
      for (size_t i = 1; i < steps; ++i) {
        const size_t j = backwards ? i : steps - i;
        int32_t& first = first_child[row + static_cast<size_t>(parents[row + j])];
        next_sibling[row + j] = std::exchange(first, static_cast<int32_t>(j));
      }
    }
  }
};

RC_GTEST_PROP(TreeParents, AreWhatTheListsWereMadeOf, ()) {
  const auto steps = *rc::gen::inRange<size_t>(1, 10), rows = *rc::gen::inRange<size_t>(0, 4);
  Ints parents;
  for (size_t i = 0; i < rows * steps; ++i) {
    const auto j = static_cast<int32_t>(i % steps);
    parents.push_back(j == 0 ? 0 : *rc::gen::inRange(0, j));
  }
  const Tree tree(parents, steps, *rc::gen::arbitrary<bool>());
  Ints got(parents.size(), 99);
  const Status status =
      tree_parents(tree.first_child, tree.next_sibling, static_cast<int64_t>(steps), got);
  RC_ASSERT(status.to_string() == "ok");
  RC_ASSERT(got == parents);
}

/// Any lists at all: refused, and nothing written, or a tree that gives the lists' pairs.
RC_GTEST_PROP(TreeParents, AnyListsAreATreeOrRefused, ()) {
  const int32_t steps = *rc::gen::inRange(1, 6);
  const auto any = rc::gen::container<Ints>(static_cast<size_t>(steps), rc::gen::inRange(-2, 7));
  const Ints first_child = *any, next_sibling = *any;
  Ints got(static_cast<size_t>(steps), 99);
  if (!tree_parents(first_child, next_sibling, steps, got).ok()) {
    RC_ASSERT(got == Ints(static_cast<size_t>(steps), 99));
    return;
  }
  RC_ASSERT(got[0] == 0);
  for (size_t j = 1; j < got.size(); ++j) {
    RC_ASSERT(got[j] >= 0);
    RC_ASSERT(got[j] < static_cast<int32_t>(j));
  }
  for (size_t j = 0; j < got.size(); ++j) {
    const int32_t child = first_child[j], sibling = next_sibling[j];
    if (child != -1) RC_ASSERT(got[static_cast<size_t>(child)] == static_cast<int32_t>(j));
    if (sibling != -1) RC_ASSERT(got[static_cast<size_t>(sibling)] == got[j]);
  }
}

/// As recorded of an engine's kernel.
TEST(TreeParents, OfARecordedStep) {
  const Ints first_child = {1, 2, -1, 4, 5, -1, 1, 2, 3, -1, -1, -1, 1, 5, -1, 4, -1, -1};
  const Ints next_sibling = {-1, -1, 3, -1, -1, -1, -1, -1, -1, 4, 5, -1, -1, 2, 3, -1, -1, -1};
  Ints got(18, 99);
  ASSERT_EQ(tree_parents(first_child, next_sibling, 6, got).to_string(), "ok");
  EXPECT_EQ(got, (Ints{0, 0, 1, 1, 3, 4, 0, 0, 1, 2, 2, 2, 0, 0, 0, 0, 3, 1}));
}

/// "field row expected got" of the findings.
std::vector<std::string> words(const Status& status) {
  std::vector<std::string> all;
  for (const Finding& f : status.findings()) {
    EXPECT_EQ(f.id, "mask.tree");
    all.push_back(f.where.field + " " + std::to_string(*f.where.row) + ": " + f.expected + "; " +
                  f.got);
  }
  return all;
}
std::vector<std::string> refused(const Ints& first_child, const Ints& next_sibling, int64_t steps) {
  Ints got(first_child.size(), 99);
  const Status status = tree_parents(first_child, next_sibling, steps, got);
  EXPECT_EQ(got, Ints(first_child.size(), 99));
  return words(status);
}

using Words = std::vector<std::string>;

TEST(TreeParents, EachSlipHasItsWords) {
  const Ints none = {-1, -1, -1};
  EXPECT_EQ(refused({1, 3, -1}, {-1, 2, -1}, 3), (Words{"first_child 1: 1 < id < 3; 3"}));
  EXPECT_EQ(
      refused({1, -1, -1}, {-1, -2, -1}, 3),
      (Words{"next_sibling 1: 0 < id < 3; -2", "first_child 2: a token that names it; none does"}));
  EXPECT_EQ(
      refused({2, 1, -1}, none, 3),  // its own child
      (Words{"first_child 1: 1 < id < 3; 1", "first_child 1: a token that names it; none does"}));
  EXPECT_EQ(refused({1, -1, 1}, {-1, 2, -1}, 3), (Words{"first_child 2: 2 < id < 3; 1"}));
  EXPECT_EQ(refused({1, 2, -1}, {-1, 2, -1}, 3),  // a child of two
            (Words{"first_child 1: a token of no other; 2, child of 0"}));
  EXPECT_EQ(refused({1, -1, -1}, {-1, 2, 1}, 3),  // siblings in a circle
            (Words{"next_sibling 2: a token of no other; 1, child of 0"}));
  EXPECT_EQ(refused({1, -1, -1}, {2, 2, -1}, 3),
            (Words{"next_sibling 0: -1: the root has none; 2"}));
  EXPECT_EQ(refused({-1, -1, -1}, none, 3),
            (Words{"first_child 1: a token that names it; none does",
                   "first_child 2: a token that names it; none does"}));
  // Tokens of the second row are counted from the row's first.
  EXPECT_EQ(refused({1, -1, 1, 9}, {-1, -1, -1, -1}, 2), (Words{"first_child 3: 1 < id < 2; 9"}));
}

TEST(TreeParents, ArraysAreOfWholeRows) {
  Ints four(4, -1), three(3, -1), parents(4, 99);
  EXPECT_EQ(ids(tree_parents(four, four, 3, parents)), (Ids{"len.batch first_child"}));
  EXPECT_EQ(ids(tree_parents(four, four, 0, parents)), (Ids{"len.batch steps"}));
  EXPECT_EQ(ids(tree_parents(four, three, 4, three)),
            (Ids{"len.batch next_sibling", "len.batch parents", "input.alias parents"}));
  EXPECT_EQ(ids(tree_parents({static_cast<int32_t*>(nullptr), 4}, four, 4, parents)),
            (Ids{"input.null first_child"}));
  Ints chain = {1, 2, 3, -1};
  EXPECT_EQ(ids(tree_parents(chain, four, 4, chain)), (Ids{"input.alias parents"}));
  EXPECT_EQ(chain, (Ints{1, 2, 3, -1}));
  EXPECT_EQ(ids(tree_parents({}, {}, 4, {})), Ids{});
}

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

Pairs chunks(const Ints& cu, int32_t chunk_size) {
  Ints indices(200, -5), offsets = indices;
  ChunkList list{.indices = indices, .offsets = offsets};
  EXPECT_EQ(chunk_list(cu, chunk_size, &list).to_string(), "ok");
  Pairs pairs;
  for (size_t i = 0; i < 200; ++i) {
    if (static_cast<int64_t>(i) < list.size) {
      pairs.emplace_back(indices[i], offsets[i]);
    } else {
      EXPECT_EQ(std::pair(indices[i], offsets[i]), std::pair(-5, -5)) << i;
    }
  }
  return pairs;
}

/// As an engine's own routine recorded them.
TEST(ChunkList, OfRecordedBatches) {
  EXPECT_EQ(chunks({0, 5, 10}, 8), (Pairs{{0, 0}, {0, 5}, {1, 0}}));
  EXPECT_EQ(chunks({0, 1, 3, 4, 11}, 8), (Pairs{{0, 0}, {0, 1}, {0, 3}, {0, 4}, {1, 0}}));
  EXPECT_EQ(chunks({0, 257, 899, 900, 901, 903}, 256),
            (Pairs{{0, 0}, {1, 0}, {1, 1}, {2, 0}, {3, 0}, {3, 131}, {3, 132}, {3, 133}}));
  EXPECT_EQ(chunks({0, 256, 512, 769, 1026}, 256),
            (Pairs{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {3, 1}, {4, 0}}));
  EXPECT_EQ(chunks({0, 127}, 128), (Pairs{{0, 0}}));
  EXPECT_EQ(chunks({0}, 8), Pairs{});
  EXPECT_EQ(chunks({0, 0}, 8), Pairs{});
}

/// Every beginning of a chunk, and of a row that has tokens, in order: no more, and none twice.
RC_GTEST_PROP(ChunkList, IsTheSetOfBeginnings, ()) {
  const int32_t size = *rc::gen::inRange(1, 12);
  Ints cu = {0};
  for (size_t rows = *rc::gen::inRange<size_t>(0, 7); rows > 0; --rows)
    cu.push_back(cu.back() + *rc::gen::inRange(0, 15));
  std::set<int32_t> begins;
  for (int32_t t = 0; t < cu.back(); t += size) begins.insert(t);
  for (const int32_t t : cu)
    if (t < cu.back()) begins.insert(t);
  Pairs expected;
  for (const int32_t t : begins) expected.emplace_back(t / size, t % size);
  RC_ASSERT(chunks(cu, size) == expected);
}

TEST(ChunkList, SaysWhatRoomItNeeds) {
  const Ints cu = {0, 5, 10};
  Ints two(2, -5), three(3, -5);
  ChunkList list{.indices = two, .offsets = three};
  EXPECT_EQ(ids(chunk_list(cu, 8, &list)), (Ids{"input.memory list.indices"}));
  EXPECT_EQ(list.size, 3);
  list = {.indices = {}, .offsets = {}};
  EXPECT_EQ(ids(chunk_list(cu, 8, &list)),
            (Ids{"input.memory list.indices", "input.memory list.offsets"}));
  EXPECT_EQ(list.size, 3);
  EXPECT_EQ(two, Ints(2, -5));
  EXPECT_EQ(three, Ints(3, -5));
}

TEST(ChunkList, BadOffsetsAreRefused) {
  Ints room(9, -5), more = room;
  ChunkList list{.indices = room, .offsets = more};
  EXPECT_EQ(ids(chunk_list(Ints{0, 5, 3}, 0, &list)),
            (Ids{"len.indptr_monotone cu_seqlens_q", "input.shape chunk_size"}));
  EXPECT_EQ(ids(chunk_list(Ints{1, 5}, 8, &list)), (Ids{"len.indptr_first cu_seqlens_q"}));
  EXPECT_EQ(ids(chunk_list({}, 8, &list)), (Ids{"len.batch cu_seqlens_q"}));
  EXPECT_EQ(ids(chunk_list(Ints{0, 5}, 8, nullptr)), (Ids{"input.null list"}));
  EXPECT_EQ(ids(chunk_list({static_cast<int32_t*>(nullptr), 2}, 8, &list)),
            (Ids{"input.null cu_seqlens_q"}));
  list.offsets = room;
  EXPECT_EQ(ids(chunk_list(Ints{0, 5}, 8, &list)), (Ids{"input.alias list.offsets"}));
  EXPECT_EQ(room, Ints(9, -5));
}

}  // namespace
}  // namespace shadowgraph::recurrent_lists_test
