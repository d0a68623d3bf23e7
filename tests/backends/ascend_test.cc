// Ascend: lists of lengths with ends, tables of both pools, and rows of padding that are empty.
#include "backends/paged/ascend.h"

#include <gtest/gtest.h>

#include "attn/finding_ids.h"
#include "backends/paged_world.h"

namespace shadowgraph::ascend_test {
namespace {

const Ascend kAscend;

ModelConfig model(int32_t page_size = 4) {
  ModelConfig m = model_of(page_size, 2, 96);
  m.num_steps = 3, m.num_draft_tokens = 4;
  m.seq_len_fill = 0;
  return m;
}

bool one_query(ForwardMode mode) { return is_decode_or_idle(mode); }

/// fn(mode) for all but idle, which has no requests.
template <class Fn>
void for_modes(Fn fn) {
  for (const ForwardMode mode : kAscend.info().modes) {
    SCOPED_TRACE(std::string(name_of(mode)));
    if (mode != ForwardMode::kIdle) fn(mode);
  }
}

TEST(Ascend, ListsCountKeysAndSayWhereQueriesEnd) {
  PagedWorld w;
  const PagedBatch decode(ForwardMode::kDecode, {{26, 1}, {3, 1}, {0, 1}}, 4);
  Meta meta = w.exact(kAscend, decode.view(), model());
  EXPECT_EQ(held(meta[Ascend::kKvLens]), (Ints{27, 4, 1}));
  EXPECT_EQ(held(meta[Ascend::kActualSeqLengths]), (Ints{1, 2, 3}));
  const PagedBatch extend(ForwardMode::kExtend, {{8, 3}, {0, 5}}, 4);
  meta = w.exact(kAscend, extend.view(), model());
  EXPECT_EQ(held(meta[Ascend::kKvLens]), (Ints{11, 5}));
  EXPECT_EQ(held(meta[Ascend::kActualSeqLengths]), (Ints{3, 8}));
  const PagedBatch verify(ForwardMode::kTargetVerify, {{9, 4}, {30, 4}}, 4);
  meta = w.exact(kAscend, verify.view(), model());
  EXPECT_EQ(held(meta[Ascend::kKvLens]), (Ints{13, 34}));
  EXPECT_EQ(held(meta[Ascend::kActualSeqLengths]), (Ints{4, 8}));
}

/// fi.I-30.
TEST(Ascend, BlocksOfADiffusionModelEndBlockByBlock) {
  // The worked example of sglang#26665: lists of another bucket would leave out the second request.
  PagedWorld w;
  const PagedBatch one(ForwardMode::kDllmExtend, {{8, 4}}, 4);
  const PagedBatch two(ForwardMode::kDllmExtend, {{8, 4}, {16, 4}}, 4);
  Meta meta = w.bind(kAscend, Limits::bucket(ForwardMode::kDllmExtend, 2, 4, model()));
  w.fill(kAscend, one.view(), meta);
  EXPECT_EQ(held(meta[Ascend::kKvLens]), (Ints{12, 0}));
  w.fill(kAscend, two.view(), meta);
  EXPECT_EQ(held(meta[Ascend::kActualSeqLengths]), (Ints{4, 8}));
  EXPECT_EQ(held(meta[Ascend::kKvLens]), (Ints{12, 20}));
}

TEST(Ascend, ADraftStepCountsTheStepsBeforeIt) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftDecode, {{10, 1}, {7, 1}}, 4, 3);
  ForwardBatch batch = owned.view();
  for (const int32_t step : {0, 1}) {
    batch.spec.step = step;
    const Meta meta = w.exact(kAscend, batch, model());
    EXPECT_EQ(held(meta[Ascend::kKvLens]), (Ints{11 + step, 8 + step}));
    EXPECT_EQ(slots_of(meta, Ascend::kPageTable, 0, 11 + step), slots_of(owned, 0, 11 + step));
  }
}

TEST(Ascend, PaddingRowsAreEmpty) {
  for_modes([](ForwardMode mode) {
    PagedWorld w;
    const int32_t q = one_query(mode) ? 1 : 4;
    const PagedBatch owned(mode, {{9, q}}, 4, one_query(mode) ? 3 : 0);
    Meta meta = w.bind(kAscend, Limits::bucket(mode, 3, q, model()));
    w.fill(kAscend, owned.view(), meta);
    // Drafts of padding are counted as those of every row.
    const int32_t drafts = is_target_verify(mode) ? 4 : mode == ForwardMode::kDraftDecode ? 1 : 0;
    EXPECT_EQ(held(meta[Ascend::kKvLens]), (Ints{9 + q, drafts, drafts}));
    const bool none = is_extend_without_speculative(mode) && mode != ForwardMode::kDllmExtend;
    const int32_t padded = none ? 0 : q;
    EXPECT_EQ(held(meta[Ascend::kActualSeqLengths]), (Ints{q, q + padded, q + 2 * padded}));
    const Layer layer(w, "layer", model(), meta.limits.tokens, owned.pages());
    w.forward(kAscend, meta, {layer.io()});
    EXPECT_EQ(w.found(), "ok");
    const auto expected = layer.expected(owned), got = layer.results(q);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin(), got.end()));
  });
}

TEST(Ascend, ForwardStoresThenAttendsToExactlyTheRequestsKeys) {
  for (const int32_t page_size : {1, 4, 16, 128}) {
    for_modes([&](ForwardMode mode) {
      PagedWorld w;
      const int32_t q = one_query(mode) ? 1 : 3;
      const int32_t q_b = one_query(mode) || is_target_verify(mode) ? q : 2;
      const PagedBatch owned(mode, {{page_size - 1, q}, {2 * page_size, q_b}}, page_size,
                             one_query(mode) ? 3 : 0);
      const Meta meta = w.exact(kAscend, owned.view(), model(page_size));
      const Layer layer(w, "layer", model(page_size), meta.limits.tokens, owned.pages());
      w.forward(kAscend, meta, {layer.io()});
      EXPECT_EQ(w.found(), "ok");
      EXPECT_EQ(held(meta[Ascend::kCuSeqlensQ]), (Ints{0, q, q + q_b}));
      EXPECT_EQ(layer.results(meta.limits.tokens), layer.expected(owned));
    });
  }
}

TEST(Ascend, TheWindowPoolsPagesAreTranslatedBeforeTheyAreDivided) {
  PagedWorld w;
  PagedBatch owned(ForwardMode::kExtend, {{20, 3}, {0, 2}}, 4);
  owned.add_window_pool();
  ModelConfig m = model();
  m.swa_pool = true;
  m.layers[0].params.window_left = 8;
  const Meta meta = w.exact(kAscend, owned.view(), m);
  const Ints full = slots_of(meta, Ascend::kPageTable, 0, 23);
  const Ints swa = slots_of(meta, Ascend::kSwaPageTable, 0, 23);
  for (size_t j = 0; j < full.size(); ++j) EXPECT_EQ(swa[j], owned.swa_slot(full[j]));
}

TEST(Ascend, ServesRowsOfPaddingThatAreEmptyAndNoShorterOnes) {
  PagedWorld w;
  ModelConfig m = model();
  m.seq_len_fill = -1;
  Meta meta;
  const Limits limits = Limits::bucket(ForwardMode::kDecode, 2, 1, m);
  EXPECT_EQ(ids(kAscend.bind(w.arena, limits, &meta)), (Ids{"backend.limits seq_len_fill"}));
}

}  // namespace
}  // namespace shadowgraph::ascend_test
