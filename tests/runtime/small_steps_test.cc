// Steps made by hand are legal, and each request's slots its own.
#include "runtime/small_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace shadowgraph::small_steps_test {
namespace {

constexpr PageOrder kOrders[] = {PageOrder::kTidy, PageOrder::kReversed, PageOrder::kInterleaved};
constexpr int32_t kWidth = 11;

TEST(SmallSteps, EveryColumnHasASlotOfItsOwnInsideThePoolAndNoneInPageZero) {
  for (const PageOrder order : kOrders) {
    for (const int32_t page_size : {1, 2, 4}) {
      const Step step =
          make_step({.page_size = page_size, .order = order, .prefix_lens = {3, 0, 5}}, kWidth);
      std::set<int32_t> slots;
      for (size_t i = static_cast<size_t>(kWidth); i < step.req_to_token.size(); ++i) {
        const int32_t slot = step.req_to_token[i];
        EXPECT_GE(slot / page_size, 1);
        EXPECT_LT(slot, pool_slots(3, kWidth, page_size));
        EXPECT_EQ(slot % page_size, static_cast<int32_t>(i) % kWidth % page_size);
        EXPECT_TRUE(slots.insert(slot).second);
      }
      EXPECT_EQ(slots.size(), size_t{3} * kWidth);
      EXPECT_EQ(std::ranges::count(step.req_to_token, 0), kWidth);  // row 0 is nobody's
    }
  }
}

TEST(SmallSteps, PagesLieInTheOrderThatTheShapeSays) {
  const auto pages = [](PageOrder order) {
    const Step step = make_step({.page_size = 2, .order = order, .prefix_lens = {1, 1}}, 4);
    std::vector<int32_t> of;
    for (size_t i = 4; i < step.req_to_token.size(); i += 2) of.push_back(step.req_to_token[i] / 2);
    return of;
  };
  EXPECT_EQ(pages(PageOrder::kTidy), (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(pages(PageOrder::kReversed), (std::vector<int32_t>{4, 3, 2, 1}));
  EXPECT_EQ(pages(PageOrder::kInterleaved), (std::vector<int32_t>{1, 3, 2, 4}));
}

TEST(SmallSteps, EveryModeIsALegalBatchOfTheLengthsAskedFor) {
  const DraftShape draft{2, 2, 3};
  const DraftTree tree{{-1, 0, 0}, {0, 1, 1}};
  const StepShape shapes[] = {
      {.page_size = 2, .prefix_lens = {3, 0}},
      {.mode = ForwardMode::kExtend, .page_size = 2, .prefix_lens = {3, 0}, .q_lens = {2, 4}},
      {.mode = ForwardMode::kDraftExtendV2,
       .page_size = 2,
       .prefix_lens = {3, 0},
       .q_lens = {2, 4},
       .draft = draft},
      {.mode = ForwardMode::kDraftDecode, .page_size = 2, .prefix_lens = {3, 0}, .draft = draft},
      {.mode = ForwardMode::kTargetVerify,
       .page_size = 2,
       .prefix_lens = {3, 0},
       .draft = draft,
       .trees = {tree, tree}},
      {.page_size = 2, .prefix_lens = {3, 0}, .encoder_lens = {2, 1}, .swa = true},
  };
  for (const StepShape& shape : shapes) {
    const Step step = make_step(shape, 24);
    const ForwardBatch batch = step.batch();
    ASSERT_EQ(validate(batch).to_string(), "ok") << name_of(shape.mode);
    EXPECT_EQ(batch.extent(0).prefix_len, 3);
    EXPECT_EQ(batch.extent(1).prefix_len, 0);
    const int32_t q = shape.q_lens.empty() ? (is_target_verify(shape.mode) ? 3 : 1) : 4;
    EXPECT_EQ(batch.extent(1).q_len, q);
  }
}

TEST(SmallSteps, APositionIsThePrefixAndThePlaceInTheChainOrTheTree) {
  using Longs = std::vector<int64_t>;
  const StepShape extend{.mode = ForwardMode::kExtend, .prefix_lens = {3, 0}, .q_lens = {2, 1}};
  EXPECT_EQ(make_step(extend, 8).positions, (Longs{3, 4, 0}));
  const DraftShape draft{2, 2, 3};
  const StepShape verify{.mode = ForwardMode::kTargetVerify,
                         .prefix_lens = {3},
                         .draft = draft,
                         .trees = {{{-1, 0, 0}, {0, 1, 1}}}};
  EXPECT_EQ(make_step(verify, 16).positions, (Longs{3, 4, 4}));
  const StepShape drafts{.mode = ForwardMode::kDraftDecode,
                         .prefix_lens = {3, 1},
                         .draft = {2, 4, 5},
                         .draft_step = 2};
  EXPECT_EQ(make_step(drafts, 32).positions, (Longs{5, 5, 3, 3}));
}

TEST(SmallSteps, NewTokensAreStoredBehindTheEncoderAndThePrefix) {
  const Step step = make_step({.page_size = 1, .prefix_lens = {3, 0}, .encoder_lens = {2, 1}}, 8);
  EXPECT_EQ(step.out_cache_loc[0], step.req_to_token[8 + 2 + 3]);
  EXPECT_EQ(step.out_cache_loc[1], step.req_to_token[16 + 1]);
  EXPECT_EQ(
      step.encoder_out_cache_loc,
      (std::vector<int64_t>{step.req_to_token[8], step.req_to_token[9], step.req_to_token[16]}));
}

TEST(SmallSteps, TheSecondPoolHasEveryPageOnceAndElsewhere) {
  const Step step = make_step({.page_size = 2, .prefix_lens = {3, 1}, .swa = true}, 6);
  const int32_t slots = pool_slots(2, 6, 2);
  ASSERT_EQ(step.full_to_swa.size(), static_cast<size_t>(slots) + 1);
  std::set<int64_t> to;
  for (int32_t slot = 2; slot < slots; ++slot) {
    const int64_t other = step.full_to_swa[static_cast<size_t>(slot)];
    EXPECT_GE(other, 2);
    EXPECT_LT(other, slots);
    EXPECT_EQ(other % 2, slot % 2);
    to.insert(other);
  }
  EXPECT_EQ(to.size(), static_cast<size_t>(slots) - 2);
  EXPECT_EQ(step.full_to_swa[0], 0);
  EXPECT_EQ(step.full_to_swa.back(), -1);
}

TEST(SmallSteps, TreesAreAsManyAsTheirParentsCanBeChosen) {
  // 5 tokens by the sizes of their levels: 11111 1, 1112 1, 1121 2, 1211 2, 122 4.
  const size_t of_two[] = {1, 1, 2, 4, 10}, chains[] = {1, 1, 1, 1, 1};
  for (int32_t tokens = 1; tokens <= 5; ++tokens) {
    const auto i = static_cast<size_t>(tokens - 1);
    EXPECT_EQ(all_trees(tokens, 1).size(), chains[i]) << tokens;
    EXPECT_EQ(all_trees(tokens, 2).size(), of_two[i]) << tokens;
  }
}

TEST(SmallSteps, EveryTreeIsLegalAndNoneTwice) {
  for (const int32_t topk : {1, 2, 3}) {
    std::set<std::vector<int32_t>> seen;
    for (const DraftTree& tree : all_trees(5, topk)) {
      EXPECT_TRUE(seen.insert(tree.parent).second);
      ASSERT_EQ(tree.size(), 5);
      EXPECT_EQ(tree.parent[0], -1);
      EXPECT_EQ(tree.depth[0], 0);
      EXPECT_TRUE(std::ranges::is_sorted(tree.depth));
      std::map<int32_t, int32_t> children;
      for (size_t t = 1; t < 5; ++t) {
        const int32_t parent = tree.parent[t];
        ASSERT_TRUE(parent >= 0 && parent < static_cast<int32_t>(t));
        EXPECT_EQ(tree.depth[t], tree.depth[static_cast<size_t>(parent)] + 1);
        EXPECT_LE(++children[parent], topk);
      }
    }
  }
}

}  // namespace
}  // namespace shadowgraph::small_steps_test
