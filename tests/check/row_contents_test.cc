// The contents of a step's keys follow its chains, row by row, as canonical rows have their slots.
#include "check/worlds/row_contents.h"

#include <gtest/gtest.h>

#include "check/canonical.h"
#include "check/runs.h"

namespace shadowgraph::row_contents_test {
namespace {

std::vector<Chain> chains(const std::vector<TokenContent>& contents) {
  std::vector<Chain> all;
  for (const TokenContent& c : contents) all.push_back(c.chain);
  return all;
}

std::vector<Chain> joined(std::span<const Chain> a, std::span<const Chain> b) {
  std::vector<Chain> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

RowContents contents_of(const Step& step, const ModelConfig& m, size_t layer = 0) {
  const ForwardBatch batch = step.batch();
  RowContents c = row_contents(step, batch, m.layers[layer], m);
  const CanonicalRows rows = canonical_rows(batch, m.layers[layer], m);
  EXPECT_EQ(c.keys.size(), rows.keys.size());
  for (size_t r = 0; r < std::min(c.keys.size(), rows.keys.size()); ++r)
    EXPECT_EQ(c.keys[r].size(), rows.keys[r].size()) << r;
  return c;
}

TEST(RowContents, ARowHasItsPrefixThenItsNewTokens) {
  const ModelConfig m = model_of(2, {small_layer()});
  const Step step = make_step(
      {.mode = ForwardMode::kExtend, .page_size = 2, .prefix_lens = {3, 0}, .q_lens = {2, 4}},
      width_of(m));
  const RowContents c = contents_of(step, m);
  const std::span<const Chain> fresh = step.chains.fresh;
  EXPECT_EQ(chains(c.keys[0]), joined(step.chains.prefix_of(0), fresh.first(2)));
  EXPECT_EQ(chains(c.keys[1]), joined({}, fresh.last(4)));
  EXPECT_EQ(chains(c.fresh), joined(fresh, {}));
  EXPECT_EQ(c.keys[0][4].to_string(), "token 4 of request 1");
}

TEST(RowContents, ABranchHasItsOwnTokensUpToTheStep) {
  const ModelConfig m = model_of(1, {small_layer()}, {2, 3, 4});
  const Step step = make_step(
      {.mode = ForwardMode::kDraftDecode, .prefix_lens = {3}, .draft = {2, 3, 4}, .draft_step = 1},
      width_of(m));
  const RowContents c = contents_of(step, m);
  const std::span<const Chain> fresh = step.chains.fresh;
  EXPECT_EQ(chains(c.keys[0]), joined(step.chains.prefix_of(0), fresh.first(2)));
  EXPECT_EQ(chains(c.keys[1]), joined(step.chains.prefix_of(0), fresh.subspan(3, 2)));
  EXPECT_EQ(chains(c.fresh), (std::vector<Chain>{fresh[1], fresh[4]}));
}

TEST(RowContents, ARankHasItsOwnKeysAndAllNewTokens) {
  ModelConfig m = model_of(1, {small_layer()});
  m.dcp_size = 2, m.dcp_rank = 1;
  const Step step = make_step({.page_size = 2, .prefix_lens = {4}}, width_of(m));
  const RowContents c = contents_of(step, m);
  const std::span<const Chain> prefix = step.chains.prefix_of(0);
  EXPECT_EQ(chains(c.keys[0]), (std::vector<Chain>{prefix[1], prefix[3]}));
  EXPECT_EQ(chains(c.fresh), step.chains.fresh);
}

TEST(RowContents, ACrossLayerReadsTheEncoder) {
  ModelConfig m = model_of(1, {small_layer(), small_layer()});
  m.max_encoder_len = 5;
  m.layers[1].cross = true;
  m.layers[1].params.causal = false;
  const Step step = make_step({.prefix_lens = {2, 4}, .encoder_lens = {5, 3}}, width_of(m));
  const RowContents c = contents_of(step, m, 1);
  EXPECT_EQ(joined(chains(c.keys[0]), chains(c.keys[1])), step.chains.encoder);
}

/// A step that somebody made without chains.
TEST(RowContents, TokensWithoutChainsAreTheirRequestsOwn) {
  const ModelConfig m = model_of(1, {small_layer()});
  Step step = make_step({.prefix_lens = {2, 2}}, width_of(m));
  step.chains = {};
  const RowContents c = contents_of(step, m);
  for (size_t r : {0, 1}) {
    for (size_t k = 0; k < 3; ++k)
      EXPECT_EQ(std::ranges::count(chains(c.keys[1 - r]), c.keys[r][k].chain), 0);
  }
}

}  // namespace
}  // namespace shadowgraph::row_contents_test
