// Histories of many kinds of engines: every step is legal, everything that may happen does, and the
// KV of a request is where its row says.
#include "runtime/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "runtime/histories.h"

namespace shadowgraph::scheduler_test {
namespace {

TEST(Scheduler, EveryStepOfEveryHistoryIsLegal) {
  for (const Engine& e : engines()) {
    ASSERT_TRUE(validate(e.config).ok()) << e.name << validate(e.config).to_string();
    std::set<ForwardMode> modes;
    play(e.config, 20, 200, [&](const Moment& m, uint64_t seed, int i) {
      modes.insert(m.step.mode);
      Status status = check_pool(m.state);
      status.add(check_step(m.step, m.state));
      ASSERT_TRUE(status.ok()) << e.name << " page_size " << e.config.page_size << " seed " << seed
                               << " step " << i << ' ' << name_of(m.step.mode) << '\n'
                               << status.to_string();
    });
    EXPECT_EQ(modes, e.modes) << e.name;
  }
}

/// Any features that go together, in the smallest pools that are legal, or a little larger.
RuntimeConfig random_config(Choices& choices) {
  RuntimeConfig c;
  c.page_size = choices.of({1, 2, 4, 8});
  c.max_requests = choices.between(1, 6);
  c.max_context_len = choices.between(2, 24);
  c.max_chunk = choices.between(1, 12);
  const uint32_t kind = choices.below(4);
  if (kind == 1) c.max_encoder_len = choices.between(1, 12);
  if (kind == 2) c.dllm_block = choices.between(1, c.max_context_len - 1);
  if (kind == 3) {
    c.draft.topk = choices.between(1, 4), c.draft.num_steps = choices.between(1, 4);
    const auto most = static_cast<int>(std::min<int64_t>(c.draft.max_tokens(), 12));
    c.draft.num_draft_tokens = choices.between(1, most);
  }
  const int32_t all = (c.width() + c.page_size - 1) / c.page_size;
  c.num_pages = all + choices.between(0, 2 * all);
  c.prebuilt = c.max_encoder_len == 0 && choices.one_in(4);
  if (choices.one_in(2)) {
    c.window_left = choices.between(0, 8);
    // As few as validate() lets pass.
    for (c.swa_pages = 1; !validate(c).ok();) ++c.swa_pages;
  } else {
    c.radix = c.max_encoder_len == 0 && choices.one_in(2);
  }
  c.flight = choices.between(0, 1);
  return c;
}

TEST(Scheduler, EveryLegalConfigHasLegalHistories) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Choices choices{Rng(seed)};
    const RuntimeConfig config = random_config(choices);
    ASSERT_TRUE(validate(config).ok()) << validate(config).to_string();
    play(config, 1, 80, [&](const Moment& m, uint64_t, int i) {
      Status status = check_pool(m.state);
      status.add(check_step(m.step, m.state));
      ASSERT_TRUE(status.ok()) << "config " << seed << " step " << i << ' ' << name_of(m.step.mode)
                               << '\n'
                               << status.to_string();
    });
  }
}

TEST(Scheduler, AHistoryIsItsChoices) {
  for (const Engine& e : engines()) {
    Choices choices{Rng(3)};
    Scheduler first(e.config);
    std::vector<Step> steps;
    for (int i = 0; i < 60; ++i) steps.push_back(first.next(choices));
    Choices recorded{choices.made()};
    Scheduler second(e.config);
    for (const Step& step : steps) {
      const Step again = second.next(recorded);
      EXPECT_EQ(again.mode, step.mode);
      EXPECT_EQ(again.requests, step.requests);
      EXPECT_EQ(again.seq_lens, step.seq_lens);
      EXPECT_EQ(again.out_cache_loc, step.out_cache_loc);
      EXPECT_EQ(again.req_to_token, step.req_to_token);
      EXPECT_EQ(again.custom_mask, step.custom_mask);
      EXPECT_EQ(again.copies, step.copies);
    }
  }
}

TEST(Scheduler, ShortenedChoicesAreAHistoryToo) {
  for (const Engine& e : engines()) {
    Choices choices{Rng(5)};
    Scheduler first(e.config);
    for (int i = 0; i < 30; ++i) first.next(choices);
    for (const size_t keep : {size_t{0}, size_t{1}, choices.made().size() / 2}) {
      Choices recorded{std::span(choices.made()).first(keep)};
      Scheduler scheduler(e.config);
      for (int i = 0; i < 60; ++i) {
        const Step step = scheduler.next(recorded);
        Status status = check_pool(scheduler.state());
        status.add(check_step(step, scheduler.state()));
        ASSERT_TRUE(status.ok()) << e.name << ' ' << status.to_string();
      }
    }
  }
}

/// What a history has seen, by name.
using Seen = std::map<std::string, int>;

Seen seen_in(const RuntimeConfig& config) {
  Seen seen;
  std::map<OwnerId, PoolRequest> before;
  play(config, 10, 300, [&](const Moment& m, uint64_t, int i) {
    if (i == 0) before.clear();
    std::map<OwnerId, PoolRequest> now;
    for (const PoolRequest& r : m.state.requests) {
      now[r.id] = r;
      seen["admitted with a cached prefix"] += !before.contains(r.id) && r.shared_len > 0;
      seen["evicted from the window"] += r.evicted_len > 0;
      seen["without an encoder"] += config.max_encoder_len > 0 && r.encoder_len == 0;
      seen["at the longest context"] += r.kv_len + 1 == config.max_context_len;
    }
    for (const auto& [id, r] : before) {
      seen["left"] += !now.contains(id);
      seen["back after it was retracted"] += now.contains(id) && now[id].kv_len < r.kv_len;
    }
    const Owners owners = owners_of(m.state);
    for (const auto& page : owners.pages) seen["a page of several requests"] += page.size() > 1;
    const auto used = std::ranges::count(m.state.taken, true);
    seen["full"] += used + 1 == static_cast<int64_t>(m.state.taken.size());
    const ForwardBatch batch = m.step.batch();
    for (int64_t k = 0; k < batch.size(); ++k) {
      const RequestExtent e = batch.extent(k);
      seen["chunk after a chunk"] += m.step.mode == ForwardMode::kExtend && e.prefix_len > 0;
      seen["several requests"] += k > 0;
      seen["prefix inside a page"] += e.prefix_len % config.page_size != 0;
      seen["ragged"] += k > 0 && e.q_len != batch.extent(0).q_len;
    }
    seen["copies"] += !m.step.copies.empty();
    before = std::move(now);
  });
  return seen;
}

TEST(Scheduler, EverythingThatMayHappenDoes) {
  const auto expect = [](const RuntimeConfig& config, std::initializer_list<const char*> events) {
    Seen seen = seen_in(config);
    for (const char* event : events) EXPECT_GT(seen[event], 0) << event;
  };
  RuntimeConfig radix = config_of(4);
  radix.radix = true;
  expect(radix, {"admitted with a cached prefix", "left", "back after it was retracted",
                 "a page of several requests", "full", "chunk after a chunk", "several requests",
                 "prefix inside a page", "ragged", "at the longest context"});
  expect(with_window(config_of(4)), {"evicted from the window", "back after it was retracted"});
  RuntimeConfig encoder = config_of(1);
  encoder.max_encoder_len = 8;
  expect(encoder, {"without an encoder", "left", "several requests", "ragged"});
  expect(drafting(4, {2, 3, 6}), {"copies", "prefix inside a page", "left", "several requests",
                                  "ragged", "back after it was retracted"});
}

/// fi.I-28.
TEST(Scheduler, AMixedStepHasItsPromptsFirst) {
  std::map<OwnerId, int32_t> whole;  // of each request whose prompt is stored, its length
  int mixed = 0;
  play(config_of(4), 10, 200, [&](const Moment& m, uint64_t, int i) {
    if (i == 0) whole.clear();
    for (const PoolRequest& r : m.state.requests) {
      const auto it = whole.find(r.id);
      if (it != whole.end() && r.kv_len < it->second) whole.erase(it);  // retracted
    }
    const Step& step = m.step;
    bool decodes = false;
    for (size_t row = 0; row < step.extend_lens.size(); ++row) {
      const OwnerId id = step.requests[row];
      const bool decode = whole.contains(id);
      if (step.mode == ForwardMode::kMixed) {
        EXPECT_FALSE(decodes && !decode) << row;
        EXPECT_TRUE(!decode || step.extend_lens[row] == 1) << row;
        decodes = decode;
      }
      if (step.seq_lens[row] == step.orig_seq_lens[row]) whole[id] = step.seq_lens[row];
    }
    mixed += decodes ? 1 : 0;
  });
  EXPECT_GT(mixed, 10);
}

/// With a step in flight lengths run ahead of results; what cannot be undone waits for them.
TEST(Scheduler, AStepInFlightKeepsItsSlotsUntilItHasEnded) {
  RuntimeConfig config = with_window(config_of(4));
  config.flight = 1;
  Seen seen;
  play(config, 10, 300, [&](const Moment& m, uint64_t, int i) {
    EXPECT_LE(m.step.in_flight, 1);
    seen["waited for the step in flight"] += i > 0 && m.step.in_flight == 0;
    seen["slots that wait"] += !m.state.freed.empty();
    for (const PoolRequest& r : m.state.requests) {
      seen["ahead of its results"] += r.confirmed_len < r.kv_len;
      EXPECT_LE(r.evicted_len, std::max(0, r.confirmed_len - config.window_left));
    }
    if (m.step.in_flight == 0) {
      EXPECT_EQ(m.state.freed, Slots{});
    }
  });
  for (const char* event :
       {"waited for the step in flight", "slots that wait", "ahead of its results"})
    EXPECT_GT(seen[event], 0) << event;
  config.flight = 0;
  play(config, 5, 100, [&](const Moment& m, uint64_t, int) {
    for (const PoolRequest& r : m.state.requests) EXPECT_EQ(r.confirmed_len, r.kv_len);
    EXPECT_EQ(m.state.freed, Slots{});
  });
}

TEST(Scheduler, APrebuiltPromptArrivesWholeAndOnceUntilItIsRetracted) {
  RuntimeConfig config = config_of(4);
  config.prebuilt = true;
  for (const bool radix : {false, true}) {
    config.radix = radix;
    std::map<OwnerId, int32_t> stored;  // of each request that has arrived
    int again = 0;
    play(config, 10, 200, [&](const Moment& m, uint64_t, int i) {
      if (i == 0) stored.clear();
      for (const PoolRequest& r : m.state.requests) {
        const auto it = stored.find(r.id);
        if (it == stored.end() || r.kv_len >= it->second) continue;
        stored.erase(it);
        ++again;
      }
      for (size_t k = 0; k < m.step.requests.size(); ++k) {
        const OwnerId id = m.step.requests[k];
        const PoolRequest& r = *m.state.find(id);
        ASSERT_EQ(stored.contains(id), m.step.mode == ForwardMode::kDecode);
        if (m.step.mode == ForwardMode::kPrebuilt) {
          ASSERT_EQ(r.kv_len, r.shared_len);
        }
        stored[id] = r.kv_len + m.step.batch().q_len(static_cast<int64_t>(k));
      }
    });
    EXPECT_GT(again, 0);
  }
}

/// A memory of tags: every token that is stored gets a new one.
class Tags {
 public:
  void step(const Step& step, const PoolState& state) {
    for (const SlotCopy& c : step.copies) kv_[c.to] = kv_[c.from];
    const ForwardBatch batch = step.batch();
    for (int64_t i = 0; i < batch.size(); ++i) {
      const PoolRequest& r = *state.find(step.requests[static_cast<size_t>(i)]);
      const ForwardBatch one = batch.slice(i, 1);
      Stored& stored = stored_[r.id];
      if (is_draft_extend(step.mode, DraftExtendV2::kIncluded)) accept(one, r, state, &stored);
      expect_prefix(r, state, stored, one);
      if (step.mode == ForwardMode::kDraftDecode) continue;
      stored.verified.clear();
      std::vector<int64_t> fresh;
      // The draft model has a pool of its own: what it catches up with leaves the target's KV.
      if (is_draft_extend(step.mode, DraftExtendV2::kIncluded)) continue;
      for (const int64_t slot : one.out_cache_loc) fresh.push_back(kv_[slot] = ++last_);
      if (is_target_verify(step.mode)) {
        stored.verified = fresh;
        stored.mask.assign(one.spec.custom_mask.begin(), one.spec.custom_mask.end());
        continue;
      }
      stored.tags.resize(static_cast<size_t>(one.extent(0).prefix_len));
      stored.tags.insert(stored.tags.end(), fresh.begin(), fresh.end());
    }
  }
  int64_t moved() const { return moved_; }

 private:
  struct Stored {
    std::vector<int64_t> tags;      // of the text
    std::vector<int64_t> verified;  // of the tree
    std::vector<uint8_t> mask;
  };

  /// The columns that the draft takes over hold a path of the verified tree.
  void accept(const ForwardBatch& one, const PoolRequest& r, const PoolState& state, Stored* s) {
    if (s->verified.empty()) return;
    const auto text = state.text(r).subspan(static_cast<size_t>(r.kv_len));
    const size_t keys = static_cast<size_t>(r.kv_len) + s->verified.size();
    size_t last = 0;
    for (int32_t j = 0; j < one.extent(0).q_len; ++j) {
      const int64_t tag = kv_[text[static_cast<size_t>(j)]];
      const auto at = std::ranges::find(s->verified, tag) - s->verified.begin();
      const auto u = static_cast<size_t>(at);
      const bool accepted = one.mode == ForwardMode::kDraftExtend;
      if (!accepted && (u >= s->verified.size() || (j > 0 && u <= last))) break;  // v2: not known
      ASSERT_LT(u, s->verified.size());
      ASSERT_TRUE(j == 0 ? u == 0 : u > last);
      const bool sees = j == 0 || s->mask.empty() ||
                        s->mask[u * keys + static_cast<size_t>(r.kv_len) + last] != 0;
      ASSERT_TRUE(sees || !accepted);
      moved_ += u != static_cast<size_t>(j);
      s->tags.resize(static_cast<size_t>(r.kv_len) + static_cast<size_t>(j));
      s->tags.push_back(tag);
      last = u;
    }
  }

  void expect_prefix(const PoolRequest& r, const PoolState& state, const Stored& stored,
                     const ForwardBatch& one) {
    const auto text = state.text(r);
    ASSERT_GE(stored.tags.size(), static_cast<size_t>(r.kv_len));
    for (int32_t c = 0; c < r.kv_len; ++c)
      ASSERT_EQ(kv_[text[static_cast<size_t>(c)]], stored.tags[static_cast<size_t>(c)])
          << name_of(one.mode) << " request " << r.id << " token " << c;
  }

  std::map<int64_t, int64_t> kv_;
  std::map<OwnerId, Stored> stored_;
  int64_t last_ = 0, moved_ = 0;
};

TEST(Scheduler, WhatARequestStoredIsWhereItsRowSays) {
  for (const Engine& e : engines()) {
    if (e.config.radix) continue;  // a prefix may be another request's
    Tags tags;
    play(e.config, 5, 200, [&](const Moment& m, uint64_t, int i) {
      if (i == 0) tags = {};
      tags.step(m.step, m.state);
    });
    EXPECT_EQ(tags.moved() > 0, e.config.draft.topk > 1) << e.name;
  }
}

}  // namespace
}  // namespace shadowgraph::scheduler_test
