// Aiter: lists of slots, the unified kernel's table, and which layers read what.
#include "backends/lists/aiter.h"

#include <gtest/gtest.h>

#include "attn/finding_ids.h"
#include "backends/paged_world.h"

namespace shadowgraph::aiter_test {
namespace {

const Backend& kAiter = *find_backend("aiter");

ModelConfig model(int32_t page_size = 4, int32_t kv_heads = 2) {
  ModelConfig m = model_of(page_size, kv_heads, 96);
  m.layers[0].mla = kv_heads == 1;
  m.num_steps = 3, m.num_draft_tokens = 4;
  return m;
}

bool one_query(ForwardMode mode) { return is_decode_or_idle(mode); }

/// fn(mode) for all but idle, which has no requests.
template <class Fn>
void for_modes(Fn fn) {
  for (const ForwardMode mode : kAiter.info().modes) {
    SCOPED_TRACE(std::string(name_of(mode)));
    if (mode != ForwardMode::kIdle) fn(mode);
  }
}

/// What list i holds.
Ints list(const Meta& meta, size_t i, const CsrIds& ids = Aiter::kKv) {
  const Ints indptr = held(meta[static_cast<size_t>(ids.indptr)]);
  const Ints slots = held(meta[static_cast<size_t>(ids.indices)]);
  return {slots.begin() + indptr[i], slots.begin() + indptr[i + 1]};
}

TEST(Aiter, AListHasTheSlotOfEveryKeyInPagesOfOneToken) {
  for_modes([](ForwardMode mode) {
    for (const int32_t kv_heads : {1, 2}) {
      PagedWorld w;
      const int32_t q = one_query(mode) ? 1 : 3;
      const PagedBatch owned(mode, {{26, q}, {3, q}}, 4, one_query(mode) ? 3 : 0);
      const Meta meta = w.exact(kAiter, owned.view(), model(4, kv_heads));
      EXPECT_EQ(held(meta[Aiter::kQoIndptr]), (Ints{0, q, 2 * q}));
      if (!meta.has(Aiter::kKvIndptr)) continue;
      EXPECT_EQ(held(meta[Aiter::kKvIndptr]), (Ints{0, 26 + q, 29 + 2 * q}));
      EXPECT_EQ(held(meta[Aiter::kKvLastPageLen]), (Ints{1, 1}));
      for (size_t i = 0; i < 2; ++i)
        EXPECT_EQ(list(meta, i), slots_of(owned, i, (i == 0 ? 26 : 3) + q));
    }
  });
}

TEST(Aiter, AChainOfDraftsIsVerifiedOverATableForTheLongestContext) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kTargetVerify, {{26, 4}, {3, 4}}, 4);
  Meta meta = w.bind(kAiter, Limits::bucket(ForwardMode::kTargetVerify, 3, 4, model()));
  w.fill(kAiter, owned.view(), meta);
  EXPECT_FALSE(meta.has(Aiter::kKvIndptr));
  EXPECT_EQ(meta[Aiter::kPageTable].shape[1], (96 + 4) / 4);
  EXPECT_EQ(held(meta[Aiter::kKvLens]), (Ints{30, 7, 5}));
  EXPECT_EQ(held(meta[Aiter::kQoIndptr]), (Ints{0, 4, 8, 12}));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(slots_of(meta, Aiter::kPageTable, static_cast<int64_t>(i), i == 0 ? 30 : 7),
              slots_of(owned, i, i == 0 ? 30 : 7));
  EXPECT_EQ(held_row(meta[Aiter::kPageTable], 2, 2), (Ints{0, 0}));
}

TEST(Aiter, LatentLayersVerifyOverListsAndBothKindsHaveTheirOwn) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kTargetVerify, {{9, 4}}, 4);
  ModelConfig m = model(4, 1);
  EXPECT_FALSE(w.exact(kAiter, owned.view(), m).has(Aiter::kPageTable));
  m.layers.push_back(model().layers[0]);
  const Meta both = w.exact(kAiter, owned.view(), m);
  EXPECT_EQ(list(both, 0), slots_of(owned, 0, 13));
  EXPECT_EQ(slots_of(both, Aiter::kPageTable, 0, 13), slots_of(owned, 0, 13));
}

TEST(Aiter, PaddingHasSlotZeroAlone) {
  for_modes([](ForwardMode mode) {
    PagedWorld w;
    const int32_t q = one_query(mode) ? 1 : 4;
    const PagedBatch owned(mode, {{9, q}}, 4, one_query(mode) ? 3 : 0);
    Meta meta = w.bind(kAiter, Limits::bucket(mode, 3, q, model(4, 1)));
    w.fill(kAiter, owned.view(), meta);
    const size_t drafts = is_target_verify(mode) ? 4 : mode == ForwardMode::kDraftDecode ? 1 : 0;
    EXPECT_EQ(list(meta, 1), Ints(1 + drafts, 0));
    EXPECT_EQ(list(meta, 2), Ints(1 + drafts, 0));
    const Layer layer(w, "layer", model(4, 1), meta.limits.tokens, owned.pages());
    w.forward(kAiter, meta, {layer.io()});
    EXPECT_EQ(w.found(), "ok");
    const auto expected = layer.expected(owned), got = layer.results(q);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin(), got.end()));
  });
}

TEST(Aiter, PaddingAsksForNoMoreTokensThanTheBucketHas) {
  PagedWorld w;
  Limits limits = Limits::bucket(ForwardMode::kDraftExtend, 3, 4, model());
  limits.tokens = 9;
  Meta meta = w.bind(kAiter, limits);
  const PagedBatch owned(ForwardMode::kDraftExtend, {{5, 3}}, 4);
  w.fill(kAiter, owned.view(), meta);
  EXPECT_EQ(held(meta[Aiter::kQoIndptr]), (Ints{0, 3, 7, 9}));
}

/// fa.I-11, fa.I-94, fi.I-14: the sum counts two rows of padding with their fill.
TEST(Aiter, ListsOfABatchWithPaddingFitWhatItsKeysTake) {
  PagedWorld w;
  ModelConfig m = model();
  m.seq_len_fill = 5;
  const PagedBatch owned(ForwardMode::kDecode, {{1, 1}}, 4);
  Limits limits = Limits::exact(owned.view(), m);
  limits.rows = 3, limits.tokens = 3, limits.max_kv_len = 40;
  Meta meta = w.bind(kAiter, limits);
  w.fill(kAiter, owned.view(), meta);
  EXPECT_EQ(held(meta[Aiter::kKvIndptr]), (Ints{0, 2, 7, 12}));
  EXPECT_EQ(meta[Aiter::kKvIndices].numel(), 2 + 3 * 5);
}

TEST(Aiter, WindowLayersListSlotsOfTheirPool) {
  for (const ForwardMode mode : {ForwardMode::kExtend, ForwardMode::kTargetVerify}) {
    PagedWorld w;
    PagedBatch owned(mode, {{20, 3}, {5, 3}}, 4);
    owned.add_window_pool();
    ModelConfig m = model();
    m.swa_pool = true;
    m.layers[0].params.window_left = 8;
    const Meta meta = w.exact(kAiter, owned.view(), m);
    const bool table = mode == ForwardMode::kTargetVerify;
    const Ints swa =
        table ? slots_of(meta, Aiter::kSwaPageTable, 0, 23) : list(meta, 0, Aiter::kSwaKv);
    ASSERT_EQ(swa.size(), 23U);
    for (int32_t t = 0; t < 23; ++t)
      EXPECT_EQ(swa[static_cast<size_t>(t)], owned.swa_slot(owned.slot(0, t)));
    const Layer layer(w, "layer", m, 6, owned.pages());
    w.forward(kAiter, meta, {layer.io()});
    EXPECT_EQ(w.found(), "ok");
    const auto at = static_cast<size_t>(owned.swa_slot(owned.slot(0, 20))) * 2 * 16;
    EXPECT_EQ(held<float>(layer.k_cache)[at], held<float>(layer.k)[0]);
  }
}

TEST(Aiter, ForwardStoresThenAttendsToExactlyTheRequestsKeys) {
  for (const int32_t page_size : {1, 4, 16}) {
    for (const int32_t kv_heads : {1, 2}) {
      for_modes([&](ForwardMode mode) {
        PagedWorld w;
        const int32_t q = one_query(mode) ? 1 : 3;
        const int32_t q_b = one_query(mode) || is_target_verify(mode) ? q : 2;
        const PagedBatch owned(mode, {{page_size - 1, q}, {2 * page_size, q_b}}, page_size,
                               one_query(mode) ? 3 : 0);
        const ModelConfig m = model(page_size, kv_heads);
        const Meta meta = w.exact(kAiter, owned.view(), m);
        const Layer layer(w, "layer", m, meta.limits.tokens, owned.pages());
        w.forward(kAiter, meta, {layer.io()});
        EXPECT_EQ(w.found(), "ok");
        EXPECT_EQ(layer.results(meta.limits.tokens), layer.expected(owned));
      });
    }
  }
}

TEST(Aiter, EachBranchOfADraftListsThePrefixAndItsOwnTokens) {
  for (const bool swa : {false, true}) {
    PagedWorld w;
    PagedBatch owned(ForwardMode::kDraftDecode, {{6, 1}, {3, 1}}, 4, 3);
    if (swa) owned.add_window_pool();
    ForwardBatch batch = owned.view();
    batch.spec.topk = 2;
    // Slots of both branches' three steps, request by request.
    std::vector<int64_t> loc;
    for (int64_t slot = 4; slot < 16; ++slot) loc.push_back(slot);
    batch.out_cache_loc = loc;
    ModelConfig m = model();
    m.topk = 2, m.swa_pool = swa;
    const auto in_pool = [&](int64_t slot) {
      return static_cast<int32_t>(swa ? owned.swa_slot(static_cast<int32_t>(slot)) : slot);
    };
    for (const int32_t step : {0, 1}) {
      batch.spec.step = step;
      Limits limits = Limits::bucket(ForwardMode::kDraftDecode, 3, 1, m, step);
      Meta meta = w.bind(kAiter, limits, "step" + std::to_string(step) + (swa ? "swa" : ""));
      w.fill(kAiter, batch, meta);
      EXPECT_EQ(held(meta[Aiter::kQoIndptr]), (Ints{0, 1, 2, 3, 4, 5, 6}));
      for (size_t r = 0; r < 4; ++r) {
        Ints want;
        for (int32_t t = 0; t < (r < 2 ? 6 : 3); ++t) want.push_back(in_pool(owned.slot(r / 2, t)));
        for (size_t s = 0; s <= static_cast<size_t>(step); ++s)
          want.push_back(in_pool(loc[r * 3 + s]));
        EXPECT_EQ(list(meta, r, swa ? Aiter::kSwaKv : Aiter::kKv), want) << r;
      }
      EXPECT_EQ(list(meta, 4), Ints(static_cast<size_t>(step) + 2, 0));
    }
  }
}

TEST(Aiter, ATreeIsVerifiedWithTritonsMetadata) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kTargetVerify, {{6, 3}}, 4);
  ForwardBatch batch = owned.view();
  const std::vector<uint8_t> mask = {1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1,
                                     1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1};
  batch.spec.custom_mask = mask;
  ModelConfig m = model();
  m.topk = 2, m.num_draft_tokens = 3;
  const Backend& triton = *find_backend("triton");
  const Meta meta = w.exact(kAiter, batch, m), tritons = w.exact(triton, batch, m);
  EXPECT_FALSE(meta.has(Aiter::kQoIndptr));
  ASSERT_EQ(meta.children.size(), 1U);
  ASSERT_EQ(meta.children[0].buffers.size(), tritons.buffers.size());
  for (size_t i = 0; i < tritons.buffers.size(); ++i)
    EXPECT_EQ(meta.children[0].has(i), tritons.has(i));
  const Limits limits = Limits::exact(batch, m);
  EXPECT_EQ(kAiter.merged_parts(batch, limits, m.layers[0]),
            triton.merged_parts(batch, limits, m.layers[0]));
}

TEST(Aiter, AShorterBatchAfterALongerOneIsWholeAgain) {
  for_modes([](ForwardMode mode) {
    PagedWorld w;
    const int32_t q = one_query(mode) ? 1 : 3, steps = one_query(mode) ? 3 : 0;
    const ModelConfig m = model(4, 1);
    Meta meta = w.bind(kAiter, Limits::bucket(mode, 3, q, m));
    const PagedBatch longer(mode, {{70, q}, {33, q}, {50, q}}, 4, steps);
    const PagedBatch shorter(mode, {{7, q}, {40, q}}, 4, steps);
    w.fill(kAiter, longer.view(), meta);
    w.fill(kAiter, shorter.view(), meta);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_EQ(list(meta, i), slots_of(shorter, i, (i == 0 ? 7 : 40) + q));
  });
}

TEST(Aiter, WhatItDoesNotServeIsRefusedAndNothingBound) {
  PagedWorld w;
  const auto refused = [&](auto change) {
    Limits limits = Limits::bucket(ForwardMode::kDecode, 2, 1, model());
    change(limits);
    Meta meta;
    const Status status = kAiter.bind(w.arena, limits, &meta);
    EXPECT_EQ(w.arena.used(), 0U);
    return ids(status);
  };
  EXPECT_EQ(refused([](Limits& l) { l.model.max_encoder_len = 4; }),
            (Ids{"backend.limits max_encoder_len"}));
  EXPECT_EQ(refused([](Limits& l) { l.max_kv_len = 1 << 30; }), (Ids{"backend.limits max_kv_len"}));
  EXPECT_EQ(refused([](Limits& l) { l.model.dcp_size = 2; }), (Ids{"backend.limits dcp_size"}));
  EXPECT_EQ(refused([](Limits& l) { l.model.topk = 2, l.model.layers[0].mla = true; }),
            (Ids{"backend.limits topk"}));
  EXPECT_EQ(refused([](Limits& l) { l.model.seq_len_fill = 0; }),
            (Ids{"backend.limits seq_len_fill"}));
  EXPECT_EQ(refused([](Limits& l) {
              l.model.attention_chunk = 4;
              l.model.layers[0].local = true;
            }),
            (Ids{"backend.limits layers"}));
}

}  // namespace
}  // namespace shadowgraph::aiter_test
