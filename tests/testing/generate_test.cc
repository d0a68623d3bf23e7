// Steps are legal whatever is asked for, of every mode, and small batches are all there are.
#include "testing/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "testing/broken_laws.h"

namespace shadowgraph::testing::generate_test {
namespace {

const std::vector<ForwardMode> kAllModes = {ForwardMode::kExtend,        ForwardMode::kDecode,
                                            ForwardMode::kMixed,         ForwardMode::kIdle,
                                            ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                            ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill,
                                            ForwardMode::kDllmExtend,    ForwardMode::kDraftDecode};

/// Small scopes, and everything that an engine may have.
std::vector<Options> engines() {
  Options plain;
  plain.small_requests = 2, plain.histories = 100;
  Options everything = plain;
  everything.modes = kAllModes;
  everything.num_steps = 3, everything.topk = 2, everything.num_draft_tokens = 4;
  everything.dllm_block = 2, everything.prefix_cache = true;
  Options chain = everything;
  chain.topk = 1, chain.num_steps = 7, chain.num_draft_tokens = 8;
  Options wide = everything;
  wide.topk = 3, wide.num_steps = 5, wide.num_draft_tokens = 8;
  Options window = everything;
  window.prefix_cache = false, window.window_left = 3;
  Options encoder = plain;
  encoder.max_encoder_len = 5, encoder.modes.push_back(ForwardMode::kMixed);
  Options prebuilt = plain;
  prebuilt.modes = {ForwardMode::kPrebuilt, ForwardMode::kDecode};
  Options tight = plain;
  tight.max_requests = 1, tight.max_context_len = 3, tight.max_extend_len = 1;
  tight.page_sizes = {16};
  return {plain, everything, chain, wide, window, encoder, prebuilt, tight};
}

/// What is beyond the capacities that options give.
std::string beyond(const Options& o, const Case& c) {
  const ForwardBatch& b = c.batch;
  const auto in_pool = [&](int64_t slot) {
    return slot >= c.page_size && slot < int64_t{c.pool_pages} * c.page_size;
  };
  if (b.size() > o.max_requests) return "max_requests";
  if (c.truth.cu_seqlens_q.back() > o.max_tokens()) return "max_tokens";
  for (const std::vector<int32_t>& keys : c.truth.keys) {
    if (std::ssize(keys) > o.max_kv_len()) return "max_kv_len";
    if (!std::ranges::all_of(keys, in_pool)) return "a key's slot";
  }
  if (!std::ranges::all_of(b.out_cache_loc, in_pool)) return "a new slot";
  if (std::ssize(b.positions) != c.truth.cu_seqlens_q.back()) return "positions";
  if (b.full_to_swa.empty() != (o.window_left < 0)) return "full_to_swa";
  if (b.encoder_lens.empty() != (o.max_encoder_len == 0 || b.size() == 0)) return "encoder_lens";
  for (const int64_t slot : b.full_to_swa) {
    if (slot < -1 || slot >= int64_t{c.window_pages} * c.page_size) return "a window's slot";
  }
  return "";
}

TEST(Generate, EveryStepIsLegalAndWithinTheCapacities) {
  for (const Options& o : engines()) {
    const Status status = check(o, [&](Steps& steps) {
      while (const Case* c = steps.next()) {
        steps.expect(validate(c->batch));
        ASSERT_EQ(beyond(o, *c), "") << name_of(c->batch.mode);
      }
    });
    EXPECT_EQ(status.to_string(), "ok");
  }
}

TEST(Generate, NewTokensOfAStepHaveSlotsOfTheirOwn) {
  for (const Options& o : engines()) {
    const Status status = check(o, [&](Steps& steps) {
      while (const Case* c = steps.next()) {
        const std::vector<int32_t>& stored = c->truth.stored;
        ASSERT_EQ(std::set(stored.begin(), stored.end()).size(), stored.size());
        if (c->batch.mode == ForwardMode::kDraftDecode) continue;
        ASSERT_TRUE(std::ranges::equal(stored, c->batch.out_cache_loc));
      }
    });
    EXPECT_EQ(status.to_string(), "ok");
  }
}

/// Batches of up to n requests, each one of `each`.
int64_t batches(int32_t n, int64_t each) {
  int64_t sum = 0, power = 1;
  for (int32_t i = 1; i <= n; ++i) sum += power *= each;
  return sum;
}

int64_t small_count(const Options& options) {
  Counts counts;
  Options o = options;
  o.histories = 0;
  const Status status = check(
      o, [](Steps& steps) { steps.next(); }, &counts);
  EXPECT_EQ(status.to_string(), "ok");
  return counts.small;
}

TEST(Generate, SmallBatchesAreAsManyAsTheirLengthsCanBeChosen) {
  for (const int32_t n : {1, 2, 3}) {
    int64_t decodes = 0, extends = 0, verifies = 0, drafts = 0;
    for (const int32_t page_size : {1, 2, 4}) {
      const int64_t prefixes = 2 * page_size + 2, orders = 3;
      decodes += orders * batches(n, prefixes);
      extends += orders * batches(n, prefixes * 2);
      verifies += orders * batches(n, prefixes) * 4;  // trees of 4 tokens, 2 children each
      drafts += orders * batches(n, prefixes) * 2;    // steps before the last
    }
    Options o;
    o.small_requests = n;
    o.num_steps = 3, o.topk = 2, o.num_draft_tokens = 4;
    const auto count = [&](ForwardMode mode) {
      o.modes = {mode};
      return small_count(o);
    };
    EXPECT_EQ(count(ForwardMode::kDecode), decodes);
    EXPECT_EQ(count(ForwardMode::kExtend), extends);
    EXPECT_EQ(count(ForwardMode::kTargetVerify), verifies);
    EXPECT_EQ(count(ForwardMode::kDraftDecode), drafts);
    EXPECT_EQ(count(ForwardMode::kIdle), 3);
    o.modes = {ForwardMode::kDecode, ForwardMode::kExtend};
    EXPECT_EQ(small_count(o), decodes + extends);
  }
}

TEST(Generate, EachSmallBatchComesOnceInEveryOrderOfPages) {
  Options o;
  o.small_requests = 2, o.histories = 0;
  std::map<std::vector<std::vector<int32_t>>, int64_t> seen;
  const Status status = check(o, [&](Steps& steps) {
    const Case* c = steps.next();
    const auto mode = static_cast<int32_t>(c->batch.mode);
    ++seen[{{mode, c->page_size}, c->truth.q_lens, c->truth.kv_lens}];
  });
  EXPECT_EQ(status.to_string(), "ok");
  for (const auto& [shape, times] : seen) EXPECT_EQ(times, 3);
}

TEST(Generate, OptionsThatCannotBeAreSaidAllAtOnce) {
  Options o;
  o.modes.clear(), o.page_sizes = {3, 2};
  o.small_requests = -1, o.histories = -1, o.steps = 0, o.topk = 0, o.window_left = -2;
  o.max_requests = 0;
  EXPECT_EQ(ids(validate(o)), (Ids{"test.options", "test.options", "test.options", "test.options",
                                   "test.options", "test.options", "pool.shape", "pool.shape"}));
  Options features;
  features.num_steps = 2, features.num_draft_tokens = 3, features.max_encoder_len = 4;
  EXPECT_EQ(ids(validate(features)), Ids{"pool.shape"});
  for (const Options& fine : engines()) EXPECT_EQ(validate(fine).to_string(), "ok");
}

TEST(Generate, OptionsThatCannotBeRunNothing) {
  Options o;
  o.page_sizes = {};
  bool ran = false;
  const Status status = check(o, [&](Steps&) { ran = true; });
  EXPECT_EQ(ids(status), Ids{"test.options"});
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace shadowgraph::testing::generate_test
