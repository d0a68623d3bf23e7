// FlashInfer's metadata: which slots each wrapper's lists have, masks, plans, and what is refused.
#include "backends/lists/flashinfer.h"

#include <gtest/gtest.h>

#include "backends/step_fixture.h"

namespace shadowgraph::flashinfer_test {
namespace {

using enum ForwardMode;
using enum SeqLensKind;
using Fi = FlashInfer;
using Lists = std::vector<Ints>;

const FlashInfer kFi;

LayerKind layer(int32_t window_left = -1) {
  LayerKind k;
  k.params = {.num_qo_heads = 2,
              .num_kv_heads = 1,
              .head_dim_qk = 4,
              .head_dim_vo = 4,
              .sm_scale = 1,
              .causal = true,
              .window_left = window_left};
  return k;
}
ModelConfig model(std::vector<LayerKind> layers, int32_t page_size = 1) {
  ModelConfig m;
  m.max_context_len = 24;
  m.page_size = page_size;
  m.layers = std::move(layers);
  m.split.num_sms = 4, m.split.blocks_per_sm = 1, m.split.min_size = 2;
  return m;
}
ModelConfig draft_model(int32_t topk, int32_t num_steps, int32_t page_size = 1) {
  ModelConfig m = model({layer()}, page_size);
  m.topk = topk, m.num_steps = num_steps, m.num_draft_tokens = 2;
  return m;
}

/// Slots 100 i + p of token p.
void set_rows(OwnedBatch* b) {
  std::vector<Ints> rows;
  for (size_t i = 1; i <= b->lens.size(); ++i) {
    rows.emplace_back(30);
    std::iota(rows.back().begin(), rows.back().end(), static_cast<int32_t>(100 * i));
  }
  b->set_rows(rows, 30, -7);
}

struct Bound : BoundStep {
  explicit Bound(const Limits& limits) : BoundStep(kFi, limits) {}

  Lists lists(int wrapper) const {
    const Ints indptr = ints(static_cast<size_t>(Fi::list(wrapper, Fi::kKvIndptr)));
    const Ints all = ints(static_cast<size_t>(Fi::list(wrapper, Fi::kKvIndices)));
    Lists rows;
    for (size_t i = 0; i + 1 < indptr.size(); ++i)
      rows.emplace_back(all.begin() + indptr[i], all.begin() + indptr[i + 1]);
    return rows;
  }
  std::vector<uint8_t> mask(int wrapper) const {
    const Ints indptr = ints(static_cast<size_t>(Fi::list(wrapper, Fi::kMaskIndptr)));
    const auto* data = reinterpret_cast<const uint8_t*>(
        meta[static_cast<size_t>(Fi::list(wrapper, Fi::kMask))].data);
    return {data, data + indptr.back()};
  }
  Ints plan(int wrapper, Fi::Part part, Fi::PlanId id) const {
    return ints(static_cast<size_t>(Fi::plan(wrapper, part, id)));
  }
  int64_t scalar(int id) const { return meta.scalars[static_cast<size_t>(id)]; }
};

TEST(FlashInfer, ADecodesWindowIsTheQueryAndTheKeysBeforeIt) {
  OwnedBatch b(kDecode, kFull, {5, 2});
  set_rows(&b);
  Bound s(Limits::exact(b, model({layer(2), layer()})));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{102, 103, 104}, {200, 201}}));
  EXPECT_EQ(s.lists(1), (Lists{{100, 101, 102, 103, 104}, {200, 201}}));
  EXPECT_EQ(s.scalar(Fi::kWindowLeft), -1);
}

TEST(FlashInfer, AWindowOfNoKeyBeforeTheQueryIsTheQueryAlone) {
  OwnedBatch b(kDecode, kFull, {5});
  set_rows(&b);
  Bound s(Limits::exact(b, model({layer(0)})));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{104}}));
}

TEST(FlashInfer, AWindowsPoolHasSlotsOfItsOwn) {
  OwnedBatch b(kDecode, kFull, {3});
  b.set_rows({{7, 3, 5}}, 8);
  b.set_swa(20, 1);
  b.set_loc({5});
  ModelConfig m = model({layer(1), layer()});
  m.swa_pool = true;
  Bound s(Limits::exact(b, m));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{17, 15}}));
  EXPECT_EQ(s.lists(1), (Lists{{7, 3, 5}}));
  EXPECT_EQ(s.slots(Fi::kSwaOutCacheLoc), Longs{15});
}

TEST(FlashInfer, AnExtendBeginsAtTheFirstQuerysWindow) {
  OwnedBatch b(kExtend, kFull, {9, 4}, {4, 3});
  set_rows(&b);
  Bound s(Limits::exact(b, model({layer(2), layer()})));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{103, 104, 105, 106, 107, 108}, {200, 201, 202, 203}}));
  EXPECT_EQ(s.lists(1)[0].size(), 9u);
  EXPECT_EQ(s.ints(Fi::kQoIndptr), (Ints{0, 4, 7}));
  EXPECT_EQ(s.ints(Fi::kLastPageLen), (Ints{1, 1}));
  // Some queries see less than the list.
  EXPECT_EQ(s.scalar(Fi::kWindowLeft), 2);
  EXPECT_EQ(s.scalar(Fi::kUseRagged), 0);
  EXPECT_EQ(s.scalar(Fi::kExtendNoPrefix), 0);
  OwnedBatch one(kExtend, kFull, {9}, {1});
  set_rows(&one);
  ASSERT_TRUE(s.fill(one).ok());
  EXPECT_EQ(s.scalar(Fi::kWindowLeft), -1);
}

TEST(FlashInfer, ARaggedPrefillListsThePrefixAloneInBothWrappers) {
  OwnedBatch b(kExtend, kFull, {9, 3}, {4, 2});
  set_rows(&b);
  ModelConfig m = model({layer(2), layer()});
  m.ragged_prefill = true;
  Bound s(Limits::exact(b, m));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{103, 104}, {200}}));
  EXPECT_EQ(s.lists(1), (Lists{{100, 101, 102, 103, 104}, {200}}));
  EXPECT_EQ(s.mask(0), (std::vector<uint8_t>{0x0b, 0x03}));
  EXPECT_FALSE(s.meta.has(static_cast<size_t>(Fi::list(1, Fi::kMask))));
  EXPECT_EQ(s.scalar(Fi::kUseRagged), 1);
  // Its own tokens have a plan of their own: 4 and 2 queries of as many keys.
  EXPECT_EQ(s.plan(0, Fi::Part::kRagged, Fi::kOIndptr).back(),
            s.scalar(Fi::split_kv(0, Fi::Part::kRagged)) != 0 ? 4 * 2 + 2 : 6);
  OwnedBatch fresh(kExtend, kFull, {4, 2}, {4, 2});
  set_rows(&fresh);
  ASSERT_TRUE(s.fill(fresh).ok());
  EXPECT_EQ(s.lists(1), (Lists{{}, {}}));
  EXPECT_EQ(s.scalar(Fi::kExtendNoPrefix), 1);
}

TEST(FlashInfer, CrossAttentionListsTheEncodersTokensAndSelfThoseBehindThem) {
  OwnedBatch b(kDecode, kFull, {2, 1});
  set_rows(&b);
  b.set_encoders({3, 0}, {100, 101, 102});
  ModelConfig m = model({layer(), layer()});
  m.layers[1].cross = true, m.layers[1].params.causal = false;
  m.max_encoder_len = 4;
  Limits limits = Limits::exact(b, m);
  limits.rows = limits.tokens = 3;
  Bound s(limits);
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{103, 104}, {200}, {0}}));
  EXPECT_EQ(s.lists(1), (Lists{{100, 101, 102}, {}, {}}));
  EXPECT_EQ(s.slots(Fi::kEncoderOutCacheLoc), (Longs{100, 101, 102, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(FlashInfer, EveryBranchOfADraftHasThePrefixAndItsOwnTokens) {
  const Lists expected[] = {
      {{100, 101, 102, 103}, {100, 101, 102, 106}, {200, 201, 202}, {200, 201, 205}},
      {{100, 101, 102, 103, 104},
       {100, 101, 102, 106, 107},
       {200, 201, 202, 203},
       {200, 201, 205, 206}},
      {{100, 101, 102, 103, 104, 105},
       {100, 101, 102, 106, 107, 108},
       {200, 201, 202, 203, 204},
       {200, 201, 205, 206, 207}}};
  for (int32_t step = 0; step < 3; ++step) {
    OwnedBatch b(kDraftDecode, kPrefix, {3, 2});
    set_rows(&b);
    b.set_loc({103, 104, 105, 106, 107, 108, 202, 203, 204, 205, 206, 207});
    b.spec.topk = 2, b.spec.num_steps = 3, b.spec.step = step;
    Bound s(Limits::exact(b, draft_model(2, 3)));
    ASSERT_EQ(s.fill(b).to_string(), "ok");
    EXPECT_EQ(s.lists(0), expected[step]) << step;
  }
}

TEST(FlashInfer, ABranchOnPagesOfItsOwnIsReadWhereItWasStored) {
  OwnedBatch b(kDraftDecode, kPrefix, {5});
  set_rows(&b);
  b.set_loc({105, 106, 107, 109, 110, 111});
  b.spec.topk = 2, b.spec.num_steps = 3;
  Bound s(Limits::exact(b, draft_model(2, 3, 4)));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{100, 101, 102, 103, 104, 105}, {100, 101, 102, 103, 104, 109}}));
}

TEST(FlashInfer, ABranchsWindowMayBeginInsideIt) {
  OwnedBatch b(kDraftDecode, kPrefix, {3});
  set_rows(&b);
  b.set_loc({103, 104, 105, 106, 107, 108});
  b.spec.topk = 2, b.spec.num_steps = 3, b.spec.step = 2;
  for (const auto& [left, expected] : {std::pair{1, Lists{{104, 105}, {107, 108}}},
                                       {3, {{102, 103, 104, 105}, {102, 106, 107, 108}}}}) {
    ModelConfig m = draft_model(2, 3);
    m.layers = {layer(left)};
    Bound s(Limits::exact(b, m));
    ASSERT_TRUE(s.fill(b).ok());
    EXPECT_EQ(s.lists(0), expected);
  }
}

TEST(FlashInfer, AChainWithoutSlotsOfItsOwnFollowsInTheRow) {
  OwnedBatch b(kDraftDecode, kPrefix, {3});
  set_rows(&b);
  b.spec.num_steps = 3, b.spec.step = 1;
  Bound s(Limits::exact(b, draft_model(1, 3)));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{100, 101, 102, 103, 104}}));
}

TEST(FlashInfer, AVerifiedChainSeesThePrefixAndTheDraftsBeforeIt) {
  OwnedBatch b(kTargetVerify, kPrefix, {3});
  set_rows(&b);
  b.spec.num_draft_tokens = 2;
  Bound s(Limits::bucket(kTargetVerify, 2, 2, draft_model(1, 1)));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.lists(0), (Lists{{100, 101, 102, 103, 104}, {0, 0, 0}}));
  // 11110 11111, and padding's 110 111.
  EXPECT_EQ(s.mask(0), (std::vector<uint8_t>{0xef, 0x03, 0x3b}));
  EXPECT_EQ(s.ints(Fi::kQoIndptr), (Ints{0, 2, 4}));
}

TEST(FlashInfer, AVerifiedTreesWindowIsCutFromListAndMaskAlike) {
  OwnedBatch b(kTargetVerify, kPrefix, {5});
  set_rows(&b);
  b.spec.topk = 2, b.spec.num_steps = 2, b.spec.num_draft_tokens = 2;
  b.set_trees({{{1, 0}, {0, 1}}});
  ModelConfig m = draft_model(2, 2);
  m.layers = {layer(2), layer()};
  Bound s(Limits::exact(b, m));
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.lists(0), (Lists{{103, 104, 105, 106}}));
  EXPECT_EQ(s.mask(0), (std::vector<uint8_t>{0xb7}));  // 1110 1101: siblings
  EXPECT_EQ(s.lists(1)[0].size(), 7u);
  EXPECT_EQ(s.mask(1), (std::vector<uint8_t>{0xbf, 0x2f}));  // 1111110 1111101
}

TEST(FlashInfer, ADraftExtendSeesAllKeysWhateverItsLengthsMean) {
  for (const SeqLensKind kind : {kFull, kPrefix}) {
    OwnedBatch b(kDraftExtendV2, kind, kind == kFull ? Ints{5} : Ints{3}, {2});
    set_rows(&b);
    Bound s(Limits::bucket(kDraftExtendV2, 2, 2, draft_model(1, 1)));
    ASSERT_TRUE(s.fill(b).ok());
    EXPECT_EQ(s.lists(0), (Lists{{100, 101, 102, 103, 104}, {0}}));
  }
}

TEST(FlashInfer, ADraftExtendIsRaggedWhereItsLengthsAreKnown) {
  OwnedBatch b(kDraftExtendV2, kFull, {5}, {2});
  set_rows(&b);
  ModelConfig m = draft_model(1, 1);
  m.ragged_prefill = true;
  Bound known(Limits::exact(b, m)), bucket(Limits::bucket(kDraftExtendV2, 1, 2, m));
  m.split.fixed_size = 4;
  Bound alike(Limits::exact(b, m));
  for (Bound* s : {&known, &bucket, &alike}) ASSERT_TRUE(s->fill(b).ok());
  EXPECT_EQ(known.lists(0)[0].size(), 3u);
  EXPECT_EQ(bucket.lists(0)[0].size(), 5u);
  EXPECT_EQ(alike.lists(0)[0].size(), 5u);
}

TEST(FlashInfer, AGraphsPlanIsCutWhateverTheBatchAndAFullGridIsNot) {
  OwnedBatch b(kDecode, kFull, {2, 1}), longer(kDecode, kFull, {5, 3});
  set_rows(&b), set_rows(&longer);
  const int cut = Fi::split_kv(0, Fi::Part::kPaged);
  Bound eager(Limits::exact(longer, model({layer()})));
  ASSERT_TRUE(eager.fill(longer).ok());
  EXPECT_EQ(eager.scalar(cut), 1);
  EXPECT_EQ(eager.plan(0, Fi::Part::kPaged, Fi::kKvChunkSize), Ints{3});
  ASSERT_TRUE(eager.fill(b).ok());
  EXPECT_EQ(eager.scalar(cut), 0);
  Bound graph(Limits::bucket(kDecode, 3, 1, model({layer()})));
  for (const OwnedBatch* batch : {&b, &longer}) {
    ASSERT_TRUE(graph.fill(*batch).ok());
    EXPECT_EQ(graph.scalar(cut), 1);
  }
  Bound full(Limits::bucket(kDecode, 4, 1, model({layer()})));
  ASSERT_TRUE(full.fill(longer).ok());
  EXPECT_EQ(full.scalar(cut), 0);
}

TEST(FlashInfer, TensorCoresDecodeGroupsOfFourByThePrefillsPlan) {
  OwnedBatch b(kDecode, kFull, {5, 3});
  set_rows(&b);
  ModelConfig m = model({layer()});
  m.layers[0].params.num_qo_heads = 4;
  Bound s(Limits::exact(b, m));
  ASSERT_TRUE(s.fill(b).ok());
  EXPECT_EQ(s.ints(Fi::kQoIndptr), (Ints{0, 1, 2}));
  EXPECT_EQ(s.plan(0, Fi::Part::kPaged, Fi::kQoTileIndices)[0], 0);
  EXPECT_EQ(s.plan(0, Fi::Part::kPaged, Fi::kMergeIndptr), (Ints{0, 2, 3}));
}

TEST(FlashInfer, ItsPartsAreTheChunksOfEachQueryAndOfBothCalls) {
  OwnedBatch b(kDecode, kFull, {5, 3});
  set_rows(&b);
  ModelConfig m = model({layer()});
  EXPECT_EQ(kFi.merged_parts(b, Limits::exact(b, m), m.layers[0]), (Ints{2, 1}));
  m.split.off = true;
  EXPECT_EQ(kFi.merged_parts(b, Limits::exact(b, m), m.layers[0]), (Ints{1, 1}));
  OwnedBatch prefill(kExtend, kFull, {5, 3}, {1, 2});
  set_rows(&prefill);
  m.ragged_prefill = true;
  EXPECT_EQ(kFi.merged_parts(prefill, Limits::exact(prefill, m), m.layers[0]), (Ints{2, 2, 2}));
  OwnedBatch draft(kDraftDecode, kPrefix, {4});
  set_rows(&draft);
  draft.set_loc({104, 105});
  draft.spec.topk = 2, draft.spec.num_steps = 1;
  m = draft_model(2, 1);
  EXPECT_EQ(kFi.merged_parts(draft, Limits::exact(draft, m), m.layers[0]), (Ints{2, 2}));
}

Status bound(const ModelConfig& m, ForwardMode mode = kDecode) {
  SimDevice device;
  Arena arena(device, 1 << 20);
  Meta meta;
  return kFi.bind(arena, Limits::bucket(mode, 2, 1, m), &meta);
}

TEST(FlashInfer, LayersThatShareAWrapperAgreeInWhatItsPlanDependsOn) {
  EXPECT_EQ(bound(model({layer(2), layer(), layer(2)})).to_string(), "ok");
  EXPECT_NE(bound(model({layer(2), layer(3)})).to_string().find("wrapper 0"), std::string::npos);
  ModelConfig m = model({layer(), layer()});
  m.layers[1].params.num_qo_heads = 4;
  EXPECT_NE(bound(m).to_string().find("backend.limits"), std::string::npos);
  m.layers[1] = layer();
  m.layers[1].params.sm_scale = 3;
  EXPECT_EQ(bound(m).to_string(), "ok");
}

TEST(FlashInfer, WhatItHasNoListForIsRefusedAtOnce) {
  ModelConfig m = model({layer(2), layer()});
  m.max_encoder_len = 3, m.attention_chunk = 4, m.dcp_size = 2;
  m.layers[1].local = true;
  const Status status = bound(m);
  EXPECT_EQ(status.findings().size(), 3u) << status.to_string();
  m = model({layer()});
  m.max_context_len = INT32_MAX / 2 + 1;
  EXPECT_NE(bound(m).to_string().find("max_kv_len"), std::string::npos);
}

TEST(FlashInfer, LayersThatItsKernelsCannotSayAreRefused) {
  const auto refused = [](auto change) {
    ModelConfig m = model({layer()});
    change(m.layers[0].params);
    return bound(m).findings().size() == 1;
  };
  EXPECT_TRUE(refused([](AttentionParams& p) { p.window_right = 0; }));
  EXPECT_TRUE(refused([](AttentionParams& p) { p.custom_mask.kind = CustomMask::Kind::kBool; }));
  EXPECT_TRUE(refused([](AttentionParams& p) { p.num_qo_heads = 3, p.num_kv_heads = 2; }));
  EXPECT_TRUE(refused([](AttentionParams& p) { p.num_kv_heads = -1; }));
}

/// fi.I-56: seven tokens, then items of two and of one token; a prefix of four, and one item of two
/// and one of five; no item.
void set_items(OwnedBatch* b) {
  set_rows(b);
  b->set_items({7, 10, 12, 3, 6}, {0, 3, 5, 5});
}

TEST(FlashInfer, PlacesInItemsCountFromTheirDelimiter) {
  OwnedBatch b(kExtend, kFull, {13, 16, 3}, {13, 12, 2});
  set_items(&b);
  ModelConfig m = model({layer()});
  m.ragged_prefill = true;
  Limits limits = Limits::exact(b, m);
  EXPECT_EQ(limits.max_items_len, 9);
  limits.rows = 4;
  Bound s(limits);
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.ints(Fi::kItemPrefixLens), (Ints{7, 7, 3, 1}));
  EXPECT_EQ(s.row(Fi::kTokenPosInItems, 0, 9), (Ints{0, 1, 2, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(s.row(Fi::kTokenPosInItems, 1, 9), (Ints{0, 1, 2, 0, 1, 2, 3, 4, 5}));
  for (const int64_t none : {2, 3}) EXPECT_EQ(s.row(Fi::kTokenPosInItems, none, 9), Ints(9, 0));
  EXPECT_EQ(s.ints(Fi::kMaxItemLens), (Ints{2, 5, 0, 0}));
  // Over pages alone.
  EXPECT_EQ(s.scalar(Fi::kUseRagged), 0);
  EXPECT_EQ(s.scalar(Fi::kExtendNoPrefix), 0);
  EXPECT_EQ(s.lists(0)[1].size(), 16u);
}

TEST(FlashInfer, ItemsNeedLayersThatSeeAllKeysUpToTheQuery) {
  OwnedBatch b(kExtend, kFull, {13, 16, 3}, {13, 12, 2});
  set_items(&b);
  const auto bound_by = [&](const LayerKind& kind, std::string_view backend, int32_t encoder = 0) {
    SimDevice device;
    Arena arena(device, 1 << 20);
    Meta meta;
    ModelConfig m = model({layer(), kind});
    m.max_encoder_len = encoder;
    const Status status = find_backend(backend)->bind(arena, Limits::exact(b, m), &meta);
    return status.to_string();
  };
  LayerKind free = layer();
  free.params.causal = false;
  const auto has = [](const std::string& all, const char* field) {
    return all.find(std::string("backend.limits: ") + field) != std::string::npos;
  };
  EXPECT_EQ(bound_by(layer(), "flashinfer"), "ok");
  EXPECT_TRUE(has(bound_by(layer(2), "flashinfer"), "layers"));
  EXPECT_TRUE(has(bound_by(free, "flashinfer"), "layers"));
  free.cross = true;
  EXPECT_EQ(bound_by(free, "flashinfer", 3), "ok");
  for (const Backend* other : all_backends()) {
    const BackendInfo& info = other->info();
    if (info.items || info.whole_draft) continue;
    EXPECT_TRUE(has(bound_by(layer(), info.name), "max_items_len")) << info.name;
  }
}

TEST(FlashInfer, ItemsThatItIsNotBoundForAreRefused) {
  OwnedBatch b(kExtend, kFull, {13, 16, 3}, {13, 12, 2}), plain(kExtend, kFull, {13}, {13});
  set_items(&b), set_rows(&plain);
  Limits limits = Limits::exact(b, model({layer()}));
  Bound s(limits);
  ASSERT_EQ(s.fill(plain).to_string(), "ok");
  EXPECT_EQ(s.ints(Fi::kItemPrefixLens)[0], 13);
  for (const int32_t most : {0, 8}) {
    limits.max_items_len = most;
    Bound less(limits);
    const Status status = less.fill(b);
    ASSERT_EQ(status.findings().size(), most == 0 ? 2u : 1u) << status.to_string();
    EXPECT_EQ(status.findings()[0].id, "batch.capacity");
    EXPECT_EQ(status.findings()[0].where.field, "item_delimiters");
  }
}

TEST(FlashInfer, ABatchBeyondItsLimitsLeavesWhatWasFilled) {
  OwnedBatch b(kDecode, kFull, {5, 3}), longer(kDecode, kFull, {6, 3});
  set_rows(&b), set_rows(&longer);
  Bound s(Limits::exact(b, model({layer()})));
  ASSERT_TRUE(s.fill(b).ok());
  const Lists before = s.lists(0);
  EXPECT_NE(s.fill(longer).to_string().find("batch.capacity"), std::string::npos);
  EXPECT_EQ(s.lists(0), before);
}

}  // namespace
}  // namespace shadowgraph::flashinfer_test
