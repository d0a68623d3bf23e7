// A runner judges layers of DeepSeek-V4: outputs and whole pools, bit by bit, against each request
// alone; and each slip of an engine is seen.
#include "check/worlds/v4_world.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/sparse/deepseek_v4.h"
#include "check/layer_runs.h"
#include "launch/block_launch.h"
#include "launch/compress_launch.h"
#include "launch/sparse_launch.h"

namespace shadowgraph::v4_world_test {
namespace {

constexpr int32_t kRows = 4;

ModelConfig v4_model(std::string_view backend, DraftShape draft = {}, int32_t page_size = 4) {
  std::vector<LayerKind> layers;
  for (const int32_t ratio : {0, 2, 4})
    layers.push_back(small_v4_layer(ratio, backend.ends_with("hip") ? kRows : 0));
  return model_of(page_size, std::move(layers), draft);
}

struct World : LayerRuns {
  using LayerRuns::LayerRuns;
  explicit World(const char* backend, DraftShape draft = {}, int32_t page_size = 4,
                 std::vector<int32_t> buckets = {1, 4})
      : LayerRuns(backend, v4_model(backend, draft, page_size), std::move(buckets)) {}
};

const char* const kTwins[] = {"deepseek_v4", "deepseek_v4_hip", "deepseek_v4_two_batch"};
const StepShape kPrompts{.mode = ForwardMode::kExtend, .prefix_lens = {0, 0}, .q_lens = {7, 6}};
const StepShape kChunks{.mode = ForwardMode::kExtend, .prefix_lens = {7, 6}, .q_lens = {1, 5}};
const StepShape kNext{.prefix_lens = {8, 11}};

TEST(V4World, CleanTwinsHaveTheBitsOfRequestsAlone) {
  for (const char* backend : kTwins) {
    World w(backend);
    EXPECT_EQ(w.step(kPrompts).to_string(), "ok") << backend;
    EXPECT_EQ(w.step(kChunks).to_string(), "ok") << backend;
    EXPECT_EQ(w.step(kNext).to_string(), "ok") << backend;
    EXPECT_EQ(w.step({.prefix_lens = {9, 12}}).to_string(), "ok") << backend;
    EXPECT_EQ(w.step({.mode = ForwardMode::kIdle}).to_string(), "ok") << backend;
    EXPECT_GT(w.runner.counts().replays, 1) << backend;
  }
}

/// Metadata that the first launch of each step makes.
TEST(V4World, RawMetadataIsExpandedInTheGraph) {
  for (const char* backend : {"deepseek_v4", "deepseek_v4_two_batch"}) {
    ModelConfig model = v4_model(backend);
    model.in_graph_tables = true;
    RunnerOptions o = options_of(model, {1, 4});
    o.pool_rows = kRows, o.pool_width = width_of(model);
    World w(backend, model, o);
    EXPECT_EQ(w.step(kPrompts).to_string(), "ok") << backend;
    EXPECT_EQ(w.step(kChunks).to_string(), "ok") << backend;
    EXPECT_EQ(w.step(kNext).to_string(), "ok") << backend;
    EXPECT_EQ(w.step({.prefix_lens = {9, 12}}).to_string(), "ok") << backend;
    EXPECT_GT(w.runner.counts().replays, 1) << backend;
  }
}

/// Drafts are taken back: the next step begins in the middle of them.
TEST(V4World, DraftsThatAreTakenBackLeaveNoTrace) {
  for (const char* backend : kTwins) {
    World w(backend, {1, 3, 4}, 8);
    EXPECT_EQ(w.step(kPrompts).to_string(), "ok") << backend;
    for (const Ints& prefix : {Ints{7, 6}, Ints{8, 9}, Ints{9, 10}}) {
      const StepShape verify{.mode = ForwardMode::kTargetVerify, .prefix_lens = prefix};
      EXPECT_EQ(w.step(verify).to_string(), "ok") << backend;
      const StepShape extend{
          .mode = ForwardMode::kDraftExtendV2, .prefix_lens = prefix, .q_lens = {4, 4}};
      EXPECT_EQ(w.step(extend).to_string(), "ok") << backend;
    }
    for (const int32_t draft_step : {0, 1}) {
      const StepShape draft{
          .mode = ForwardMode::kDraftDecode, .prefix_lens = {10, 11}, .draft_step = draft_step};
      EXPECT_EQ(w.runner.step(w.made(draft)).to_string(), "ok") << backend;
    }
  }
}

TEST(V4World, WhatIsStoredElsewhereGoesOn) {
  for (const char* backend : kTwins) {
    World w(backend);
    EXPECT_EQ(w.runner.pass(w.made(kPrompts)).to_string(), "ok");
    EXPECT_EQ(w.step(kChunks).to_string(), "ok") << backend;
    StepShape prebuilt = kPrompts;
    prebuilt.mode = ForwardMode::kPrebuilt;
    w.runner.begin_history(1);
    EXPECT_EQ(w.step(prebuilt).to_string(), "ok") << backend;
    EXPECT_EQ(w.step({.prefix_lens = {7, 6}}).to_string(), "ok") << backend;
  }
}

/// Tokens have slots of the window pool: the last one of a block may have the number of its block.
TEST(V4World, ABlockWithTheNumberOfItsLastTokenIsABlock) {
  ModelConfig model = model_of(2, {small_v4_layer(2)});
  model.swa_pool = true;
  World w("deepseek_v4", model, options_of(model, {}));
  // Page 3 of the full pool, which is block 3, is page 1 of the window pool: its slots are 2 and 3.
  const auto renumbered = [](Step step) {
    const auto one = std::ranges::find(step.full_to_swa, 2),
               of_three = step.full_to_swa.begin() + 6;
    std::swap_ranges(one, one + 2, of_three);
    return step;
  };
  const Step prompt =
      renumbered(w.made({.mode = ForwardMode::kExtend, .prefix_lens = {0}, .q_lens = {12}}));
  Step next = renumbered(w.made({.prefix_lens = {12}}));
  const auto slots = TokenTable{prompt.req_to_token, prompt.width}.row(1);
  const auto last = std::ranges::find(slots.first(8), 7);
  ASSERT_NE(last, slots.first(8).end()) << "a token that no window of the next step sees";
  ASSERT_EQ(prompt.full_to_swa[7], 3);
  next.full_to_swa[6] = next.full_to_swa[7] = 0;
  EXPECT_EQ(w.runner.step(prompt).to_string(), "ok");
  EXPECT_EQ(w.runner.step(next).to_string(), "ok");
}

/// The engine's own layout: bytes of codes, scales and rope.
TEST(V4World, PackedPoolsAreJudgedToo) {
  for (const int32_t ratio : {0, 4}) {
    LayerKind kind = small_v4_layer(ratio);
    V4Layer& l = std::get<V4Layer>(kind.math);
    l.head_dim = kV4Codes + kRopeDim, l.rope_dim = kRopeDim, l.layout = LatentLayout::kV4;
    const ModelConfig model = model_of(4, {kind});
    RunnerOptions o = options_of(model, {2});
    o.max_tokens = 16;
    World w("deepseek_v4", model, o);
    EXPECT_EQ(w.step(kPrompts).to_string(), "ok");
    EXPECT_EQ(w.step(kChunks).to_string(), "ok");
    EXPECT_EQ(w.step(kNext).to_string(), "ok");
  }
}

/// Laws that a slip in the launches of one step breaks.
Laws laws_of(const char* backend, const StepShape& shape, void (*slip)(KernelLaunch&)) {
  return World(backend, {}, 4, {}).laws_of(kPrompts, shape, slip);
}

template <class Call, auto launch, class Fn>
void change_call(const Kernel& kernel, KernelLaunch& l, Fn fn) {
  if (l.kernel != &kernel) return;
  auto [call, rows] = call_of<Call>(l);
  fn(call);
  l = launch(call, rows);
}

TEST(V4World, ABlockThatIsNotStoredIsFound) {
  const auto none = [](KernelLaunch& l) {
    change_call<StoreBlocks, store_blocks_launch>(kStoreBlocks, l,
                                                  [](StoreBlocks& c) { c.first_slot = 1 << 20; });
  };
  for (const char* backend : {"deepseek_v4", "deepseek_v4_hip"})
    EXPECT_TRUE(laws_of(backend, {.prefix_lens = {7, 6}}, none).contains("mem.uninit_read"));
}

TEST(V4World, ARotationOfTheBlocksLastTokenIsFound) {
  const auto last = [](KernelLaunch& l) {
    change_call<StoreBlocks, store_blocks_launch>(kStoreBlocks, l, [](StoreBlocks& c) {
      c.freqs.data += (c.ratio - 1) * c.freqs.stride[0] * static_cast<int64_t>(sizeof(float));
      c.freqs.shape[0] -= c.ratio - 1;
    });
  };
  EXPECT_EQ(laws_of("deepseek_v4", {.prefix_lens = {7, 9}}, last),
            (Laws{"latent.pool", "num.bits"}));
}

TEST(V4World, AStateThatIsNotWrittenIsFound) {
  const auto drop = [](KernelLaunch& l) {
    change_call<Compress, compress_launch>(kCompress, l,
                                           [](Compress& c) { c.first_page = 1 << 20; });
  };
  EXPECT_TRUE(laws_of("deepseek_v4", {.prefix_lens = {8, 6}}, drop).contains("latent.pool"));
}

TEST(V4World, AKernelWithoutItsSinkOrItsExtraListIsFound) {
  const auto sink = [](KernelLaunch& l) {
    change_call<SparseAttention, sparse_launch>(kSparseAttention, l,
                                                [](SparseAttention& c) { c.sinks = {}; });
  };
  EXPECT_EQ(laws_of("deepseek_v4", {.prefix_lens = {7, 6}}, sink), Laws{"num.bits"});
  const auto extra = [](KernelLaunch& l) {
    change_call<SparseAttention, sparse_launch>(kSparseAttention, l,
                                                [](SparseAttention& c) { c.extra = {}; });
  };
  EXPECT_EQ(laws_of("deepseek_v4", {.prefix_lens = {7, 6}}, extra), Laws{"num.bits"});
  EXPECT_EQ(laws_of("deepseek_v4_hip", kChunks, extra), Laws{"num.bits"});
}

TEST(V4World, ATokenThatIsStoredInAnothersSlotIsFound) {
  const auto shifted = [](KernelLaunch& l) {
    change_call<PackLatents, pack_latents_launch>(kPackLatents, l, [](PackLatents& c) {
      c.out_cache_loc = c.out_cache_loc.subspan(1);
      c.latents.shape[0] -= 1;
    });
  };
  const Laws found = laws_of("deepseek_v4", {.prefix_lens = {7, 6}}, shifted);
  EXPECT_TRUE(found.contains("mem.wrong_region"));
}

/// In a slot of the request's own: only the pool says it.
TEST(V4World, ATokenThatIsStoredOnceMoreIsFound) {
  const auto again = [](KernelLaunch& l) {
    change_call<PackLatents, pack_latents_launch>(kPackLatents, l, [](PackLatents& c) {
      c.latents.stride[0] = 0;  // every token is the first
    });
  };
  EXPECT_TRUE(laws_of("deepseek_v4", {.prefix_lens = {7, 6}}, again).contains("latent.pool"));
}

}  // namespace
}  // namespace shadowgraph::v4_world_test
