// Contents are equal exactly where tokens are.
#include "runtime/content.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/small_steps.h"

namespace shadowgraph::content_test {
namespace {

std::vector<Chain> path(std::vector<int32_t> tokens) {
  std::vector<Chain> chains;
  append_path(kNoTokens, tokens, &chains);
  return chains;
}

TEST(Content, ChainsAreEqualAsFarAsTheTokensAre) {
  const std::vector<Chain> a = path({5, 6, 7, 8}), b = path({5, 6, 9, 8}), c = path({6, 5, 7, 8});
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);
  EXPECT_NE(a[3], b[3]);
  EXPECT_NE(a[1], c[1]);  // the same tokens in another order
}

TEST(Content, EveryShortTextHasAChainOfItsOwn) {
  std::set<Chain> all{kNoTokens, kNoEncoderTokens};
  size_t texts = 2;
  std::vector<Chain> level{kNoTokens, kNoEncoderTokens};
  for (int depth = 0; depth < 6; ++depth) {
    std::vector<Chain> next;
    for (const Chain chain : level)
      for (int32_t token = 0; token < 5; ++token) next.push_back(extend(chain, token));
    all.insert(next.begin(), next.end());
    texts += next.size();
    level = std::move(next);
  }
  EXPECT_EQ(all.size(), texts);
}

TEST(Content, ATreesTokensFollowTheirParents) {
  std::vector<Chain> tree;
  append_tree(kNoTokens, std::vector<int32_t>{1, 2, 3, 4}, std::vector<int32_t>{-1, 0, 0, 2},
              &tree);
  EXPECT_EQ(tree[1], path({1, 2})[1]);
  EXPECT_EQ(tree[2], path({1, 3})[1]);
  EXPECT_EQ(tree[3], path({1, 3, 4})[2]);
}

TEST(Content, ValuesTellEveryMemberApart) {
  const Content c{.chain = 9, .position = 3, .layer = 1, .kind = ContentKind::kKey};
  std::set<uint64_t> values{value_of(c, 0), value_of(c, 1)};
  for (Content other : {Content{8, 3, 1, ContentKind::kKey}, Content{9, 4, 1, ContentKind::kKey},
                        Content{9, 3, 2, ContentKind::kKey}, Content{9, 3, 1, ContentKind::kValue}})
    values.insert(value_of(other, 0));
  EXPECT_EQ(values.size(), 6u);
  EXPECT_EQ(value_of(c, 7), value_of(Content(c), 7));
}

/// A step made by hand says its tokens, so that worlds need no scheduler.
TEST(Content, SmallStepsSayWhatTheirSlotsHold) {
  const Step extend =
      make_step({.mode = ForwardMode::kExtend, .prefix_lens = {2, 0}, .q_lens = {1, 3}}, 8);
  EXPECT_EQ(extend.chains.prefix_of(0).size(), 2u);
  EXPECT_EQ(extend.chains.prefix_of(1).size(), 0u);
  EXPECT_EQ(extend.chains.fresh.size(), extend.out_cache_loc.size());
  EXPECT_EQ(extend.chains.fresh[0], path({own_token(1, 0), own_token(1, 1), own_token(1, 2)})[2]);
  EXPECT_EQ(extend.input_ids[1], own_token(2, 0));
  const DraftShape shape{2, 3, 4};
  const Step draft = make_step(
      {.mode = ForwardMode::kDraftDecode, .prefix_lens = {2}, .draft = shape, .draft_step = 1}, 16);
  EXPECT_EQ(draft.chains.fresh.size(), 6u);
  EXPECT_EQ(draft.input_ids.size(), draft.positions.size());
  const Step verify = make_step({.mode = ForwardMode::kTargetVerify,
                                 .prefix_lens = {2},
                                 .draft = shape,
                                 .trees = {{{-1, 0, 0, 1}, {0, 1, 1, 2}}}},
                                16);
  EXPECT_EQ(verify.chains.fresh.size(), 4u);
  EXPECT_EQ(verify.chains.fresh[3],
            shadowgraph::extend(verify.chains.fresh[1], verify.input_ids[3]));
  const Step encoders = make_step({.prefix_lens = {1, 1}, .encoder_lens = {2, 1}}, 8);
  EXPECT_EQ(encoders.chains.encoder.size(), 3u);
}

}  // namespace
}  // namespace shadowgraph::content_test
