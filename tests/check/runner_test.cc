// Runner finds nothing in steps made by hand, and each slip of a backend by its law.
#include "check/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "backends/flash_attention.h"
#include "fuzz/small_steps.h"

namespace shadowgraph {
namespace {

using Ints = std::vector<int32_t>;
using Laws = std::set<std::string>;

constexpr int32_t kContext = 16;

LayerKind layer(int32_t window_left = -1) {
  LayerKind kind;
  kind.params = {.num_qo_heads = 2,
                 .num_kv_heads = 1,
                 .head_dim_qk = 4,
                 .head_dim_vo = 4,
                 .sm_scale = 0.5f,
                 .causal = true,
                 .window_left = window_left};
  return kind;
}

LayerKind latent_layer() {
  LayerKind latent = layer();
  latent.mla = true;
  latent.params.head_dim_qk = 6;
  return latent;
}

ModelConfig model_of(int32_t page_size, std::vector<LayerKind> layers, DraftShape draft = {}) {
  ModelConfig m;
  m.max_context_len = kContext;
  m.page_size = page_size;
  m.topk = draft.topk, m.num_steps = draft.num_steps, m.num_draft_tokens = draft.num_draft_tokens;
  m.layers = std::move(layers);
  return m;
}

int32_t width_of(const ModelConfig& m) {
  return kContext + m.max_encoder_len +
         draft_reserve({m.topk, m.num_steps, m.num_draft_tokens}, m.page_size);
}

RunnerOptions options_of(const ModelConfig& m, std::vector<int32_t> buckets) {
  RunnerOptions o;
  o.slots = o.swa_slots = pool_slots(3, width_of(m), m.page_size);
  o.max_tokens = 64;
  o.buckets = std::move(buckets);
  return o;
}

/// A runner of one model, and its steps.
struct Runs {
  const ModelConfig model;
  Runner runner;

  Runs(const Backend& backend, const ModelConfig& m, const RunnerOptions& options)
      : model(m), runner(backend, m, options) {
    EXPECT_EQ(runner.ready().to_string(), "ok");
  }
  explicit Runs(const ModelConfig& m, const Backend& backend = *find_backend("flashattention"))
      : Runs(backend, m, options_of(m, {1, 2, 4})) {}

  Status step(StepShape shape) {
    shape.page_size = model.page_size;
    shape.draft = {model.topk, model.num_steps, model.num_draft_tokens};
    shape.swa = model.swa_pool;
    return runner.step(make_step(shape, width_of(model)));
  }
};

Laws laws(const Status& status) {
  Laws ids;
  for (const Finding& f : status.findings()) ids.insert(f.id);
  return ids;
}

TEST(Runner, DecodesFindNothingInAnyBucket) {
  Runs runs(model_of(2, {layer(), layer(2)}));
  for (const Ints& prefix : {Ints{4}, {5, 0}, {1, 7, 2}, {6}, {0, 0, 0}})
    EXPECT_EQ(runs.step({.prefix_lens = prefix}).to_string(), "ok");
  EXPECT_EQ(runs.runner.counts().steps, 5);
  EXPECT_EQ(runs.runner.counts().rows, 10);
  EXPECT_EQ(runs.runner.counts().replays, 5);
  EXPECT_EQ(runs.runner.counts().captures, 3);  // all buckets, once
}

TEST(Runner, ABatchOfMoreThanTheLargestBucketRunsEagerlyOnly) {
  const ModelConfig model = model_of(1, {layer()});
  Runs runs(*find_backend("flashattention"), model, options_of(model, {1, 2}));
  EXPECT_EQ(runs.step({.prefix_lens = {3, 1, 2}}).to_string(), "ok");
  EXPECT_EQ(runs.runner.counts().steps, 1);
  EXPECT_EQ(runs.runner.counts().replays, 0);
}

TEST(Runner, ExtendsFindNothing) {
  for (const int32_t page_size : {1, 4}) {
    Runs runs(model_of(page_size, {layer(), layer(1)}));
    EXPECT_EQ(runs.step({.mode = ForwardMode::kExtend, .prefix_lens = {0, 5}, .q_lens = {6, 3}})
                  .to_string(),
              "ok");
    EXPECT_EQ(runs.step({.mode = ForwardMode::kMixed, .prefix_lens = {6, 8}, .q_lens = {1, 4}})
                  .to_string(),
              "ok");
    EXPECT_EQ(runs.runner.counts().replays, 0);
  }
}

TEST(Runner, VerifiedTreesFindNothing) {
  Runs runs(model_of(2, {layer(), layer(2)}, {2, 2, 4}));
  const DraftTree wide{{-1, 0, 0, 1}, {0, 1, 1, 2}}, deep{{-1, 0, 1, 1}, {0, 1, 2, 2}};
  EXPECT_EQ(
      runs.step({.mode = ForwardMode::kTargetVerify, .prefix_lens = {5, 0}, .trees = {wide, deep}})
          .to_string(),
      "ok");
  EXPECT_EQ(runs.runner.counts().replays, 1);
}

TEST(Runner, BranchesOfADraftFindNothingAtAnyStep) {
  // With pages of 4 tokens every branch has a copy of the prefix's last page.
  for (const int32_t page_size : {1, 4}) {
    Runs runs(model_of(page_size, {layer(), layer(2)}, {2, 3, 4}));
    for (const int32_t step : {0, 1})
      EXPECT_EQ(
          runs.step({.mode = ForwardMode::kDraftDecode, .prefix_lens = {5, 3}, .draft_step = step})
              .to_string(),
          "ok");
    EXPECT_EQ(runs.runner.counts().replays, 2);
  }
}

TEST(Runner, ACopyIsMadeInTheWindowPoolToo) {
  ModelConfig model = model_of(4, {layer(), layer(6)}, {2, 3, 4});
  model.swa_pool = true;
  Runs runs(model);
  EXPECT_EQ(runs.step({.mode = ForwardMode::kDraftDecode, .prefix_lens = {5, 3}}).to_string(),
            "ok");
}

TEST(Runner, DraftExtendsFindNothing) {
  for (const ForwardMode mode : {ForwardMode::kDraftExtend, ForwardMode::kDraftExtendV2}) {
    Runs runs(model_of(2, {layer()}, {1, 3, 4}));
    EXPECT_EQ(runs.step({.mode = mode, .prefix_lens = {5, 2}, .q_lens = {1, 3}}).to_string(), "ok");
    EXPECT_EQ(runs.runner.counts().replays, 1);
  }
}

TEST(Runner, EncodersFindNothing) {
  ModelConfig model = model_of(1, {layer(), layer()});
  model.max_encoder_len = 5;
  model.layers[1].cross = true;
  model.layers[1].params.causal = false;
  Runs runs(model);
  EXPECT_EQ(runs.step({.mode = ForwardMode::kExtend,
                       .prefix_lens = {0, 0},
                       .q_lens = {2, 4},
                       .encoder_lens = {5, 3}})
                .to_string(),
            "ok");
  EXPECT_EQ(runs.step({.prefix_lens = {2, 4}, .encoder_lens = {5, 3}}).to_string(), "ok");
}

TEST(Runner, AWindowPoolFindsNothing) {
  ModelConfig model = model_of(2, {layer(), layer(3)});
  model.swa_pool = true;
  Runs runs(model);
  EXPECT_EQ(runs.step({.mode = ForwardMode::kExtend, .prefix_lens = {0, 2}, .q_lens = {5, 2}})
                .to_string(),
            "ok");
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
}

TEST(Runner, LatentPoolsFindNothing) {
  Runs runs(model_of(2, {latent_layer()}));
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
  EXPECT_EQ(runs.step({.mode = ForwardMode::kExtend, .prefix_lens = {0, 6}, .q_lens = {5, 2}})
                .to_string(),
            "ok");
}

TEST(Runner, APrefixInChunksFindsNothing) {
  // Of one token a request and chunk; of some; all keys at once.
  for (const int32_t tokens : {1, 4, 7, 16, 200}) {
    ModelConfig model = model_of(2, {latent_layer(), layer(2), latent_layer()});
    model.layers.back().params.num_qo_heads = 3;
    model.layers.back().params.head_dim_qk = 8;
    model.layers.back().params.head_dim_vo = 2;
    model.prefix_chunk_tokens = tokens;
    for (const char* name : {"flashattention", "flashattention_two_batch"}) {
      Runs runs(model, *find_backend(name));
      for (const ForwardMode mode :
           {ForwardMode::kExtend, ForwardMode::kMixed, ForwardMode::kSplitPrefill})
        EXPECT_EQ(
            runs.step({.mode = mode, .prefix_lens = {9, 0, 4}, .q_lens = {2, 5, 1}}).to_string(),
            "ok")
            << name << " " << tokens;
    }
  }
}

TEST(Runner, AnotherHistoryBeginsInTheSameMemory) {
  Runs runs(model_of(2, {layer()}));
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
  runs.runner.forget_requests();
  // The pages of the first request are the second's now.
  EXPECT_EQ(runs.step({.order = PageOrder::kReversed, .prefix_lens = {5, 4}}).to_string(), "ok");
}

TEST(Runner, ABatchThatIsNoneIsRefused) {
  Runs runs(model_of(2, {layer()}));
  Step step = make_step({.page_size = 2, .prefix_lens = {5, 4}}, kContext);
  step.req_pool_indices[1] = 99;
  const Status status = runs.runner.step(step);
  EXPECT_EQ(laws(status), Laws{"table.pool_row"});
  EXPECT_EQ(status.findings()[0].where.phase, "batch");
  EXPECT_EQ(runs.runner.counts().steps, 0);
}

TEST(Runner, AStepThatABackendDoesNotServeIsCountedAndNoFinding) {
  Runs runs(model_of(2, {layer()}), *find_backend("flashmla"));
  EXPECT_EQ(runs.step({.prefix_lens = {5, 4}}).to_string(), "ok");
  EXPECT_EQ(runs.runner.counts().refused, 1);
  EXPECT_EQ(runs.runner.counts().steps, 0);
}

// Backends with a slip. Graphs have 4 rows, of which at most 3 are a batch's; that tells them.

constexpr int32_t kBucket = 4;

class Slip : public Backend {
 public:
  bool on = true;

  const BackendInfo& info() const override { return real_.info(); }
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override {
    Status status = real_.bind(arena, limits, meta);
    if (status.ok()) meta->scalars.push_back(0);
    return status;
  }
  Status fill(const ForwardBatch& batch, Meta& meta) const override {
    Status status = real_.fill(batch, meta);
    meta.scalars.back() = batch.size();
    if (status.ok() && on && batch.size() > 0) status.add(after_fill(batch, meta));
    return status;
  }
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override {
    Meta other = meta;
    if (on) change(other);
    real_.forward(stream, other, step);
    if (on && again(meta)) real_.forward(stream, other, step);
  }

 protected:
  static bool in_graph(const Meta& meta) { return meta.limits.rows == kBucket; }
  virtual Status after_fill(const ForwardBatch&, Meta&) const { return {}; }
  virtual void change(Meta&) const {}
  virtual bool again(const Meta&) const { return false; }

  template <class T>
  static Status put(Meta& meta, size_t buffer, int64_t at, T value) {
    return meta.arena.write(meta[buffer], at, &value, 1);
  }

 private:
  const Backend& real_ = *find_backend("flashattention");
};

/// A decode after a decode in which the slip was not made yet; then with it.
Status with_slip(Slip& slip, const StepShape& shape,
                 const ModelConfig& model = model_of(2, {layer()})) {
  Runs runs(slip, model, options_of(model, {kBucket}));
  slip.on = false;
  EXPECT_EQ(runs.step(shape).to_string(), "ok");
  slip.on = true;
  return runs.step(shape);
}

/// With the slip from the capture on.
Status with_slip_captured(Slip& slip, const StepShape& shape) {
  const ModelConfig model = model_of(2, {layer()});
  return Runs(slip, model, options_of(model, {kBucket})).step(shape);
}

const StepShape kDecode{.prefix_lens = {5, 4}};

void expect_law(const Status& status, const char* law, const char* phase) {
  EXPECT_TRUE(laws(status).contains(law)) << status.to_string();
  for (const Finding& f : status.findings()) {
    EXPECT_EQ(f.where.phase, phase) << f.to_string();
    EXPECT_EQ(f.where.backend, "flashattention");
    EXPECT_FALSE(f.where.mode.empty());
  }
}

TEST(RunnerFinds, AColumnThatRepeatsThePageBeforeIt) {
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      return put(meta, FlashAttention::kPageTable, 1, b.req_to_token.row(1)[0] / 2);
    }
  } slip;
  const Status status = with_slip(slip, kDecode);
  expect_law(status, "num.bound", "eager");
}

TEST(RunnerFinds, APageOfANeighbour) {
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      return put(meta, FlashAttention::kPageTable, 0, b.req_to_token.row(2)[0] / 2);
    }
  } slip;
  expect_law(with_slip(slip, kDecode), "mem.wrong_region", "eager");
}

TEST(RunnerFinds, APageOfANeighbourInAReplayAlone) {
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      if (!in_graph(meta)) return {};
      return put(meta, FlashAttention::kPageTable, 0, b.req_to_token.row(2)[0] / 2);
    }
  } slip;
  expect_law(with_slip(slip, kDecode), "mem.wrong_region", "replay");
}

TEST(RunnerFinds, LengthsThatAReplayHasFromTheStepBefore) {
  struct : Slip {
    Status after_fill(const ForwardBatch&, Meta& meta) const override {
      if (in_graph(meta)) meta.arena.discard(meta[FlashAttention::kCacheSeqlens]);
      return {};
    }
  } slip;
  expect_law(with_slip(slip, kDecode), "mem.stale_input", "replay");
}

TEST(RunnerFinds, AScalarThatFollowsTheBatch) {
  struct : Slip {
    // A window that no key is outside of.
    void change(Meta& meta) const override {
      meta.limits.model.layers[0].params.window_left =
          kContext + static_cast<int32_t>(meta.scalars[FlashAttention::kMaxSeqLenK]);
    }
  } slip;
  expect_law(with_slip(slip, kDecode), "graph.baked_scalar", "replay");
}

TEST(RunnerFinds, LaunchesThatFollowTheBatch) {
  struct : Slip {
    bool again(const Meta& meta) const override { return meta.scalars.back() > 1; }
  } slip;
  expect_law(with_slip(slip, kDecode), "graph.topology_changed", "replay");
}

TEST(RunnerFinds, TwoTokensInEachOthersSlots) {
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      Status status = put(meta, FlashAttention::kOutCacheLoc, 0, b.out_cache_loc[1]);
      status.add(put(meta, FlashAttention::kOutCacheLoc, 1, b.out_cache_loc[0]));
      return status;
    }
  } slip;
  const StepShape extend{.mode = ForwardMode::kExtend, .prefix_lens = {3}, .q_lens = {2}};
  expect_law(with_slip(slip, extend), "slot.write", "eager");
}

TEST(RunnerFinds, ATokenInASlotOfANeighbour) {
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      return put(meta, FlashAttention::kOutCacheLoc, 0, int64_t{b.req_to_token.row(2)[0]});
    }
  } slip;
  expect_law(with_slip(slip, kDecode), "mem.wrong_region", "eager");
}

/// A prefix in chunks of 4, 4 and 2 tokens, beside one of 1.
Status with_slip_in_chunks(Slip& slip) {
  ModelConfig model = model_of(2, {latent_layer()});
  model.prefix_chunk_tokens = 8;
  return with_slip(slip, {.mode = ForwardMode::kExtend, .prefix_lens = {10, 1}, .q_lens = {2, 3}},
                   model);
}

TEST(RunnerFinds, ATokenThatTwoChunksHave) {
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      const int64_t second = meta[FlashAttention::kChunkSlots].shape[1];
      return put(meta, FlashAttention::kChunkSlots, second, int64_t{b.req_to_token.row(1)[3]});
    }
  } slip;
  expect_law(with_slip_in_chunks(slip), "num.bound", "eager");
}

TEST(RunnerFinds, AChunkWithoutItsLastToken) {
  struct : Slip {
    Status after_fill(const ForwardBatch&, Meta& meta) const override {
      const int64_t third = 2 * meta[FlashAttention::kChunkCuSeqlensK].shape[1];
      Status status;
      for (const int64_t i : {1, 2})
        status.add(put(meta, FlashAttention::kChunkCuSeqlensK, third + i, 1));
      return status;
    }
  } slip;
  expect_law(with_slip_in_chunks(slip), "num.bound", "eager");
}

TEST(RunnerFinds, AChunkOfANeighboursTokens) {
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      return put(meta, FlashAttention::kChunkSlots, 0, int64_t{b.req_to_token.row(2)[0]});
    }
  } slip;
  expect_law(with_slip_in_chunks(slip), "mem.wrong_region", "eager");
}

TEST(RunnerFinds, AReplayThatStoresNothing) {
  // The eager step has stored the same tokens before.
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      Status status;
      for (int64_t i = 0; in_graph(meta) && i < b.size(); ++i)
        status.add(put(meta, FlashAttention::kOutCacheLoc, i, int64_t{0}));
      return status;
    }
  } slip;
  expect_law(with_slip(slip, kDecode), "num.bits", "replay");
}

TEST(RunnerFinds, AReplayWithAnotherScale) {
  // Captured so, and so recorded again: nothing but the bits tells.
  struct : Slip {
    void change(Meta& meta) const override {
      if (in_graph(meta)) meta.limits.model.layers[0].params.sm_scale = 0.25f;
    }
  } slip;
  const Status status = with_slip_captured(slip, kDecode);
  expect_law(status, "num.bits", "replay");
  EXPECT_EQ(laws(status), Laws{"num.bits"});
}

TEST(RunnerFinds, AGraphThatLaunchesNothing) {
  struct : Slip {
    void forward(Stream& stream, const Meta& meta, const StepIo& step) const override {
      if (!in_graph(meta)) Slip::forward(stream, meta, step);
    }
  } slip;
  expect_law(with_slip_captured(slip, kDecode), "num.bits", "replay");
}

TEST(RunnerFinds, ABindThatIsRefusedForAnotherReasonThanItsLimits) {
  struct : Slip {
    Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override {
      return on ? Status::out_of_memory() : Slip::bind(arena, limits, meta);
    }
  } slip;
  const ModelConfig model = model_of(2, {layer()});
  Runs runs(slip, model, options_of(model, {kBucket}));
  EXPECT_FALSE(runs.step(kDecode).ok());
  EXPECT_EQ(runs.runner.counts().refused, 0);
}

}  // namespace
}  // namespace shadowgraph
