// The metadata of recurrent backends, number by number.
#include <gtest/gtest.h>

#include "backends/recurrent/mamba2.h"
#include "backends/step_fixture.h"

namespace shadowgraph::recurrent_test {
namespace {

using enum ForwardMode;
using Rb = RecurrentBackend;
using Bytes = std::vector<uint8_t>;

ModelConfig model_of(RecurrentFamily family, int32_t chunk = 8) {
  ModelConfig m;
  m.max_context_len = 64;
  m.topk = family == RecurrentFamily::kLightning ? 1 : 2;
  m.num_steps = 2, m.num_draft_tokens = 3;
  RecurrentLayer layer;
  layer.family = family;
  layer.head_dim_k = layer.head_dim_v = 4;
  layer.conv_width = family == RecurrentFamily::kLightning ? 0 : 4;
  layer.chunk_size = chunk;
  m.layers.emplace_back().math = layer;
  return m;
}
const ModelConfig kGdn = model_of(RecurrentFamily::kGdn);

/// Rows 1, 2 ... of the pool have slots 5, 3, 6.
struct Requests : OwnedBatch {
  Ints slots = {0, 5, 3, 6}, tracks, track_ends, next, sibling;

  Requests(ForwardMode m, Ints seq, Ints extend = {})
      : OwnedBatch(m, usual_seq_lens_kind(m), std::move(seq), std::move(extend)) {
    set_pages(1, 64);
    slots.resize(seq_lens.size() + 1);
    states.slots = slots;
    spec.topk = 2, spec.num_steps = 2, spec.num_draft_tokens = 3;
  }
  void track(Ints to, Ints until) {
    tracks = std::move(to), track_ends = std::move(until);
    states.track_slots = tracks, states.track_lens = track_ends;
  }
};

Bytes bytes(const BoundStep& s, size_t buffer) {
  const Buffer& b = s.meta[buffer];
  const auto* data = reinterpret_cast<const uint8_t*>(b.data);
  return {data, data + b.numel()};
}

/// fi.I-89.
TEST(Recurrent, PaddingOfADecodeHasNoTokensAndNoSlot) {
  const Requests batch(kDecode, {7, 3});
  BoundStep s(*find_backend("gdn"), Limits::bucket(kDecode, 4, 1, kGdn));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kQueryStartLoc), (Ints{0, 1, 2, 2, 2}));
  EXPECT_EQ(s.ints(Rb::kStateIndices), (Ints{5, 3, -1, -1}));
  EXPECT_TRUE(s.meta.has(Rb::kDenseRows));
  EXPECT_FALSE(s.meta.has(Rb::kInitialStates));
}

TEST(Recurrent, ARowAsShortAsPaddingIsReal) {
  const Requests batch(kDecode, {1, 3});
  BoundStep s(*find_backend("mamba2"),
              Limits::bucket(kDecode, 4, 1, model_of(RecurrentFamily::kMamba2)));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kStateIndices), (Ints{5, 3, -1, -1}));
}

TEST(Recurrent, AnNpusPaddingIsSlotZeroAndItsRowsAreFoundByOffsets) {
  const Requests batch(kDecode, {7, 3});
  BoundStep s(*find_backend("ascend_gdn"), Limits::bucket(kDecode, 4, 1, kGdn));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kStateIndices), (Ints{5, 3, 0, 0}));
  EXPECT_FALSE(s.meta.has(Rb::kDenseRows));
}

/// fi.I-89.
TEST(Recurrent, AVerifyHasItsTreesAndPaddingChains) {
  Requests batch(kTargetVerify, {7, 3});
  batch.next = {1, -1, -1, 1, 2, -1}, batch.sibling = {-1, 2, -1, -1, -1, -1};
  batch.set_trees({{{1, 0, 0}, {1, 1, 0}, {1, 0, 1}}, {{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}});
  batch.spec.retrieve_next_token = batch.next, batch.spec.retrieve_next_sibling = batch.sibling;
  BoundStep s(*find_backend("kda"),
              Limits::bucket(kTargetVerify, 3, 3, model_of(RecurrentFamily::kKda)));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kQueryStartLoc), (Ints{0, 3, 6, 6}));
  EXPECT_EQ(s.ints(Rb::kNextToken), (Ints{1, -1, -1, 1, 2, -1, 1, 2, -1}));
  EXPECT_EQ(s.ints(Rb::kNextSibling), (Ints{-1, 2, -1, -1, -1, -1, -1, -1, -1}));
  batch.spec.retrieve_next_token = {};
  EXPECT_EQ(s.refill(batch).findings()[0].id, "batch.field");
}

TEST(Recurrent, AVerifyOfFewerDraftsThanItsRowsHaveIsRefused) {
  Requests batch(kTargetVerify, {7, 3});
  batch.spec.topk = 1;
  ModelConfig m = model_of(RecurrentFamily::kLightning);
  BoundStep rows(*find_backend("lightning"), Limits::bucket(kTargetVerify, 2, 3, m));
  EXPECT_EQ(rows.fill(batch).to_string(), "ok");
  BoundStep wider(*find_backend("lightning"), Limits::bucket(kTargetVerify, 2, 4, m));
  EXPECT_EQ(wider.refill(batch).findings()[0].id, "batch.mode");
}

TEST(Recurrent, WhatTheSecondHalfRefusesLeavesTheFirstUnwritten) {
  Requests batch(kDecode, {7, 3});
  BoundStep s(*find_backend("gdn_two_batch"), Limits::exact(batch, kGdn));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  const auto first_slot = [&] {
    return reinterpret_cast<const int32_t*>(s.meta.children[0][Rb::kStateIndices].data)[0];
  };
  ASSERT_EQ(first_slot(), 5);
  batch.slots = {0, 4, -1, 6};
  const Status status = s.fill(batch);
  ASSERT_EQ(std::as_const(status).findings().size(), 1u) << status.to_string();
  EXPECT_EQ(std::as_const(status).findings()[0].where.field, "states.slots");
  EXPECT_EQ(first_slot(), 5);
}

TEST(Recurrent, ABatchWithoutStatesIsRefused) {
  Requests batch(kDecode, {7, 3});
  BoundStep s(*find_backend("gdn"), Limits::bucket(kDecode, 4, 1, kGdn));
  batch.states.slots = {};
  const Status status = s.refill(batch);
  ASSERT_EQ(std::as_const(status).findings().size(), 2u);
  EXPECT_EQ(std::as_const(status).findings()[1].id, "batch.field");
}

/// The lists of the spec: 0, 5, 10 | 0, 5, 13, 20 | 0, 8, 10 | 0, 3, 6, 9, 17, in chunks of 8.
TEST(Mamba2, ChunksLieOnTheGridOfTheBatch) {
  struct Golden {
    Ints q_lens, indices, offsets;
  };
  const Golden all[] = {{{5, 5}, {0, 0, 1}, {0, 5, 0}},
                        {{5, 8, 7}, {0, 0, 1, 1, 2}, {0, 5, 0, 5, 0}},
                        {{8, 2}, {0, 1}, {0, 0}}};
  for (const Golden& g : all) {
    const Requests batch(kExtend, g.q_lens, g.q_lens);
    const ModelConfig m = model_of(RecurrentFamily::kMamba2);
    BoundStep s(*find_backend("mamba2"), Limits::exact(batch, m));
    ASSERT_EQ(s.fill(batch).to_string(), "ok");
    const auto runs = static_cast<int64_t>(g.indices.size());
    EXPECT_EQ(s.ints(Mamba2::kChunkCount), Ints{static_cast<int32_t>(runs)});
    Ints indices = s.ints(Mamba2::kChunkIndices), offsets = s.ints(Mamba2::kChunkOffsets);
    indices.resize(g.indices.size()), offsets.resize(g.offsets.size());
    EXPECT_EQ(indices, g.indices);
    EXPECT_EQ(offsets, g.offsets);
  }
}

TEST(Recurrent, APromptStartsFromItsSlotWhereItHasAPrefix) {
  Requests batch(kMixed, {9, 5, 6}, {4, 5, 1});
  batch.spec.topk = 1;
  BoundStep s(*find_backend("lightning"),
              Limits::exact(batch, model_of(RecurrentFamily::kLightning)));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kQueryStartLoc), (Ints{0, 4, 9, 10}));
  EXPECT_EQ(bytes(s, Rb::kInitialStates), (Bytes{1, 0, 1}));
}

TEST(Recurrent, SnapshotsAreTakenAtTheLastWholeChunk) {
  // 9 tokens behind 2 of another request, 8 tokens, and 3.
  Requests batch(kExtend, {11, 8, 3}, {9, 8, 3});
  batch.track({1, 2, 4}, {11, 8, 3});
  ModelConfig m = model_of(RecurrentFamily::kGdn, 4);
  m.track_states = true;
  BoundStep s(*find_backend("gdn"), Limits::exact(batch, m));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kTrackSlots), (Ints{1, 2, -1}));
  EXPECT_EQ(s.ints(Rb::kTrackConv), (Ints{5, 6, 7, 14, 15, 16, 0, 0, 0}));
  EXPECT_EQ(s.ints(Rb::kTrackFinal), (Ints{-1, 3, -1}));
  EXPECT_EQ(s.ints(Rb::kTrackChunks), (Ints{2, -1, -1}));
}

TEST(Mamba2, ASnapshotInsideOfAChunkIsComputedOnceMore) {
  // Behind 4 of 5 tokens, on the grid, and behind 8 of 9 that begin with token 5.
  Requests batch(kExtend, {5, 11, 3}, {5, 9, 3});
  batch.track({1, 2, -1}, {5, 11, 0});
  ModelConfig m = model_of(RecurrentFamily::kMamba2, 4);
  m.track_states = true;
  BoundStep s(*find_backend("mamba2"), Limits::exact(batch, m));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kTrackChunks), (Ints{1, -1, -1}));
  EXPECT_EQ(s.ints(Mamba2::kAgainRows), (Ints{0, 4, 5, 13, 14, 14, 17}));
  EXPECT_EQ(s.ints(Mamba2::kAgainSlots), (Ints{-1, -1, 2, -1, -1, -1}));
  EXPECT_EQ(bytes(s, Mamba2::kAgainInitial)[2], 1);
  EXPECT_EQ(s.ints(Mamba2::kAgainFrom), (Ints{-1, 3, -1}));
}

TEST(HybridLinear, BothKindsOfLayersAreBoundAndNeededEach) {
  ModelConfig m = kGdn;
  const Backend& hybrid = *find_backend("flashattention_gdn");
  SimDevice device;
  Arena arena(device, 1 << 20);
  Meta meta;
  EXPECT_FALSE(hybrid.bind(arena, Limits::bucket(kDecode, 2, 1, m), &meta).ok());
  EXPECT_EQ(arena.used(), 0u);
  LayerKind dense;
  dense.params = {.num_qo_heads = 2, .num_kv_heads = 1, .head_dim_qk = 4, .head_dim_vo = 4};
  m.layers.push_back(dense);
  m.topk = 1;
  ASSERT_EQ(hybrid.bind(arena, Limits::bucket(kDecode, 2, 1, m), &meta).to_string(), "ok");
  ASSERT_EQ(meta.children.size(), 2u);
  EXPECT_EQ(meta.children[1].buffers[Rb::kStateIndices].name, "linear/mamba_cache_indices");
}

TEST(Recurrent, LayersOfAnotherFamilyAreRefused) {
  SimDevice device;
  Arena arena(device, 1 << 20);
  Meta meta;
  EXPECT_FALSE(find_backend("kda")->bind(arena, Limits::bucket(kDecode, 2, 1, kGdn), &meta).ok());
  EXPECT_FALSE(
      find_backend("flashattention")->bind(arena, Limits::bucket(kDecode, 2, 1, kGdn), &meta).ok());
  ModelConfig bare = kGdn;
  std::get<RecurrentLayer>(bare.layers[0].math).conv_width = 0;
  EXPECT_FALSE(find_backend("gdn")->bind(arena, Limits::bucket(kDecode, 2, 1, bare), &meta).ok());
  ModelConfig chunk = kGdn;
  chunk.layers.push_back(chunk.layers[0]);
  std::get<RecurrentLayer>(chunk.layers[1].math).chunk_size = 4;
  EXPECT_FALSE(find_backend("gdn")->bind(arena, Limits::bucket(kDecode, 2, 1, chunk), &meta).ok());
}

}  // namespace
}  // namespace shadowgraph::recurrent_test
