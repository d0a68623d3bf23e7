// The laws of every backend over one dense table, mode by mode and page size by page size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/finding_ids.h"
#include "attn/page_table.h"
#include "backends/paged/paged_backend.h"
#include "backends/paged_world.h"

namespace shadowgraph::paged_backends_test {
namespace {

using Paged = PagedBackend;

std::vector<const Backend*> paged_backends() {
  std::vector<const Backend*> all;
  for (const Backend* backend : all_backends())
    if (dynamic_cast<const PagedBackend*>(backend) != nullptr) all.push_back(backend);
  return all;
}

/// Those that it names; of a backend that takes every power of two some.
std::vector<int32_t> page_sizes_of(const Backend& backend) {
  const std::span<const int32_t> named = backend.info().page_sizes;
  if (named.empty()) return {1, 2, 64};
  return {named.begin(), named.end()};
}

ModelConfig model_for(const Backend& backend, int32_t page_size) {
  ModelConfig m = model_of(page_size, backend.info().heads ? 2 : 1, std::max(96, 5 * page_size));
  m.num_steps = 3, m.num_draft_tokens = 3;
  return m;
}

bool one_query(ForwardMode mode) { return is_decode_or_idle(mode); }
bool ragged(ForwardMode mode) { return !one_query(mode) && !is_target_verify(mode); }
bool padded_by_width(ForwardMode mode) {
  return is_draft_extend(mode, DraftExtendV2::kIncluded) || mode == ForwardMode::kDllmExtend;
}

/// fn(backend, mode, page_size) for all that they serve; idle has no requests.
template <class Fn>
void for_all(Fn fn) {
  ASSERT_GT(paged_backends().size(), 4u);
  for (const Backend* backend : paged_backends()) {
    for (const ForwardMode mode : backend->info().modes) {
      for (const int32_t page_size : page_sizes_of(*backend)) {
        SCOPED_TRACE(std::string(backend->info().name) + " " + std::string(name_of(mode)) + " P " +
                     std::to_string(page_size));
        if (mode != ForwardMode::kIdle) fn(*backend, mode, page_size);
      }
    }
  }
}

/// Batches of two: every pair of prefixes around the edges of pages, queries by the mode.
template <class Fn>
void for_batches(ForwardMode mode, int32_t page_size, Fn fn) {
  const int32_t first = mode == ForwardMode::kDecode ? 0 : 1;
  for (const int32_t a : {first, std::max(first, page_size - 1), page_size, 2 * page_size + 1}) {
    for (const int32_t b : {first, std::max(first, page_size - 2), page_size + 1}) {
      const int32_t q_a = one_query(mode) ? 1 : 3, q_b = ragged(mode) ? 2 : q_a;
      fn(PagedBatch(mode, {{a, q_a}, {b, q_b}}, page_size, one_query(mode) ? 3 : 0));
    }
  }
}

/// A launch makes them, and not the fill: those are held by the backend's own tests.
bool makes_offsets(const Meta& meta) {
  return meta[Paged::kCuSeqlensQ].lifetime == Lifetime::kScratch;
}

TEST(PagedBackends, EveryKeyIsReadFromItsSlot) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    const ModelConfig model = model_for(backend, page_size);
    for_batches(mode, page_size, [&](const PagedBatch& owned) {
      PagedWorld w;
      ForwardBatch batch = owned.view();
      const bool draft = mode == ForwardMode::kDraftDecode;
      for (int32_t step = 0; step < (draft ? 2 : 1); ++step) {
        batch.spec.step = step;
        const Meta meta = w.exact(backend, batch, model);
        for (size_t i = 0; i < 2; ++i) {
          const int32_t keys = batch.extent(static_cast<int64_t>(i)).kv_len;
          EXPECT_EQ(held(meta[Paged::kKvLens])[i], keys);
          EXPECT_EQ(slots_of(meta, Paged::kPageTable, static_cast<int64_t>(i), keys),
                    slots_of(owned, i, keys));
        }
      }
    });
  });
}

TEST(PagedBackends, QueriesAreOffsetByThoseBefore) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    PagedWorld w;
    const int32_t q = one_query(mode) ? 1 : 3, q_b = ragged(mode) ? 1 : q;
    const PagedBatch owned(mode, {{4, q}, {6, q_b}, {5, q}}, page_size, one_query(mode) ? 3 : 0);
    const Meta meta = w.exact(backend, owned.view(), model_for(backend, page_size));
    if (!makes_offsets(meta)) {
      EXPECT_EQ(held(meta[Paged::kCuSeqlensQ]), (Ints{0, q, q + q_b, 2 * q + q_b}));
    }
    EXPECT_EQ(meta.scalars[Paged::kMaxSeqLenQ], q);
    EXPECT_EQ(meta.scalars[Paged::kSumSeqLensQ], 2 * q + q_b);
    EXPECT_EQ(meta.scalars[Paged::kMaxSeqLenK], std::max(6 + q_b, 5 + q));
  });
}

/// fa.I-60.
TEST(PagedBackends, RowsMoveWithTheirRequests) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    PagedWorld w;
    const ModelConfig model = model_for(backend, page_size);
    const int32_t q = one_query(mode) ? 1 : 3, q_b = ragged(mode) ? 2 : q;
    const PagedBatch owned(mode, {{4, q}, {page_size + 1, q_b}, {9, q}}, page_size,
                           one_query(mode) ? 3 : 0);
    const ForwardBatch batch = owned.view();
    constexpr int64_t kOrder[] = {2, 0, 1};
    Ints rows, lens, news;
    std::vector<int64_t> loc;
    for (const int64_t i : kOrder) {
      const ForwardBatch one = batch.slice(i, 1);
      rows.push_back(one.req_pool_indices[0]), lens.push_back(one.seq_lens[0]);
      news.insert(news.end(), one.extend_lens.begin(), one.extend_lens.end());
      loc.insert(loc.end(), one.out_cache_loc.begin(), one.out_cache_loc.end());
    }
    ForwardBatch moved = batch;
    moved.req_pool_indices = rows, moved.seq_lens = lens, moved.extend_lens = news;
    moved.out_cache_loc = loc;
    const Meta before = w.exact(backend, batch, model), after = w.exact(backend, moved, model);
    for (int64_t i = 0; i < 3; ++i) {
      const int32_t keys = held(before[Paged::kKvLens])[static_cast<size_t>(kOrder[i])];
      EXPECT_EQ(held(after[Paged::kKvLens])[static_cast<size_t>(i)], keys);
      EXPECT_EQ(slots_of(after, Paged::kPageTable, i, keys),
                slots_of(before, Paged::kPageTable, kOrder[i], keys));
    }
  });
}

/// fa.I-83: the pages that its row had stay, so the token is in the last one or in one more.
TEST(PagedBackends, ATokenMoreChangesItsOwnRowAlone) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    const ModelConfig model = model_for(backend, page_size);
    const int32_t q = one_query(mode) ? 1 : 3, steps = one_query(mode) ? 3 : 0;
    for (const int32_t prefix : {1, page_size - q, page_size, 2 * page_size + 1}) {
      if (prefix < 1) continue;
      PagedWorld w;
      const PagedBatch shorter(mode, {{prefix, q}, {5, q}}, page_size, steps),
          longer(mode, {{prefix + 1, q}, {5, q}}, page_size, steps);
      const Meta before = w.exact(backend, shorter.view(), model),
                 after = w.exact(backend, longer.view(), model);
      const Ints had = held(before[Paged::kKvLens]);
      EXPECT_EQ(held(after[Paged::kKvLens]), (Ints{had[0] + 1, had[1]}));
      for (int64_t i = 0; i < 2; ++i)
        EXPECT_EQ(slots_of(after, Paged::kPageTable, i, had[static_cast<size_t>(i)]),
                  slots_of(before, Paged::kPageTable, i, had[static_cast<size_t>(i)]));
    }
  });
}

TEST(PagedBackends, PaddingRowsHaveTheFillsLengthsAndThePaddingPage) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    PagedWorld w;
    const int32_t q = one_query(mode) ? 1 : 3;
    const PagedBatch owned(mode, {{4, q}}, page_size, one_query(mode) ? 3 : 0);
    Limits limits = Limits::bucket(mode, 2, q, model_for(backend, page_size));
    limits.step = mode == ForwardMode::kDraftDecode ? 1 : 0;
    ForwardBatch batch = owned.view();
    batch.spec.step = limits.step;
    Meta meta = w.bind(backend, limits);
    w.fill(backend, batch, meta);
    const int32_t keys = mode == ForwardMode::kDraftDecode ? 3 : is_target_verify(mode) ? 4 : 1;
    EXPECT_EQ(held(meta[Paged::kKvLens]), (Ints{batch.extent(0).kv_len, keys}));
    const int32_t padding = ragged(mode) && !padded_by_width(mode) ? 0 : q;
    if (!makes_offsets(meta)) {
      EXPECT_EQ(held(meta[Paged::kCuSeqlensQ]), (Ints{0, q, q + padding}));
    }
    EXPECT_EQ(held_row(meta[Paged::kPageTable], 1, 1), (Ints{0}));
    const auto loc = held<int64_t>(meta[Paged::kOutCacheLoc]);
    for (size_t t = 0; t < loc.size(); ++t) {
      const int32_t token = batch.extent(0).prefix_len + static_cast<int32_t>(t);
      EXPECT_EQ(loc[t], t < static_cast<size_t>(q) ? owned.slot(0, token) : 0);
    }
  });
}

/// fi.I-82.
TEST(PagedBackends, ABucketIsWideEnoughForTheLongestContext) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    PagedWorld w;
    ModelConfig model = model_for(backend, page_size);
    const Meta meta = w.bind(backend, Limits::bucket(mode, 2, one_query(mode) ? 1 : 3, model));
    EXPECT_GE(meta[Paged::kPageTable].shape[1],
              pages_for(model.max_context_len + 3, model.page_size));
  });
}

/// fi.I-29.
TEST(PagedBackends, NoRequestIsABatchToo) {
  for (const Backend* backend : paged_backends()) {
    PagedWorld w;
    const int32_t page_size = page_sizes_of(*backend)[0];
    const PagedBatch owned(ForwardMode::kIdle, {}, page_size);
    Meta meta = w.bind(*backend,
                       Limits::bucket(ForwardMode::kDecode, 2, 1, model_for(*backend, page_size)));
    w.fill(*backend, owned.view(), meta);
    EXPECT_EQ(held(meta[Paged::kKvLens]), (Ints{1, 1})) << backend->info().name;
  }
}

TEST(PagedBackends, AShorterBatchAfterALongerOneIsWholeAgain) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    PagedWorld w;
    const int32_t q = one_query(mode) ? 1 : 3, steps = one_query(mode) ? 3 : 0;
    const ModelConfig model = model_for(backend, page_size);
    Meta meta = w.bind(backend, Limits::bucket(mode, 3, q, model));
    const PagedBatch longer(mode, {{70, q}, {33, q}, {50, q}}, page_size, steps);
    const PagedBatch shorter(mode, {{7, q}, {40, q}}, page_size, steps);
    w.fill(backend, longer.view(), meta);
    w.fill(backend, shorter.view(), meta);
    Meta fresh = w.bind(backend, Limits::bucket(mode, 3, q, model), "fresh");
    w.fill(backend, shorter.view(), fresh);
    for (const size_t b : {Paged::kKvLens, Paged::kCuSeqlensQ})
      if (b == Paged::kKvLens || !makes_offsets(meta)) {
        EXPECT_EQ(held(meta[b]), held(fresh[b]));
      }
    EXPECT_EQ(held<int64_t>(meta[Paged::kOutCacheLoc]), held<int64_t>(fresh[Paged::kOutCacheLoc]));
    for (int64_t i = 0; i < 3; ++i) {
      const int32_t keys = held(meta[Paged::kKvLens])[static_cast<size_t>(i)];
      EXPECT_EQ(slots_of(meta, Paged::kPageTable, i, keys),
                slots_of(fresh, Paged::kPageTable, i, keys));
    }
  });
}

/// The batch's own rows: to the bit, or within the bound where partial results are merged.
void expect_results(const Backend& backend, const Limits& limits, const Layer& layer,
                    const PagedBatch& owned) {
  const ForwardBatch batch = owned.view();
  const auto splits = backend.info().batch_splits;
  if (std::ranges::find(splits, limits.mode) != splits.end()) {
    const std::vector<int32_t> parts =
        backend.merged_parts(batch, limits, limits.model.layers.front());
    EXPECT_EQ(layer.judged(owned, parts).to_string(), "ok");
    return;
  }
  int64_t tokens = 0;
  for (int64_t i = 0; i < batch.size(); ++i) tokens += batch.q_len(i);
  EXPECT_EQ(layer.results(tokens), layer.expected(owned));
}

TEST(PagedBackends, ForwardStoresThenAttendsToExactlyTheRequestsKeys) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    PagedWorld w;
    const ModelConfig model = model_for(backend, page_size);
    const int32_t q = one_query(mode) ? 1 : 3, q_b = ragged(mode) ? 2 : q;
    const PagedBatch owned(mode, {{page_size - 1, q}, {2 * page_size, q_b}}, page_size,
                           one_query(mode) ? 3 : 0);
    const ForwardBatch batch = owned.view();
    const Meta meta = w.exact(backend, batch, model);
    const Layer layer(w, "layer", model, meta.limits.tokens, owned.pages());
    w.forward(backend, meta, {layer.io()});
    EXPECT_EQ(w.found(), "ok");
    const int32_t stored = owned.slot(0, page_size - 1);
    const auto key = held<float>(layer.k), cache = held<float>(layer.k_cache);
    const int64_t dims = layer.k.shape[1] * layer.k.shape[2];
    EXPECT_TRUE(std::equal(key.begin(), key.begin() + dims, cache.begin() + stored * dims));
    expect_results(backend, meta.limits, layer, owned);
  });
}

TEST(PagedBackends, TablesThatLaunchesGatherAreThoseThatAFillWrites) {
  for_all([](const Backend& backend, ForwardMode mode, int32_t page_size) {
    PagedWorld w;
    ModelConfig model = model_for(backend, page_size);
    if (!backend.info().in_graph_tables) return;
    model.in_graph_tables = true;
    const int32_t q = one_query(mode) ? 1 : 3, q_b = ragged(mode) ? 2 : q;
    const PagedBatch owned(mode, {{page_size - 1, q}, {2 * page_size, q_b}}, page_size,
                           one_query(mode) ? 3 : 0);
    Limits limits = Limits::exact(owned.view(), model);
    limits.rows += 1, limits.tokens += q;  // a row of padding
    Meta meta = w.bind(backend, limits);
    w.fill(backend, owned.view(), meta);
    const Layer layer(w, "layer", model, meta.limits.tokens, owned.pages());
    w.forward(backend, meta, {layer.io()}, w.tables_of(owned.view()));
    EXPECT_EQ(w.found(), "ok");
    EXPECT_EQ(held(meta[Paged::kPoolRows]), (Ints{2, 1, 0}));
    for (size_t i = 0; i < 2; ++i) {
      const int32_t keys = held(meta[Paged::kKvLens])[i];
      EXPECT_EQ(slots_of(meta, Paged::kPageTable, static_cast<int64_t>(i), keys),
                slots_of(owned, i, keys));
    }
    expect_results(backend, limits, layer, owned);
  });
}

TEST(PagedBackends, WhatTheyDoNotServeIsRefusedAndNothingBound) {
  for (const Backend* paged : paged_backends()) {
    PagedWorld w;
    const Backend& backend = *paged;
    const std::string_view name = backend.info().name;
    const int32_t page_size = page_sizes_of(backend)[0];
    const auto refused = [&](auto change) {
      Limits limits = Limits::bucket(ForwardMode::kDecode, 2, 1, model_for(backend, page_size));
      change(limits);
      Meta meta;
      const Status status = backend.bind(w.arena, limits, &meta);
      EXPECT_EQ(w.arena.used(), 0U) << name;
      return ids(status);
    };
    EXPECT_EQ(refused([](Limits& l) { l.model.page_size = 3; }), (Ids{"backend.limits page_size"}));
    EXPECT_EQ(refused([](Limits& l) { l.model.topk = 2; }), (Ids{"backend.limits topk"}));
    EXPECT_EQ(refused([](Limits& l) { l.model.max_encoder_len = 4; }),
              (Ids{"backend.limits max_encoder_len"}));
    EXPECT_EQ(refused([](Limits& l) {
                l.model.attention_chunk = 128;
                l.model.layers[0].local = true;
              }),
              (Ids{"backend.limits layers"}));
    EXPECT_EQ(refused([](Limits& l) { l.mode = ForwardMode::kPrebuilt; }),
              (Ids{"backend.limits mode"}));
    EXPECT_EQ(refused([](Limits& l) { l.model.dcp_size = 3; }), (Ids{"backend.limits dcp_size"}));
  }
}

/// fa.I-88. TRTLLM's, and no kernel of CuteDSL writes there.
TEST(PagedBackends, TrtllmsKernelsCountInAWorkspace) {
  for (const Backend* backend : paged_backends()) {
    PagedWorld w;
    const std::string_view name = backend->info().name;
    const int32_t page_size = page_sizes_of(*backend)[0];
    const PagedBatch owned(ForwardMode::kDecode, {{20, 1}, {33, 1}}, page_size);
    const ModelConfig m = model_for(*backend, page_size);
    const Meta meta = w.exact(*backend, owned.view(), m);
    ASSERT_EQ(meta.has(Paged::kRowCounters), name.starts_with("trtllm")) << name;
    if (!meta.has(Paged::kRowCounters)) continue;
    EXPECT_EQ(held(meta[Paged::kRowCounters]), (Ints{0, 0}));
    const Layer layer(w, "layer", m, 2, owned.pages());
    const auto out_of = [&](int32_t counter) {
      const Ints left = {counter};
      EXPECT_TRUE(w.arena.write(meta[Paged::kRowCounters], 1, std::span<const int32_t>(left)).ok());
      w.upload();
      w.forward(*backend, meta, {layer.io()});
      EXPECT_EQ(w.found(), "ok");
      return held<float>(layer.out);
    };
    const std::vector<float> all = out_of(0), lost = out_of(1);
    EXPECT_EQ(held(meta[Paged::kRowCounters]), (Ints{0, 0}));
    const size_t row = all.size() / 2;
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + std::ssize(all) / 2, lost.begin()));
    for (size_t i = row; i < all.size(); ++i) EXPECT_TRUE(std::isnan(lost[i])) << i;
    EXPECT_EQ(out_of(0), all);
  }
}

}  // namespace
}  // namespace shadowgraph::paged_backends_test
