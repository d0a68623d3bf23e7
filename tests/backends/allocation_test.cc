// A fill allocates nothing, whatever the mode; nor does the next one, before or after an upload.
#include "allocations.h"
#include "backends/lists/flashinfer.h"
#include "backends/paged/flash_attention.h"
#include "backends/step_fixture.h"

namespace shadowgraph::allocation_test {
namespace {

using enum ForwardMode;
using enum SeqLensKind;

const FlashAttention kFa;

/// A model with every kind of table, and a prefix in chunks.
ModelConfig model() {
  ModelConfig m;
  m.max_context_len = 32;
  m.page_size = 2;
  m.topk = 2, m.num_steps = 3, m.num_draft_tokens = 3;
  m.swa_pool = true, m.attention_chunk = 4, m.max_encoder_len = 3;
  m.prefix_chunk_tokens = 9;
  m.layers.resize(5);
  m.layers[0].params.num_qo_heads = m.layers[0].params.head_dim_vo = 1;
  m.layers[1].params.window_left = 3;
  m.layers[2].local = true;
  m.layers[3].cross = true;
  m.layers[4].mla = true;
  return m;
}

void set_fields(OwnedBatch* b) {
  b->set_pages(2, 40);
  b->set_swa(100, 2);
  b->set_encoders({1, 3}, {1, 2, 3, 4});
  b->spec.topk = 2, b->spec.num_steps = 3, b->spec.num_draft_tokens = 3;
  if (b->mode == kDraftDecode) b->set_loc({30, 31, 32, 34, 35, 36, 38, 39, 40, 42, 43, 44});
  if (b->mode == kTargetVerify)
    b->set_trees({{{1, 0, 0}, {1, 1, 0}, {1, 0, 1}}, {{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}});
}

void expect_none(const Backend& backend, const Limits& limits,
                 const std::vector<const OwnedBatch*>& batches) {
  BoundStep s(backend, limits, false);
  ASSERT_EQ(s.fill(*batches[0]).to_string(), "ok");
  for (size_t round = 0; round < 20; ++round) {
    const OwnedBatch& b = *batches[round % batches.size()];
    const long before = allocations::count;
    const bool ok = s.refill(b).ok();
    EXPECT_EQ(allocations::count, before) << round;
    ASSERT_TRUE(ok);
    if (round == 10) {
      ASSERT_EQ(s.fill(b).to_string(), "ok");
    }
  }
}

class Fills : public ::testing::TestWithParam<ForwardMode> {};

TEST_P(Fills, AllocateNothing) {
  const bool one = is_decode(GetParam());
  const Ints news = is_extend(GetParam()) && !is_target_verify(GetParam()) ? Ints{3, 2} : Ints{};
  OwnedBatch longer(GetParam(), kPrefix, {17, 20}, news),
      shorter(GetParam(), kPrefix, {5, 3}, news);
  for (OwnedBatch* b : {&longer, &shorter}) set_fields(b);
  const Limits limits = Limits::bucket(GetParam(), 3, one ? 1 : 3, model());
  expect_none(kFa, limits, {&longer, &shorter});
}

TEST_P(Fills, OfTritonAllocateNothing) {
  const bool one = is_decode(GetParam());
  const Ints news = is_extend(GetParam()) && !is_target_verify(GetParam()) ? Ints{3, 2} : Ints{};
  OwnedBatch longer(GetParam(), kPrefix, {17, 20}, news),
      shorter(GetParam(), kPrefix, {5, 3}, news);
  for (OwnedBatch* b : {&longer, &shorter}) set_fields(b), b->set_encoders({});
  ModelConfig m = model();
  m.max_encoder_len = m.attention_chunk = m.prefix_chunk_tokens = 0;
  m.layers.erase(m.layers.begin() + 2, m.layers.begin() + 4);  // chunks, and an encoder
  expect_none(*find_backend("triton"), Limits::bucket(GetParam(), 3, one ? 1 : 3, m),
              {&longer, &shorter});
}

TEST(FillOfHalves, ThatCutsARequestAllocatesNothing) {
  const Backend& halves = *find_backend("flashattention_two_batch");
  ModelConfig m = model();
  m.max_encoder_len = 0, m.layers.erase(m.layers.begin() + 3);  // halves have no encoder
  m.two_chunk_below = 0.5f;
  for (LayerKind& layer : m.layers) layer.params.causal = true;
  OwnedBatch longer(kExtend, kPrefix, {17, 20}, {2, 8}), shorter(kExtend, kPrefix, {5, 3}, {2, 8});
  for (OwnedBatch* b : {&longer, &shorter}) b->set_pages(2, 40), b->set_swa(100, 2);
  const Limits limits = Limits::exact(longer, m);
  ASSERT_TRUE(limits.split_request);
  expect_none(halves, limits, {&longer, &shorter});
}

class FillsOfPlans : public ::testing::TestWithParam<ForwardMode> {};

TEST_P(FillsOfPlans, AllocateNothing) {
  const bool one = is_decode(GetParam());
  const Ints news = is_extend(GetParam()) && !is_target_verify(GetParam()) ? Ints{3, 2} : Ints{};
  OwnedBatch longer(GetParam(), kPrefix, {17, 20}, news),
      shorter(GetParam(), kPrefix, {5, 3}, news);
  for (OwnedBatch* b : {&longer, &shorter}) set_fields(b), b->set_encoders({});
  ModelConfig m = model();
  m.max_encoder_len = m.prefix_chunk_tokens = 0, m.ragged_prefill = true;
  m.layers.resize(2);
  m.layers[1].params.num_qo_heads = 6, m.layers[1].params.num_kv_heads = 1;
  const Limits limits = Limits::bucket(GetParam(), 3, one ? 1 : 3, m);
  expect_none(FlashInfer{}, limits, {&longer, &shorter});
}

INSTANTIATE_TEST_SUITE_P(FlashInfer, FillsOfPlans,
                         ::testing::Values(kDecode, kExtend, kDraftExtend, kTargetVerify,
                                           kDraftDecode));

/// What a backend has of windows, latents and trees.
ModelConfig model_for(const BackendInfo& info) {
  ModelConfig m;
  m.max_context_len = 32;
  m.page_size = info.page_sizes.empty() ? 2 : info.page_sizes[0];
  m.topk = info.tree ? 2 : 1, m.num_steps = 3, m.num_draft_tokens = 3;
  m.swa_pool = info.swa_pool;
  m.ragged_prefill = info.ragged_prefill;
  LayerKind layer;
  layer.params = {.num_qo_heads = 1, .num_kv_heads = 1, .head_dim_qk = 8, .head_dim_vo = 8};
  layer.mla = !info.heads;
  m.layers = {layer};
  if (info.dual_chunk) {
    m.layers[0].dual_chunk = m.layers[0].params.causal = true;
    m.dual_chunk = {.chunk_size = 8, .local_size = 2, .original_max_position = 9};
  }
  if (info.swa_pool) m.layers.push_back(layer), m.layers[1].params.window_left = 3;
  // Not every backend has trees over latents.
  if (info.heads && info.latent && !info.tree)
    m.layers.push_back(layer), m.layers.back().mla = true;
  return m;
}

/// Layers of states, alone or beside the others, and snapshots.
void add_states(const BackendInfo& info, ModelConfig* m) {
  if (info.recurrent.empty()) return;
  if (!info.dense) m->layers.clear();
  RecurrentLayer layer;
  layer.family = info.recurrent[0];
  layer.head_dim_k = layer.head_dim_v = 4;
  layer.conv_width = layer.family == RecurrentFamily::kLightning ? 0 : 2;
  layer.chunk_size = 2;
  m->layers.emplace_back().math = layer;
  m->track_states = info.track_states;
}

/// Layers that choose their keys, alone.
void add_sparse(const BackendInfo& info, ModelConfig* m) {
  if (!info.sparse) return;
  SparseLayer layer;
  layer.latents = LatentLayout::kRows;
  layer.head_dim = 8, layer.head_dim_v = 4;
  layer.topk = 3;
  layer.ragged_prefill = true;
  m->layers.clear();
  m->layers.emplace_back().math = layer;
}

/// Windows, and blocks of two tokens.
void add_latents(const BackendInfo& info, ModelConfig* m) {
  if (info.v4.empty()) return;
  V4Layer layer;
  layer.window = 4, layer.head_dim = 8, layer.rope_dim = 4, layer.layout = LatentLayout::kRows;
  layer.pools = info.v4[0], layer.rows = layer.pools == V4Pools::kUnified ? 4 : 0;
  m->layers.assign(2, {});
  m->layers[0].math = layer;
  layer.ratio = 2;
  m->layers[1].math = layer;
}

TEST(FillOfEveryBackend, AllocatesNothing) {
  const Ints slots = {0, 4, 2}, tracks = {3, 1}, lens = {20, 22}, next = {1, 2, -1, 1, -1, -1},
             sibling = {-1, -1, -1, -1, 2, -1};
  for (const Backend* backend : all_backends()) {
    ModelConfig m = model_for(backend->info());
    add_states(backend->info(), &m);
    add_sparse(backend->info(), &m);
    add_latents(backend->info(), &m);
    for (const ForwardMode mode : backend->info().modes) {
      SCOPED_TRACE(std::string(backend->info().name) + " " + std::string(name_of(mode)));
      if (mode == kIdle) continue;
      const Ints news = is_decode(mode) || is_target_verify(mode) ? Ints{} : Ints{3, 2};
      OwnedBatch longer(mode, kPrefix, {17, 20}, news), shorter(mode, kPrefix, {5, 3}, news);
      for (OwnedBatch* b : {&longer, &shorter}) {
        set_fields(b);
        b->set_encoders({});
        b->set_pages(m.page_size, 40);
        b->set_swa(100, m.page_size);
        b->spec.topk = m.topk;
        b->states = {slots, tracks, lens};
        b->spec.retrieve_next_token = next, b->spec.retrieve_next_sibling = sibling;
        if (m.topk == 1) b->set_loc({}), b->spec.custom_mask = {};
      }
      expect_none(*backend, Limits::bucket(mode, 3, is_decode(mode) ? 1 : 3, m),
                  {&longer, &shorter});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FlashAttention, Fills,
                         ::testing::Values(kDecode, kExtend, kDraftExtend, kTargetVerify,
                                           kDraftDecode));

}  // namespace
}  // namespace shadowgraph::allocation_test
