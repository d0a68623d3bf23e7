// Triton's launches over its lists: every small step of every mode against the oracle, eagerly and
// as the replay of a graph.
#include "backends/lists/triton.h"
#include "check/runs.h"

namespace shadowgraph::triton_forward_test {
namespace {

using enum ForwardMode;

const Triton kTriton;

/// Contexts that are cut into more than one split.
constexpr int32_t kLong = 110;

ModelConfig long_model(std::vector<LayerKind> layers, DraftShape draft = {},
                       int32_t page_size = 1) {
  ModelConfig m = model_of(page_size, std::move(layers), draft);
  m.max_context_len = kLong;
  return m;
}

/// fn(model) for all ways of cutting keys, with one pool and with two.
template <class Fn>
void for_all_splits(const ModelConfig& model, Fn fn) {
  for (const bool swa_pool : {false, true})
    for (int way = 0; way < 4; ++way) {
      ModelConfig m = model;
      m.swa_pool = swa_pool;
      m.split.fixed_size = way == 1 ? 20 : 0;
      m.split.off = way == 2;
      m.split.num_sms = way == 3 ? 2 : 132;
      fn(m);
    }
}

TEST(TritonForward, DecodesAreTheOraclesHoweverKeysAreCut) {
  for (const int32_t window : {0, 3, 70})
    for_all_splits(long_model({small_layer(), small_layer(window)}), [](const ModelConfig& m) {
      Runs runs(m, kTriton);
      for (const Ints& prefix : {Ints{4}, {95, 0}, {1, 70, 33}, {31, 32}})
        ASSERT_EQ(runs.step({.prefix_lens = prefix}).to_string(), "ok");
      EXPECT_EQ(runs.runner.counts().replays, 4);
    });
}

TEST(TritonForward, ExtendsAreTheOraclesUnderEveryWindow) {
  for (const ForwardMode mode : {kExtend, kMixed, kSplitPrefill, kDllmExtend})
    for (int32_t window = 0; window <= 4; ++window) {
      ModelConfig m = model_of(2, {small_layer(), small_layer(window)});
      for (const bool swa_pool : {false, true}) {
        m.swa_pool = swa_pool;
        Runs runs(m, kTriton);
        for (int32_t prefix = 0; prefix < 6; ++prefix)
          for (int32_t q_len = 1; q_len < 6; ++q_len) {
            const Ints prefixes{prefix, 5 - prefix}, q_lens{q_len, 6 - q_len};
            ASSERT_EQ(
                runs.step({.mode = mode, .prefix_lens = prefixes, .q_lens = q_lens}).to_string(),
                "ok")
                << prefix << " " << q_len << " window " << window;
          }
      }
    }
}

TEST(TritonForward, DraftExtendsReplayWithFewerQueriesThanTheirBucket) {
  for (const ForwardMode mode : {kDraftExtend, kDraftExtendV2}) {
    Runs runs(model_of(1, {small_layer(), small_layer(2)}, {1, 3, 4}), kTriton);
    for (const Ints& q_lens : {Ints{4, 4, 4}, {1, 4, 2}, {3, 1, 1}})
      ASSERT_EQ(runs.step({.mode = mode, .prefix_lens = {5, 1, 9}, .q_lens = q_lens}).to_string(),
                "ok");
    EXPECT_EQ(runs.runner.counts().replays, 3);
  }
}

TEST(TritonForward, BranchesOfADraftAreTheOraclesAtAnyStep) {
  for (const int32_t page_size : {1, 4})
    for (const int32_t topk : {1, 2, 3})
      for_all_splits(
          long_model({small_layer(), small_layer(2)}, {topk, 4, 5}, page_size),
          [](const ModelConfig& m) {
            Runs runs(m, kTriton);
            for (int32_t step = 0; step < 3; ++step)
              ASSERT_EQ(
                  runs.step({.mode = kDraftDecode, .prefix_lens = {5, 90, 32}, .draft_step = step})
                      .to_string(),
                  "ok");
          });
}

TEST(TritonForward, VerifiedTokensSeeThePrefixByTheirDepth) {
  for (int32_t window = 0; window <= 4; ++window)
    for (const bool swa_pool : {false, true}) {
      ModelConfig m = model_of(1, {small_layer(), small_layer(window)}, {2, 3, 4});
      m.swa_pool = swa_pool;
      Runs runs(m, kTriton);
      for (const DraftTree& tree : all_trees(4, 2))
        for (const Ints& prefix : {Ints{5, 0}, {2, 3}})
          ASSERT_EQ(runs.step({.mode = kTargetVerify,
                               .prefix_lens = prefix,
                               .trees = {tree, all_trees(4, 2).front()}})
                        .to_string(),
                    "ok");
    }
}

TEST(TritonForward, AVerifiedChainNeedsNoMask) {
  for (int32_t window = 0; window <= 4; ++window) {
    Runs runs(model_of(1, {small_layer(), small_layer(window)}, {1, 3, 4}), kTriton);
    for (const Ints& prefix : {Ints{5, 0, 2}, {9}, {1, 3}})
      ASSERT_EQ(runs.step({.mode = kTargetVerify, .prefix_lens = prefix}).to_string(), "ok");
    EXPECT_EQ(runs.runner.counts().replays, 3);
  }
}

TEST(TritonForward, LatentsAreOneKvHead) {
  for_all_splits(long_model({latent_layer()}, {2, 3, 4}), [](const ModelConfig& model) {
    ModelConfig m = model;
    m.swa_pool = false;
    Runs runs(m, kTriton);
    ASSERT_EQ(runs.step({.prefix_lens = {70, 3}}).to_string(), "ok");
    ASSERT_EQ(runs.step({.mode = kExtend, .prefix_lens = {6, 0}, .q_lens = {3, 4}}).to_string(),
              "ok");
    ASSERT_EQ(runs.step({.mode = kTargetVerify,
                         .prefix_lens = {6, 40},
                         .trees = {all_trees(4, 2).front(), all_trees(4, 2).back()}})
                  .to_string(),
              "ok");
  });
}

}  // namespace
}  // namespace shadowgraph::triton_forward_test
