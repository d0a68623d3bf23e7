#include "runtime/radix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace shadowgraph::radix_cache_test {
namespace {

Slots slots_of(const RadixCache& cache) {
  Slots slots;
  for (const CachedSlot& c : cache.contents()) slots.push_back(c.slot);
  return slots;
}

Slots sorted(Slots s) {
  std::ranges::sort(s);
  return s;
}

TEST(Radix, MatchesWholePagesOnly) {
  RadixCache cache(2);
  EXPECT_EQ(cache.insert(Tokens{1, 2, 3, 4, 5}, Slots{2, 3, 4, 5, 6}), 0);
  EXPECT_EQ(slots_of(cache), (Slots{2, 3, 4, 5}));
  EXPECT_EQ(cache.match_prefix(Tokens{1, 2, 3, 4, 5}).slots, (Slots{2, 3, 4, 5}));
  EXPECT_EQ(cache.match_prefix(Tokens{1, 2, 3}).slots, (Slots{2, 3}));
  EXPECT_EQ(cache.match_prefix(Tokens{1, 2, 3, 9}).slots, (Slots{2, 3}));
  EXPECT_EQ(cache.match_prefix(Tokens{1}).slots, Slots{});
  EXPECT_EQ(cache.match_prefix(Tokens{1, 9, 3, 4}).slots, Slots{});
}

TEST(Radix, WhatIsCachedKeepsItsSlots) {
  RadixCache cache(1);
  cache.insert(Tokens{1, 2, 3}, Slots{1, 2, 3});
  EXPECT_EQ(cache.insert(Tokens{1, 2, 4, 5}, Slots{7, 8, 9, 10}), 2);
  EXPECT_EQ(cache.match_prefix(Tokens{1, 2, 4, 5}).slots, (Slots{1, 2, 9, 10}));
  EXPECT_EQ(cache.match_prefix(Tokens{1, 2, 3}).slots, (Slots{1, 2, 3}));
  EXPECT_EQ(sorted(slots_of(cache)), (Slots{1, 2, 3, 9, 10}));
}

TEST(Radix, ARowThatChangesHandsChangesNoPrefix) {
  RadixCache cache(2);
  Slots row{2, 3};
  cache.insert(Tokens{1, 2}, row);
  row = {8, 9};
  EXPECT_EQ(cache.match_prefix(Tokens{1, 2}).slots, (Slots{2, 3}));
}

TEST(Radix, EvictsTheLeafThatWasUsedLeastRecently) {
  RadixCache cache(2);
  cache.insert(Tokens{1, 2, 3, 4}, Slots{2, 3, 4, 5});
  cache.insert(Tokens{1, 2, 5, 6}, Slots{2, 3, 6, 7});
  cache.insert(Tokens{9, 9}, Slots{8, 9});
  cache.match_prefix(Tokens{1, 2, 3, 4});
  EXPECT_EQ(cache.evict(1), (Slots{6, 7}));
  EXPECT_EQ(cache.evict(2), (Slots{8, 9}));
  EXPECT_EQ(cache.evict(3), (Slots{4, 5, 2, 3}));
  EXPECT_EQ(cache.evict(1), Slots{});
}

TEST(Radix, ALockHoldsTheWholePathAndSurvivesASplit) {
  RadixCache cache(1);
  cache.insert(Tokens{1, 2, 3}, Slots{1, 2, 3});
  cache.insert(Tokens{7}, Slots{7});
  RadixCache::Node* node = cache.match_prefix(Tokens{1, 2, 3}).node;
  cache.lock(node);
  cache.lock(node);
  cache.insert(Tokens{1, 5}, Slots{1, 5});
  EXPECT_EQ(cache.evictable_tokens(), 2);
  cache.unlock(node);
  EXPECT_EQ(sorted(cache.evict(10)), (Slots{5, 7}));
  EXPECT_EQ(sorted(slots_of(cache)), (Slots{1, 2, 3}));
  cache.unlock(node);
  EXPECT_EQ(cache.evictable_tokens(), 3);
  EXPECT_EQ(sorted(cache.evict(10)), (Slots{1, 2, 3}));
}

TEST(Radix, ALockOnAPrefixLetsTheRestGo) {
  RadixCache cache(1);
  cache.insert(Tokens{1, 2, 3}, Slots{1, 2, 3});
  cache.lock(cache.match_prefix(Tokens{1, 2}).node);
  EXPECT_EQ(cache.evict(10), Slots{3});
  EXPECT_EQ(sorted(slots_of(cache)), (Slots{1, 2}));
}

}  // namespace
}  // namespace shadowgraph::radix_cache_test
