// A runner judges sparse layers: outputs, latents and index keys of whole pools, and what was
// chosen.
#include "check/worlds/sparse_world.h"

#include <gtest/gtest.h>

#include "check/layer_runs.h"
#include "launch/index_launch.h"
#include "launch/sparse_launch.h"

namespace shadowgraph::sparse_world_test {
namespace {

const DraftShape kDraft{1, 2, 3};
const StepShape kPrompts{.mode = ForwardMode::kExtend, .prefix_lens = {62, 0}, .q_lens = {6, 5}};
const StepShape kDecode{.prefix_lens = {68, 5}};
const StepShape kVerify{.mode = ForwardMode::kTargetVerify, .prefix_lens = {62, 6}};
const StepShape kCatchUp{
    .mode = ForwardMode::kDraftExtendV2, .prefix_lens = {62, 6}, .q_lens = {3, 3}};

struct World : LayerRuns {
  explicit World(const SparseLayer& layer, const char* backend = "dsa",
                 std::vector<int32_t> buckets = {4})
      : LayerRuns(backend, model_with(layer), std::move(buckets)) {}
  static ModelConfig model_with(const SparseLayer& layer) {
    LayerKind kind;
    kind.math = layer;
    ModelConfig m = model_of(64, {kind}, kDraft);
    m.max_context_len = 128;
    return m;
  }
};

SparseLayer rows_layer(bool ragged = false) {
  return std::get<SparseLayer>(small_sparse_layer(3, ragged).math);
}
SparseLayer packed_layer(bool ragged) {
  SparseLayer l = rows_layer(ragged);
  l.num_heads = 1;
  l.latents = LatentLayout::kDsa;
  l.head_dim = kDsaCodes + kRopeDim, l.head_dim_v = kDsaCodes;
  return l;
}

TEST(SparseWorld, CleanTwinsHaveTheBitsOfRequestsAlone) {
  const SparseLayer layers[] = {rows_layer(), rows_layer(true), packed_layer(false),
                                packed_layer(true)};
  for (const char* backend : {"dsa", "dsa_two_batch"}) {
    for (const SparseLayer& layer : layers) {
      World w(layer, backend);
      EXPECT_EQ(w.step(kPrompts).to_string(), "ok") << backend;
      EXPECT_EQ(w.step(kDecode).to_string(), "ok") << backend;
      EXPECT_EQ(w.step(kVerify).to_string(), "ok") << backend;
      EXPECT_EQ(w.step(kCatchUp).to_string(), "ok") << backend;
      EXPECT_EQ(w.runner.counts().steps, 4) << backend;
      EXPECT_EQ(w.runner.counts().replays, 3) << backend;
    }
  }
}

/// Laws that a slip in the launches of one step breaks.
Laws laws_of(const StepShape& shape, void (*slip)(KernelLaunch&), bool ragged = false) {
  return World(rows_layer(ragged), "dsa", {}).laws_of(kPrompts, shape, slip);
}

TEST(SparseWorld, AnIndexKeyThatIsNotStoredIsFound) {
  const auto skip = [](KernelLaunch& l) {
    if (l.kernel != &kStoreIndexKeys) return;
    auto [call, tokens] = call_of<StoreIndexKeys>(l);
    call.first_slot = int64_t{1} << 40;
    l = store_index_keys_launch(call, tokens);
  };
  EXPECT_FALSE(laws_of(kDecode, skip).empty());
}

TEST(SparseWorld, ALatentOfAnotherTokenIsFound) {
  const auto other = [](KernelLaunch& l) {
    if (l.kernel != &kPackLatents) return;
    auto [call, tokens] = call_of<PackLatents>(l);
    call.latents.stride[0] = 0;  // all are the first token's
    l = pack_latents_launch(call, tokens);
  };
  const Laws found = laws_of(kDecode, other);
  EXPECT_TRUE(found.contains("slot.write")) << found.size();
}

TEST(SparseWorld, AChoiceOfFewerKeysIsFound) {
  const auto fewer = [](KernelLaunch& l) {
    if (l.kernel != &kChooseIndices) return;
    auto [call, tokens] = call_of<ChooseIndices>(l);
    call.select.ke = call.select.ke.first(0);
    call.select.ks = {};
    l = choose_indices_launch(call, tokens);
  };
  EXPECT_FALSE(laws_of(kDecode, fewer).empty());
}

/// Queries that look at the first topk keys.
TEST(SparseWorld, AChoiceByOtherScoresIsFound) {
  const auto constant = [](KernelLaunch& l) {
    if (l.kernel != &kIndexerLogits) return;
    auto [call, tokens] = call_of<IndexerLogits>(l);
    call.weights.stride[0] = 0;  // all are the first token's
    call.q.stride[0] = 0;
    l = indexer_logits_launch(call, tokens);
  };
  EXPECT_EQ(laws_of(kDecode, constant), Laws{"num.bits"});
  EXPECT_TRUE(laws_of(kPrompts, constant, true).contains("num.bits"));
}

/// What is chosen behind what a token sees, and slots that are not the chosen ones'.
TEST(SparseWorld, AChoiceOfAnotherRequestsKeysIsFound) {
  const auto beyond = [](KernelLaunch& l) {
    if (l.kernel != &kChooseIndices) return;
    auto [call, tokens] = call_of<ChooseIndices>(l);
    call.transform.page_table_1.stride[0] = 0;  // all rows are the first
    l = choose_indices_launch(call, tokens);
  };
  const Laws found = laws_of(kDecode, beyond);
  EXPECT_TRUE(found.contains("sparse.choice") || found.contains("mem.wrong_region"))
      << found.size();
}

TEST(SparseWorld, AChoiceAmongAllRequestsIsFound) {
  const auto later = [](KernelLaunch& l) {
    if (l.kernel != &kChooseIndices) return;
    auto [call, tokens] = call_of<ChooseIndices>(l);
    call.select.ks = {};
    l = choose_indices_launch(call, tokens);
  };
  // In a prefill a request then takes the keys of all requests before it.
  EXPECT_FALSE(laws_of(kPrompts, later).empty());
}

TEST(SparseWorld, LatentsThatAStepElsewhereLeavesAreReadLater) {
  World w(rows_layer());
  EXPECT_EQ(w.runner.pass(w.made(kPrompts)).to_string(), "ok");
  EXPECT_EQ(w.step(kDecode).to_string(), "ok");
}

}  // namespace
}  // namespace shadowgraph::sparse_world_test
