// Dual-chunk metadata by figures that are known, a prefill's rows, its results in pieces,
// and what is stored.
#include "backends/paged/dual_chunk.h"

#include "attn/dual_chunk.h"
#include "attn/tensor_rows.h"
#include "backends/paged_world.h"

namespace shadowgraph::dual_chunk_test {
namespace {

using Dc = DualChunkAttention;

const Dc kDc;
constexpr int32_t kPage = 4, kLen = 8;

ModelConfig dual_model(int32_t original = 0) {
  ModelConfig m = model_of(kPage, 2);
  m.layers[0].dual_chunk = m.layers[0].params.causal = true;
  m.dual_chunk = {.chunk_size = kLen + 3, .local_size = 3, .original_max_position = original};
  return m;
}

/// The lengths of one row, 0 of a part that is not bound.
Ints parts_of(const Meta& meta, size_t row) {
  Ints parts;
  for (const Dc::BufferId lens : {Dc::kSeqLensIntra, Dc::kSeqLensSucc, Dc::kSeqLensInter})
    parts.push_back(meta.has(lens) ? held(meta[lens])[row] : 0);
  return parts;
}

/// The slots of all parts of a row, the last chunk first.
Ints keys_of(const Meta& meta, size_t row) {
  const Ints parts = parts_of(meta, row);
  const int tables[] = {Dc::kBlockTablesIntra, Dc::kBlockTablesSucc, Dc::kBlockTables};
  Ints keys;
  for (size_t p = 3; p-- > 0;) {
    const Ints part =
        parts[p] == 0 ? Ints{} : slots_of(meta, tables[p], static_cast<int64_t>(row), parts[p]);
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

/// Spec 17.8.
TEST(DualChunkAttention, ADecodesPartsAreThoseOfTheSpecification) {
  const std::pair<int32_t, Ints> golden[] = {
      {8, {8, 0, 0}}, {9, {1, 8, 0}}, {16, {8, 8, 0}}, {17, {1, 8, 8}}, {20, {4, 8, 8}}};
  PagedWorld w;
  for (const auto& [len, parts] : golden) {
    const PagedBatch batch(ForwardMode::kDecode, {{len - 1, 1}, {2, 1}}, kPage);
    const Meta meta = w.exact(kDc, batch.view(), dual_model());
    EXPECT_EQ(parts_of(meta, 0), parts) << len;
    EXPECT_EQ(parts_of(meta, 1), (Ints{3, 0, 0})) << len;
    EXPECT_EQ(keys_of(meta, 0), slots_of(batch, 0, len)) << len;
    EXPECT_EQ(held(meta[Dc::kQueryStartLoc]), (Ints{0, 1, 2}));
    EXPECT_EQ(held(meta[Dc::kSeqStartLoc]), (Ints{0, len, len + 3}));
    EXPECT_EQ(meta.has(Dc::kBlockTablesSucc), len > kLen);
    EXPECT_EQ(meta.has(Dc::kBlockTables), len > 2 * kLen);
  }
}

TEST(DualChunkAttention, PaddingHasOneKeyInItsOwnChunk) {
  PagedWorld w;
  Meta meta = w.bind(kDc, Limits::bucket(ForwardMode::kDecode, 4, 1, dual_model(9)));
  const PagedBatch batch(ForwardMode::kDecode, {{19, 1}, {9, 1}}, kPage);
  w.fill(kDc, batch.view(), meta);
  EXPECT_EQ(parts_of(meta, 1), (Ints{2, 8, 0}));
  for (const size_t row : {size_t{2}, size_t{3}}) {
    EXPECT_EQ(parts_of(meta, row), (Ints{1, 0, 0}));
    EXPECT_EQ(keys_of(meta, row), Ints{0});
    EXPECT_EQ(held<float>(meta[Dc::kScalingFactor])[row], 1);
  }
}

TEST(DualChunkAttention, APrefillHasARowForEachChunkThatItsQueriesTouch) {
  PagedWorld w;
  const PagedBatch batch(ForwardMode::kExtend, {{5, 14}, {0, 3}, {16, 1}}, kPage);
  const Meta meta = w.exact(kDc, batch.view(), dual_model());
  const Ints starts = held(meta[Dc::kRowStartLoc]);
  EXPECT_EQ(Ints(starts.begin(), starts.begin() + 6), (Ints{0, 3, 11, 14, 17, 18}));
  EXPECT_EQ(starts.back(), 18);
  const Ints parts[] = {{8, 0, 0}, {8, 8, 0}, {3, 8, 8}, {3, 0, 0}, {1, 8, 8}};
  const std::pair<size_t, int32_t> keys[] = {{0, 8}, {0, 16}, {0, 19}, {1, 3}, {2, 17}};
  for (size_t row = 0; row < std::size(parts); ++row) {
    EXPECT_EQ(parts_of(meta, row), parts[row]) << row;
    EXPECT_EQ(keys_of(meta, row), slots_of(batch, keys[row].first, keys[row].second)) << row;
  }
  for (size_t row = std::size(parts); row + 1 < starts.size(); ++row)
    EXPECT_EQ(parts_of(meta, row), (Ints{0, 0, 0})) << row;
  EXPECT_EQ(held(meta[Dc::kQueryStartLoc]), (Ints{0, 14, 17, 18}));
}

/// One prompt, whole and in pieces: results and the cache, bit for bit.
TEST(DualChunkAttention, APromptInPiecesHasTheBitsOfTheWhole) {
  constexpr int32_t kTokens = 23;
  for (const int32_t original : {0, 7}) {
    PagedWorld w;
    const ModelConfig m = dual_model(original);
    const PagedBatch whole(ForwardMode::kExtend, {{0, kTokens}}, kPage);
    const Layer layer(w, "layer", m, kTokens, whole.pages());
    w.forward(kDc, w.exact(kDc, whole.view(), m), {layer.io()});
    const auto results = layer.results(kTokens), keys = held<float>(layer.k_cache);
    w.stream.fill(layer.out.data, 0x55, layer.out.bytes());
    w.stream.fill(layer.k_cache.data, 0xff, layer.k_cache.bytes());
    int32_t at = 0;
    for (const int32_t piece : {5, 7, 11}) {
      const PagedBatch part(ForwardMode::kExtend, {{at, piece}}, kPage);
      ForwardBatch batch = part.view();
      const Ints prompt{kTokens};
      batch.orig_seq_lens = prompt;
      LayerIo io = layer.io();
      io.q = rows_of(io.q, at, piece), io.k = rows_of(io.k, at, piece);
      io.v = rows_of(io.v, at, piece), io.out = rows_of(io.out, at, piece);
      io.lse = NaturalLse(rows_of(io.lse.tensor, at, piece));
      w.forward(kDc, w.exact(kDc, batch, m), {io});
      at += piece;
    }
    EXPECT_EQ(layer.results(kTokens), results) << original;
    for (int32_t t = 0; t < kTokens; ++t) {
      const auto first = static_cast<size_t>(whole.slot(0, t)) * 2 * 16;
      const auto now = held<float>(layer.k_cache);
      for (size_t i = first; i < first + 32; ++i) ASSERT_EQ(now[i], keys[i]) << t;
    }
    EXPECT_EQ(w.found(), "ok");
  }
}

TEST(DualChunkAttention, KeysAreStoredTimesTheFactorOfTheWholePrompt) {
  PagedWorld w;
  const ModelConfig m = dual_model(4);
  const PagedBatch batch(ForwardMode::kExtend, {{0, 3}, {2, 4}}, kPage);
  ForwardBatch b = batch.view();
  const Ints prompts{11, 6};
  b.orig_seq_lens = prompts;
  const Meta meta = w.exact(kDc, b, m);
  const Layer layer(w, "layer", m, 7, batch.pages());
  w.forward(kDc, meta, {layer.io()});
  const auto given = held<float>(layer.k), stored = held<float>(layer.k_cache);
  for (int32_t t = 0; t < 7; ++t) {
    const size_t request = t < 3 ? 0 : 1;
    const auto factor = static_cast<float>(dual_chunk_factor(prompts[request], 4));
    const int32_t slot = batch.slot(request, t < 3 ? t : t - 1);
    for (size_t i = 0; i < 32; ++i)
      ASSERT_EQ(stored[static_cast<size_t>(slot) * 32 + i],
                given[static_cast<size_t>(t) * 32 + i] * factor);
  }
  EXPECT_EQ(w.found(), "ok");
}

TEST(DualChunkAttention, WhatItDoesNotServeIsNamed) {
  const auto refused = [](auto change) {
    PagedWorld w;
    ModelConfig m = dual_model();
    change(m);
    Meta meta;
    return kDc.bind(w.arena, Limits::bucket(ForwardMode::kDecode, 2, 1, m), &meta).to_string();
  };
  EXPECT_EQ(refused([](ModelConfig&) {}), "ok");
  const auto names = [](const std::string& text, const char* field) {
    return text.find(std::string("backend.limits: ") + field) != std::string::npos;
  };
  EXPECT_TRUE(
      names(refused([](ModelConfig& m) { m.dual_chunk.chunk_size = 9; }), "dual_chunk.chunk_size"));
  EXPECT_TRUE(names(refused([](ModelConfig& m) { m.dual_chunk.local_size = 11; }),
                    "dual_chunk.local_size"));
  EXPECT_TRUE(names(refused([](ModelConfig& m) { m.dual_chunk.original_max_position = -1; }),
                    "dual_chunk.original_max_position"));
  EXPECT_TRUE(names(refused([](ModelConfig& m) { m.layers[0].dual_chunk = false; }), "dual_chunk"));
  EXPECT_TRUE(
      names(refused([](ModelConfig& m) { m.layers[0].params.window_left = 3; }), "dual_chunk"));
  PagedWorld w;
  Meta meta;
  const Limits limits = Limits::bucket(ForwardMode::kDecode, 2, 1, dual_model());
  EXPECT_TRUE(names(find_backend("flashattention")->bind(w.arena, limits, &meta).to_string(),
                    "dual_chunk"));
}

TEST(DualChunkAttention, APromptIsNoShorterThanItsKeys) {
  const PagedBatch owned(ForwardMode::kExtend, {{2, 3}}, kPage);
  ForwardBatch batch = owned.view();
  const Ints short_of_one{4}, enough{5}, two{5, 5};
  batch.orig_seq_lens = enough;
  EXPECT_TRUE(validate(batch).ok());
  batch.orig_seq_lens = short_of_one;
  EXPECT_EQ(validate(batch).to_string(), "len.extent: orig_seq_lens[0] is 4, expected >= 5 keys");
  batch.orig_seq_lens = two;
  EXPECT_FALSE(validate(batch).ok());
}

}  // namespace
}  // namespace shadowgraph::dual_chunk_test
