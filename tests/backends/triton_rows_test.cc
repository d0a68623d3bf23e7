// What Triton's lists hold, and the number of splits, against the engine's own figures.
#include "backends/lists/triton_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace shadowgraph::triton_rows_test {
namespace {

using enum ForwardMode;
using Ints = std::vector<int32_t>;

Limits limits(int32_t heads, int32_t kv_heads, int32_t max_kv_len = 8192) {
  Limits l;
  l.model.layers.resize(1);
  l.model.layers[0].params.num_qo_heads = heads;
  l.model.layers[0].params.num_kv_heads = kv_heads;
  l.max_kv_len = l.model.max_context_len = max_kv_len;
  return l;
}

Ints splits(const Limits& l, Ints rows, bool window_layers = false) {
  count_kv_splits(l, window_layers, rows);
  return rows;
}

TEST(KvSplits, AreTheEnginesOfTheseLengths) {
  const Limits grouped = limits(32, 8);
  EXPECT_EQ(splits(grouped, {100, 200}), (Ints{4, 8}));
  EXPECT_EQ(splits(grouped, {1, 1000}), (Ints{1, 8}));
  EXPECT_EQ(splits(grouped, {1000, 1100, 1200}), (Ints{7, 8, 8}));
  EXPECT_EQ(splits(limits(32, 32), {4096, 4096, 4096, 4096}), (Ints{7, 7, 7, 7}));
  // Recorded with 8 query heads over 2 KV heads.
  EXPECT_EQ(splits(limits(8, 2), {38, 40, 7, 12}), (Ints{8, 8, 2, 3}));
}

TEST(KvSplits, OfGroupsTheKernelTakesSixteenHeadsAtOnce) {
  EXPECT_EQ(splits(limits(64, 1), {4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096}),
            Ints(10, 8));
  Limits small = limits(64, 1);
  small.model.split.num_sms = 13;  // 78 programs, 40 blocks
  EXPECT_EQ(splits(small, Ints(10, 4096)), Ints(10, 2));
  small.model.layers[0].params.num_kv_heads = 64;  // 640 blocks
  EXPECT_EQ(splits(small, Ints(10, 4096)), Ints(10, 1));
}

TEST(KvSplits, NearlyEqualRowsAreLevelled) {
  Limits few = limits(32, 32);
  few.model.split.num_sms = 1;
  EXPECT_EQ(splits(few, {81, 100}), (Ints{1, 1}));  // 8 * 100 < 10 * 81
  EXPECT_EQ(splits(few, {80, 100}), (Ints{2, 2}));
}

/// fi.I-65.
TEST(KvSplits, OfAFixedSizeDependOnTheRowAlone) {
  Limits l = limits(32, 8, 100);
  l.model.split.fixed_size = 32;
  EXPECT_EQ(max_kv_splits(l), 4);
  EXPECT_EQ(splits(l, {1, 32, 33, 100}), (Ints{1, 1, 2, 4}));
  EXPECT_EQ(splits(l, {33}), Ints{2});
  l.model.split.off = true;
  EXPECT_EQ(max_kv_splits(l), 1);
  EXPECT_EQ(splits(l, {1, 100}), (Ints{1, 1}));
}

TEST(KvSplits, AreAtLeastOneAndAtMostTheAxis) {
  for (const int32_t sms : {1, 7, 132})
    for (const int32_t most : {1, 3, 8})
      for (const int32_t heads : {1, 2, 33})
        for (int32_t a = 0; a < 130; ++a)
          for (const int32_t b : {0, 1, 31, 64, 129, 5000}) {
            Limits l = limits(heads, 1);
            l.model.split.num_sms = sms, l.model.split.max_splits = most;
            for (const int32_t s : splits(l, {a, b})) {
              ASSERT_GE(s, 1) << a << " " << b;
              ASSERT_LE(s, max_kv_splits(l)) << a << " " << b;
            }
          }
}

TEST(KvSplits, MlaLayersMayHaveMore) {
  Limits l = limits(16, 1, 4000);
  EXPECT_EQ(max_kv_splits(l), 8);
  l.model.layers[0].mla = true;
  EXPECT_EQ(max_kv_splits(l), 128);  // 125 parts of 32 tokens
  l.model.max_context_len = 64;
  EXPECT_EQ(max_kv_splits(l), 8);
  l.model.max_context_len = 1 << 20;
  EXPECT_EQ(max_kv_splits(l), 256);  // 132 multiprocessors
}

TEST(KvSplits, OfWindowLayersAreByTheirOwnHeads) {
  Limits l = limits(64, 64);
  l.model.layers.push_back(l.model.layers[0]);
  l.model.layers[1].params.window_left = 9;
  l.model.layers[1].params.num_qo_heads = l.model.layers[1].params.num_kv_heads = 1;
  EXPECT_EQ(splits(l, {10, 10}, false), (Ints{2, 2}));
  EXPECT_EQ(splits(l, {10, 10}, true), (Ints{5, 5}));
}

TEST(ListedTokens, AreWhatTheFirstQuerySees) {
  for (int32_t prefix = 0; prefix < 9; ++prefix)
    for (int32_t window = -1; window < 5; ++window) {
      const int32_t first = window < 0 ? 0 : std::max(0, prefix - window);
      const RequestExtent one{prefix, 1, prefix + 1}, more{prefix, 3, prefix + 3};
      EXPECT_EQ(listed_tokens(kDecode, one, window), (KvRange{first, prefix + 1}));
      EXPECT_EQ(listed_tokens(kExtend, more, window), (KvRange{first, prefix}));
      EXPECT_EQ(listed_tokens(kTargetVerify, more, window), (KvRange{first, prefix}));
    }
}

/// fa.I-91.
TEST(ListedTokens, PaddingWithMoreQueriesThanKeysHasNone) {
  EXPECT_EQ(listed_tokens(kDraftExtendV2, {-2, 3, 1}, -1), KvRange{});
  EXPECT_EQ(listed_tokens(kDraftExtendV2, {-2, 3, 1}, 4), KvRange{});
}

TEST(KeysToSplit, OfADraftAreThoseOfItsPrefixAtEveryStep) {
  Limits l = limits(8, 8);
  l.mode = kDraftDecode;
  for (l.step = 0; l.step < 3; ++l.step) {
    const RequestExtent e{10 + l.step, 1, 11 + l.step};
    EXPECT_EQ(keys_to_split(l, e, -1), 10);
    EXPECT_EQ(keys_to_split(l, e, 3), 4);
  }
  l.mode = kDecode;
  EXPECT_EQ(keys_to_split(l, {10, 1, 11}, -1), 11);
}

}  // namespace
}  // namespace shadowgraph::triton_rows_test
