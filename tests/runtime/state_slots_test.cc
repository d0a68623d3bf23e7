#include "runtime/state_slots.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/histories.h"

namespace shadowgraph::state_slots_test {
namespace {

TEST(StateSlots, AreHandedOutFirstInFirstOut) {
  StateSlots s(3);
  EXPECT_EQ(s.alloc(), 1);
  EXPECT_EQ(s.alloc(), 2);
  s.free(1);
  EXPECT_EQ(s.alloc(), 3);
  EXPECT_EQ(s.alloc(), 1);
  EXPECT_EQ(s.alloc(), std::nullopt);
}

TEST(StateSlots, TheLongestSnapshotOfAPrefixIsFound) {
  StateSlots s(4);
  EXPECT_TRUE(s.keep({7, 8}, 1));
  EXPECT_TRUE(s.keep({7, 8, 9, 9}, 2));
  EXPECT_FALSE(s.keep({7, 8}, 3));
  EXPECT_EQ(s.match(Tokens{7, 8, 9, 9, 1})->slot, 2);
  EXPECT_EQ(s.match(Tokens{7, 8, 9})->slot, 1);
  EXPECT_EQ(s.match(Tokens{8}), nullptr);
  const std::vector<CachedSlot> all = s.snapshots();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].slot, 2);
  EXPECT_EQ(all[1], (CachedSlot{.slot = 1, .chain = extend(extend(kNoTokens, 7), 8)}));
}

TEST(StateSlots, WhatWasUsedLongestAgoIsEvictedFirst) {
  StateSlots s(0);
  s.keep({1}, 1), s.keep({2}, 2);
  s.match(Tokens{1});
  EXPECT_TRUE(s.evict());
  EXPECT_EQ(s.alloc(), 2);
  EXPECT_TRUE(s.evict());
  EXPECT_FALSE(s.evict());
}

RuntimeConfig sharing() {
  RuntimeConfig c = config_of(1);
  c.radix = true, c.state_slots = 7, c.state_chunk = 4;
  return c;
}

TEST(StatesOfAScheduler, ASharedPrefixBeginsWithACopyOfItsSnapshot) {
  int64_t copies = 0, kept = 0;
  play(sharing(), 20, 60, [&](const Moment& m, uint64_t, int) {
    EXPECT_EQ(check_pool(m.state).to_string(), "ok");
    EXPECT_EQ(check_step(m.step, m.state).to_string(), "ok");
    for (const StateMove& move : m.step.state_moves) {
      copies += move.kind == StateMove::Kind::kCopy;
      kept += move.kind == StateMove::Kind::kKeep;
    }
    // Whoever shares a prefix has a state behind all of it.
    for (const PoolRequest& r : m.state.requests) EXPECT_GT(r.state_slot, 0);
  });
  EXPECT_GT(copies, 10);
  EXPECT_GT(kept, 50);
}

TEST(StatesOfAScheduler, WhatIsAcceptedIsCommittedWhereItWasVerified) {
  RuntimeConfig c = drafting(1, {2, 3, 6});
  c.state_slots = 5;
  std::set<int32_t> steps;
  int64_t verified = 0, commits = 0;
  play(c, 10, 80, [&](const Moment& m, uint64_t, int) {
    verified += is_target_verify(m.step.mode) ? std::ssize(m.step.requests) : 0;
    for (const StateMove& move : m.step.state_moves) {
      if (move.kind != StateMove::Kind::kCommit) continue;
      ++commits;
      steps.insert(move.step);
      EXPECT_TRUE(is_draft_extend(m.step.mode, DraftExtendV2::kIncluded));
      EXPECT_EQ(m.step.requests[static_cast<size_t>(move.from)], move.owner);
    }
  });
  EXPECT_GT(commits, 50);
  EXPECT_LE(commits, verified);
  EXPECT_GT(steps.size(), 3u);  // also of tokens that are not the last of their depth
}

TEST(StatesOfAScheduler, TreesAreToldAsLinks) {
  Step step;
  const DraftTree tree{{-1, 0, 0, 1, 1}, {0, 1, 1, 2, 2}};
  tree.append_links(&step.retrieve_next_token, &step.retrieve_next_sibling);
  EXPECT_EQ(step.retrieve_next_token, (std::vector<int32_t>{1, 3, -1, -1, -1}));
  EXPECT_EQ(step.retrieve_next_sibling, (std::vector<int32_t>{-1, 2, -1, 4, -1}));
}

}  // namespace
}  // namespace shadowgraph::state_slots_test
