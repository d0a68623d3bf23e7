// What a layer must compute, on the spec's worked examples.
#include "check/canonical.h"

#include <gtest/gtest.h>

#include <numeric>

#include "attn/mask.h"

namespace shadowgraph::canonical_test {
namespace {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

LayerKind layer(int32_t window_left = -1) {
  LayerKind kind;
  kind.params = {.num_qo_heads = 1,
                 .num_kv_heads = 1,
                 .head_dim_qk = 4,
                 .head_dim_vo = 4,
                 .sm_scale = 1,
                 .causal = true,
                 .window_left = window_left};
  return kind;
}

/// Row r, column c of req_to_token is 100 r + c + 10.
struct Batch : ForwardBatch {
  Ints rows, lens, extends, encoder, table, delimiters_of, indptr;
  Longs slots;
  std::vector<uint8_t> tree;
  Batch(ForwardMode m, Ints seq) : lens(std::move(seq)) {
    mode = m;
    seq_lens_kind = usual_seq_lens_kind(m);
    seq_lens = lens;
    for (size_t i = 0; i < lens.size(); ++i) rows.push_back(static_cast<int32_t>(i + 1));
    req_pool_indices = rows;
    for (int32_t r = 0; r < 4; ++r) {
      for (int32_t c = 0; c < 32; ++c) table.push_back(100 * r + c + 10);
    }
    req_to_token = {table, 32};
  }
};

/// Keys of a row, by slot, that query q of it sees.
Ints seen(const CanonicalRows& rows, const LayerKind& kind, size_t row, int32_t q) {
  Ints slots;
  const int32_t q_len = rows.cu_seqlens_q[row + 1] - rows.cu_seqlens_q[row];
  const MaskShape mask = MaskShape::of(kind.params, q_len, rows.kv_lens[row]);
  for (int32_t k = 0; k < rows.kv_lens[row]; ++k) {
    const bool sees = rows.mask_indptr.empty()
                          ? attends(mask, q, k)
                          : rows.mask[static_cast<size_t>(rows.mask_indptr[row] +
                                                          int64_t{q} * rows.kv_lens[row] + k)] != 0;
    if (sees) slots.push_back(rows.keys[row][static_cast<size_t>(k)]);
  }
  return slots;
}

Ints iota(int32_t first, int32_t count) {
  Ints v(static_cast<size_t>(count));
  std::iota(v.begin(), v.end(), first);
  return v;
}

TEST(Canonical, ARankSeesEveryNthTokenAtTheNthPartOfItsSlot) {
  Batch b(ForwardMode::kTargetVerify, {5, 0});
  b.spec.num_draft_tokens = 3;
  for (size_t c = 0; c < b.table.size(); ++c)
    b.table[c] = static_cast<int32_t>(c / 32 * 100 + c % 32);
  b.req_to_token = {b.table, 32};
  ModelConfig model;
  model.dcp_size = 2;
  const CanonicalRows even = canonical_rows(b, layer(), model);
  EXPECT_EQ(even.keys, (std::vector<Ints>{{50, 51, 52, 53}, {100, 101}}));
  EXPECT_EQ(even.stored, (Ints{-1, 53, -1, 100, -1, 101}));
  EXPECT_EQ(seen(even, layer(), 0, 0), (Ints{50, 51, 52}));
  EXPECT_EQ(seen(even, layer(), 0, 1), (Ints{50, 51, 52, 53}));
  EXPECT_EQ(seen(even, layer(), 1, 1), (Ints{100}));
  EXPECT_EQ(Ints(even.old_keys(0).begin(), even.old_keys(0).end()), (Ints{50, 51, 52}));
  EXPECT_TRUE(even.old_keys(1).empty());
  model.dcp_rank = 1;
  const CanonicalRows odd = canonical_rows(b, layer(), model);
  EXPECT_EQ(odd.keys, (std::vector<Ints>{{50, 51, 52, 53}, {100}}));
  EXPECT_EQ(odd.stored, (Ints{52, -1, 53, -1, 100, -1}));
  EXPECT_EQ(seen(odd, layer(), 0, 1), (Ints{50, 51, 52}));
  EXPECT_TRUE(seen(odd, layer(), 1, 0).empty());
}

TEST(Canonical, ADraftOfARankStoresWhatItHas) {
  Batch b(ForwardMode::kDraftDecode, {4});
  b.spec.num_steps = 3, b.spec.step = 1;
  const Longs slots = {24, 25, 26};
  b.out_cache_loc = slots;
  ModelConfig model;
  model.dcp_size = 2;
  EXPECT_EQ(canonical_rows(b, layer(), model).keys, (std::vector<Ints>{{55, 56, 12}}));
  EXPECT_EQ(canonical_rows(b, layer(), model).stored, (Ints{-1}));
  model.dcp_rank = 1;
  EXPECT_EQ(canonical_rows(b, layer(), model).keys, (std::vector<Ints>{{55, 56, 12}}));
  EXPECT_EQ(canonical_rows(b, layer(), model).stored, (Ints{12}));
}

TEST(Canonical, DraftExtendSeesItsPrefixAndItself) {
  Batch b(ForwardMode::kDraftExtendV2, {10, 8});
  b.extends = {4, 4};
  b.extend_lens = b.extends;
  const CanonicalRows rows = canonical_rows(b, layer(), {});
  EXPECT_EQ(rows.kv_lens, (Ints{10, 8}));
  for (int32_t q = 0; q < 4; ++q) {
    EXPECT_EQ(seen(rows, layer(), 0, q), iota(110, 7 + q));
    EXPECT_EQ(seen(rows, layer(), 1, q), iota(210, 5 + q));
  }
}

/// fi.I-56: seven tokens, then items of two and of one token.
TEST(Canonical, AnItemSeesWhatStandsBeforeAllItemsAndItself) {
  Batch b(ForwardMode::kExtend, {13, 16, 3});
  b.extends = {13, 12, 2}, b.delimiters_of = {7, 10, 12, 3, 6}, b.indptr = {0, 3, 5, 5};
  b.extend_lens = b.extends;
  b.item_delimiters = b.delimiters_of, b.item_indptr = b.indptr;
  ASSERT_EQ(validate(b).to_string(), "ok");
  const CanonicalRows rows = canonical_rows(b, layer(), {});
  const auto with = [](Ints keys, const Ints& more) {
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  };
  for (int32_t q = 0; q < 7; ++q) EXPECT_EQ(seen(rows, layer(), 0, q), iota(110, q + 1));
  const Ints question = iota(110, 7);
  EXPECT_EQ(seen(rows, layer(), 0, 7), question);
  EXPECT_EQ(seen(rows, layer(), 0, 8), with(question, {118}));
  EXPECT_EQ(seen(rows, layer(), 0, 9), with(question, {118, 119}));
  EXPECT_EQ(seen(rows, layer(), 0, 10), question);
  EXPECT_EQ(seen(rows, layer(), 0, 11), with(question, {121}));
  EXPECT_EQ(seen(rows, layer(), 0, 12), question);
  // Places count from the first new token: the prefix of four is seen by all.
  EXPECT_EQ(seen(rows, layer(), 1, 2), iota(210, 7));
  EXPECT_EQ(seen(rows, layer(), 1, 3), iota(210, 7));
  EXPECT_EQ(seen(rows, layer(), 1, 5), with(iota(210, 7), {218, 219}));
  EXPECT_EQ(seen(rows, layer(), 1, 11), with(iota(210, 7), {221, 222, 223, 224, 225}));
  // Who has no delimiter.
  EXPECT_EQ(seen(rows, layer(), 2, 0), iota(310, 2));
  EXPECT_EQ(seen(rows, layer(), 2, 1), iota(310, 3));
}

TEST(Canonical, ABranchSeesThePrefixAndItsOwnDrafts) {
  Batch b(ForwardMode::kDraftDecode, {7});
  b.spec = {.topk = 2, .num_steps = 5, .step = 1, .custom_mask = {}};
  b.slots = {27, 28, 29, 30, 31, 33, 34, 35, 36, 37};
  b.out_cache_loc = b.slots;
  ASSERT_TRUE(validate(b).ok());
  const CanonicalRows rows = canonical_rows(b, layer(), {});
  Ints first = iota(110, 7), second = first;
  first.insert(first.end(), {27, 28});
  second.insert(second.end(), {33, 34});
  EXPECT_EQ(rows.keys, (std::vector<Ints>{first, second}));
  EXPECT_EQ(rows.cu_seqlens_q, (Ints{0, 1, 2}));
}

/// The trees of the spec's section 2.6, D = 3.
Batch verify() {
  Batch b(ForwardMode::kTargetVerify, {4, 2});
  b.spec = {.topk = 2, .num_steps = 2, .num_draft_tokens = 3, .custom_mask = {}};
  const std::vector<std::vector<uint8_t>> trees = {{1, 0, 0, 1, 1, 0, 1, 0, 1},
                                                   {1, 0, 0, 1, 1, 0, 1, 1, 1}};
  for (size_t i = 0; i < 2; ++i) {
    for (size_t t = 0; t < 3; ++t) {
      b.tree.insert(b.tree.end(), static_cast<size_t>(b.lens[i]), 1);
      b.tree.insert(b.tree.end(), trees[i].begin() + static_cast<int64_t>(3 * t),
                    trees[i].begin() + static_cast<int64_t>(3 * t + 3));
    }
  }
  return b;
}

TEST(Canonical, ATreeSeesItsAncestors) {
  Batch b = verify();
  b.spec.custom_mask = b.tree;
  ASSERT_TRUE(validate(b).ok()) << validate(b).to_string();
  const CanonicalRows rows = canonical_rows(b, layer(), {});
  EXPECT_EQ(seen(rows, layer(), 0, 2), (Ints{110, 111, 112, 113, 114, 116}));
  EXPECT_EQ(seen(rows, layer(), 1, 1), (Ints{210, 211, 212, 213}));
  EXPECT_EQ(seen(rows, layer(), 1, 2), (Ints{210, 211, 212, 213, 214}));
}

TEST(Canonical, AWindowOverATreeCountsAlongTheBranch) {
  Batch b = verify();
  b.spec.custom_mask = b.tree;
  // Token 2 of request 0 hangs on token 0: it stands at position 5, and 4 and 5 are in its window.
  const CanonicalRows rows = canonical_rows(b, layer(1), {});
  EXPECT_EQ(seen(rows, layer(1), 0, 2), (Ints{114, 116}));
  EXPECT_EQ(seen(rows, layer(1), 1, 2), (Ints{213, 214}));
}

TEST(Canonical, ALocalLayerSeesItsChunk) {
  Batch b(ForwardMode::kExtend, {6, 17, 9});
  b.extends = {4, 10, 5};
  b.extend_lens = b.extends;
  LayerKind kind = layer();
  kind.local = true;
  ModelConfig model;
  model.attention_chunk = 4;
  const CanonicalRows rows = canonical_rows(b, kind, model);
  EXPECT_EQ(seen(rows, kind, 0, 1), iota(110, 4));
  EXPECT_EQ(seen(rows, kind, 0, 2), Ints{114});
  EXPECT_EQ(seen(rows, kind, 1, 0), iota(214, 4));
  EXPECT_EQ(seen(rows, kind, 1, 9), Ints{226});
  EXPECT_EQ(seen(rows, kind, 2, 0), Ints{314});
}

TEST(Canonical, TextStandsBehindEachRequestsOwnEncoder) {
  Batch b(ForwardMode::kDecode, {2, 2});
  b.encoder = {3, 5};
  b.encoder_lens = b.encoder;
  const CanonicalRows text = canonical_rows(b, layer(), {});
  EXPECT_EQ(text.keys, (std::vector<Ints>{{113, 114}, {215, 216}}));
  LayerKind cross = layer();
  cross.cross = true;
  const CanonicalRows encoder = canonical_rows(b, cross, {});
  EXPECT_EQ(encoder.keys, (std::vector<Ints>{iota(110, 3), iota(210, 5)}));
}

TEST(Canonical, WindowLayersOfAHybridPoolReadTheirOwnSlots) {
  Batch b(ForwardMode::kDecode, {3});
  Longs map(200, 0);
  map[110] = 0, map[111] = 7, map[112] = 9;
  b.full_to_swa = map;
  ModelConfig model;
  model.swa_pool = true;
  EXPECT_EQ(canonical_rows(b, layer(1), model).keys, (std::vector<Ints>{{0, 7, 9}}));
  EXPECT_EQ(canonical_rows(b, layer(), model).keys, (std::vector<Ints>{{110, 111, 112}}));
}

}  // namespace
}  // namespace shadowgraph::canonical_test
