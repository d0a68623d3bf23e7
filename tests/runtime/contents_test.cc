// The book of contents accepts every history of a right scheduler, and finds each slip of a wrong
// one in a plain history.
#include "runtime/contents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "runtime/histories.h"

namespace shadowgraph::contents_test {
namespace {

/// A change on the way to the book; empty: none.
using Slip = std::function<void(Step&, PoolState&)>;

/// The first finding of histories, with their seed and step.
struct Found {
  std::string law, text;
  uint64_t seed = 0;
  int step = 0;
};

/// Plays histories as src/fuzz/history/history.cc does, until something is found.
Found first_found(const RuntimeConfig& config, uint64_t seeds, int steps, const Slip& slip = {}) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    Choices choices{Rng(seed)};
    Scheduler scheduler(config);
    Contents contents(config);
    for (int i = 0; i < steps; ++i) {
      Step step = scheduler.next(choices);
      PoolState pools = scheduler.state();
      if (slip) slip(step, pools);
      contents.follow(scheduler.told(), pools, &step);
      Status status = check_pool(pools);
      status.add(check_step(step, pools));
      if (status.ok()) status.add(contents.judge(pools, step));
      if (!status.ok())
        return {status.findings()[0].id, std::string(name_of(step.mode)) + ' ' + status.to_string(),
                seed, i};
    }
  }
  return {};
}

RuntimeConfig ahead(RuntimeConfig c) {
  c.flight = 1;
  return c;
}

TEST(Contents, AreRightInEveryHistory) {
  for (const Engine& e : engines()) {
    for (const RuntimeConfig& config : {e.config, ahead(e.config)}) {
      const Found found = first_found(config, 20, 200);
      EXPECT_EQ(found.law, "") << e.name << " page_size " << config.page_size << " flight "
                               << config.flight << " seed " << found.seed << " step " << found.step
                               << '\n'
                               << found.text;
    }
  }
}

/// The law that a slip breaks first, in plain histories; "" if none is.
std::string broken(const RuntimeConfig& config,
                   const std::function<void(Step&, PoolState&)>& slip) {
  return first_found(config, 40, 100, slip).law;
}

RuntimeConfig sharing(int32_t page_size = 4) {
  RuntimeConfig c = config_of(page_size);
  c.radix = true;
  return c;
}

TEST(Contents, WhatACopyShouldHaveMovedIsMissed) {
  const auto no_copies = [](Step& step, PoolState&) {
    if (is_draft_extend(step.mode, DraftExtendV2::kIncluded)) step.copies.clear();
  };
  EXPECT_EQ(broken(drafting(1, {2, 3, 6}), no_copies), "life.read");
  const auto reversed = [](Step& step, PoolState&) {
    if (is_draft_extend(step.mode, DraftExtendV2::kIncluded)) std::ranges::reverse(step.copies);
  };
  EXPECT_EQ(broken(drafting(1, {2, 3, 6}), reversed), "life.read");
}

TEST(Contents, AStateThatGoesOnFromAnotherIsFound) {
  RuntimeConfig config = sharing(1);
  config.state_slots = 7, config.state_chunk = 4;
  const auto no_copy = [](Step& step, PoolState&) {
    std::erase_if(step.state_moves,
                  [](const StateMove& m) { return m.kind == StateMove::Kind::kCopy; });
  };
  EXPECT_EQ(broken(config, no_copy), "life.read");
  const auto not_fresh = [](Step& step, PoolState&) {
    for (StateMove& m : step.state_moves)
      if (m.kind == StateMove::Kind::kFresh) m.kind = StateMove::Kind::kTake;
  };
  EXPECT_EQ(broken(config, not_fresh), "life.read");
}

TEST(Contents, ADraftThatOverwritesStoredTokensIsFound) {
  const auto one_back = [](Step& step, PoolState& pools) {
    if (step.mode != ForwardMode::kDraftDecode || step.seq_lens[0] == 0) return;
    const PoolRequest& r = *pools.find(step.requests[0]);
    step.out_cache_loc[0] = pools.text(r)[static_cast<size_t>(r.kv_len) - 1];
  };
  EXPECT_EQ(broken(drafting(1, {1, 3, 4}), one_back), "life.write");
}

TEST(Contents, WhatACacheSaysAndDoesNotHaveIsFound) {
  const auto another = [](Step&, PoolState& pools) {
    if (!pools.cached.empty()) pools.cached.back().chain ^= 1;
  };
  EXPECT_EQ(broken(sharing(), another), "life.label");
  RuntimeConfig config = sharing(1);
  config.state_slots = 7, config.state_chunk = 4;
  const auto swapped = [](Step&, PoolState& pools) {
    if (pools.snapshots.size() > 1) std::swap(pools.snapshots[0].chain, pools.snapshots[1].chain);
  };
  EXPECT_EQ(broken(config, swapped), "life.label");
}

TEST(Contents, LocksThatNobodyHoldsAreFound) {
  const auto more = [](Step&, PoolState& pools) {
    if (!pools.cached.empty()) ++pools.cached.front().locks;
  };
  EXPECT_EQ(broken(sharing(), more), "life.lock");
  const auto none = [](Step&, PoolState& pools) {
    for (CachedSlot& c : pools.cached) c.locks = 0;
  };
  EXPECT_EQ(broken(sharing(), none), "life.lock");
}

TEST(Contents, PagesThatAreHandedOutTooEarlyAreFound) {
  const auto twice = [](Step&, PoolState& pools) {
    if (pools.taken[3]) ++pools.takes[3];
  };
  EXPECT_EQ(broken(config_of(4), twice), "life.hold");
  // Slots that wait for a step in flight are free before it has ended.
  const auto early = [](Step&, PoolState& pools) {
    for (const int32_t slot : std::exchange(pools.freed, {})) {
      const auto page = static_cast<size_t>(slot / pools.config.page_size);
      pools.frees[page] += pools.taken[page];
      pools.taken[page] = false;
    }
  };
  EXPECT_EQ(broken(ahead(config_of(4)), early), "life.hold");
  EXPECT_EQ(broken(config_of(4), early), "");
  const auto late = [](Step& step, PoolState&) { step.in_flight = 2; };
  EXPECT_EQ(broken(ahead(config_of(4)), late), "life.hold");
}

TEST(Contents, PagesThatAreFreedTwiceAreFound) {
  const auto twice = [](Step&, PoolState& pools) {
    if (!pools.taken[3] && pools.takes[3] > 0) ++pools.frees[3];
  };
  EXPECT_EQ(broken(config_of(4), twice), "life.free_once");
  const auto window = [](Step&, PoolState& pools) {
    if (!pools.swa_taken[2] && pools.swa_takes[2] > 0) ++pools.swa_frees[2];
  };
  EXPECT_EQ(broken(with_window(config_of(4)), window), "life.free_once");
}

TEST(Contents, LengthsThatNoStepGaveAreFound) {
  const auto more = [](Step& step, PoolState& pools) {
    for (PoolRequest& r : pools.requests) {
      const bool idle = std::ranges::find(step.requests, r.id) == step.requests.end();
      if (idle && r.kv_len < r.slots_len) ++r.kv_len;
    }
  };
  EXPECT_EQ(broken(drafting(1, {1, 3, 4}), more), "life.length");
  const auto early = [](Step&, PoolState& pools) {
    for (PoolRequest& r : pools.requests) r.confirmed_len = r.kv_len;
  };
  EXPECT_EQ(broken(ahead(config_of(4)), early), "life.length");
  EXPECT_EQ(broken(config_of(4), early), "");
}

TEST(Contents, TokensOfAnotherRowAreFound) {
  const auto swapped = [](Step& step, PoolState&) {
    if (step.mode == ForwardMode::kDecode && step.input_ids.size() > 1)
      std::swap(step.input_ids[0], step.input_ids[1]);
  };
  EXPECT_EQ(broken(config_of(1), swapped), "life.input");
}

/// A finding says whose tokens are there.
TEST(Contents, AFindingNamesTheTokensThatItFound) {
  const auto no_copies = [](Step& step, PoolState&) {
    if (is_draft_extend(step.mode, DraftExtendV2::kIncluded)) step.copies.clear();
  };
  const Found found = first_found(drafting(1, {2, 3, 6}), 40, 100, no_copies);
  EXPECT_NE(found.text.find("expected token "), std::string::npos) << found.text;
  EXPECT_NE(found.text.find(" of request "), std::string::npos) << found.text;
}

}  // namespace
}  // namespace shadowgraph::contents_test
