// Runner finds each slip of a backend, by its law.
#include <gtest/gtest.h>

#include "backends/paged/flash_attention.h"
#include "check/runs.h"

namespace shadowgraph::runner_finds_test {
namespace {

// Backends with a slip. Graphs have 4 rows, of which at most 3 are a batch's; that tells them.

constexpr int32_t kBucket = 4;

class Slip : public Backend {
 public:
  explicit Slip(const Backend& real = *find_backend("flashattention")) : real_(real) {}
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
  const Backend& real_;
};

/// A decode after a decode in which the slip was not made yet; then with it.
Status with_slip(Slip& slip, const StepShape& shape,
                 const ModelConfig& model = model_of(2, {small_layer()})) {
  Runs runs(slip, model, options_of(model, {kBucket}));
  slip.on = false;
  EXPECT_EQ(runs.step(shape).to_string(), "ok");
  slip.on = true;
  return runs.step(shape);
}

/// With the slip from the capture on.
Status with_slip_captured(Slip& slip, const StepShape& shape) {
  const ModelConfig model = model_of(2, {small_layer()});
  return Runs(slip, model, options_of(model, {kBucket})).step(shape);
}

const StepShape kDecode{.prefix_lens = {5, 4}};

void expect_law(const Status& status, const char* law, const char* phase) {
  EXPECT_TRUE(laws(status).contains(law)) << status.to_string();
  for (const Finding& f : status.findings()) {
    EXPECT_EQ(f.where.phase, phase) << f.to_string();
    EXPECT_TRUE(f.where.backend.starts_with("flashattention"));
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

TEST(RunnerFinds, APageThatArrivedForAnotherRequest) {
  struct : Slip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      return put(meta, FlashAttention::kPageTable, 0, b.req_to_token.row(2)[0] / 2);
    }
  } slip;
  const ModelConfig model = model_of(2, {small_layer()});
  Runs runs(slip, model, options_of(model, {kBucket}));
  Step prebuilt = make_step(
      {.mode = ForwardMode::kPrebuilt, .page_size = 2, .prefix_lens = {0, 0}, .q_lens = {5, 4}},
      width_of(model));
  EXPECT_EQ(runs.runner.step(prebuilt).to_string(), "ok");
  // The slots of each are the other's now, and not both's.
  std::swap(prebuilt.requests[0], prebuilt.requests[1]);
  EXPECT_EQ(runs.runner.step(prebuilt).to_string(), "ok");
  Step decode = make_step({.page_size = 2, .prefix_lens = {5, 4}}, width_of(model));
  std::swap(decode.requests[0], decode.requests[1]);
  expect_law(runs.runner.step(decode), "mem.wrong_region", "eager");
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
    void change(Meta& meta) const override {
      meta.limits.model.split.max_splits =
          static_cast<int32_t>(meta.scalars[FlashAttention::kMaxSeqLenK]);
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
  struct : Slip {
    void change(Meta& meta) const override {
      if (in_graph(meta)) meta.limits.model.layers[0].params.sm_scale = 0.25f;
    }
  } slip;
  const Status status = with_slip_captured(slip, kDecode);
  expect_law(status, "plan.key", "capture");
  EXPECT_EQ(laws(status), Laws{"plan.key"});
}

TEST(RunnerFinds, AGraphThatLaunchesNothing) {
  struct : Slip {
    void forward(Stream& stream, const Meta& meta, const StepIo& step) const override {
      if (!in_graph(meta)) Slip::forward(stream, meta, step);
    }
  } slip;
  expect_law(with_slip_captured(slip, kDecode), "num.bits", "replay");
}

// A whole draft.

const StepShape kDraft{.mode = ForwardMode::kDraftDecode, .prefix_lens = {5, 4}};

struct DraftSlip : Slip {
  DraftSlip() : Slip(*find_backend("flashattention_multi_step")) {}

  /// A draft in which the slip was not made yet, if so asked; then one with it.
  Status run(bool without_first) {
    const ModelConfig model = model_of(2, {small_layer()}, {1, 4, 5});
    Runs runs(*this, model, options_of(model, {kBucket}));
    on = !without_first;
    if (without_first) {
      EXPECT_EQ(runs.step(kDraft).to_string(), "ok");
    }
    on = true;
    return runs.step(kDraft);
  }
};

TEST(RunnerFinds, AStepOfADraftWithTheMetadataOfTheStepBefore) {
  struct : DraftSlip {
    void change(Meta& meta) const override { meta.children[1] = meta.children[0]; }
  } slip;
  const Status first = slip.run(false);
  expect_law(first, "mem.uninit_read", "eager");
  EXPECT_EQ(first.findings()[0].id, "launch.operands");
  // The slots are written by now: the numbers tell.
  const Status status = slip.run(true);
  expect_law(status, "num.bound", "eager");
  // The step before read what it must, whatever lies in its slots now.
  std::set<std::string> outputs;
  for (const Finding& f : status.findings()) {
    if (f.id == "num.bound") outputs.insert(f.where.field);
  }
  EXPECT_TRUE(outputs.contains("step1.out") && !outputs.contains("step0.out"));
}

TEST(RunnerFinds, AStepOfADraftThatIsAnotherInTheGraph) {
  struct : DraftSlip {
    void change(Meta& meta) const override {
      if (in_graph(meta)) std::swap(meta.children[1], meta.children[2]);
    }
  } slip;
  expect_law(slip.run(false), "launch.operands", "capture");
}

TEST(RunnerFinds, AGraphOfADraftWithoutItsLastStep) {
  struct : DraftSlip {
    void forward(Stream& stream, const Meta& meta, const StepIo& step) const override {
      Meta fewer = meta;
      StepIo io = step;
      if (in_graph(meta)) {
        fewer.children.pop_back();
        io.layers = step.layers.first(fewer.children.size());
      }
      Slip::forward(stream, fewer, io);
    }
  } slip;
  EXPECT_EQ(laws(slip.run(false)), Laws{"num.bits"});
}

TEST(RunnerFinds, AReplayOfADraftWhoseLastStepStoresNothing) {
  // The eager step has stored the same tokens before.
  struct : DraftSlip {
    Status after_fill(const ForwardBatch& b, Meta& meta) const override {
      Status status;
      for (int64_t i = 0; in_graph(meta) && i < b.size(); ++i)
        status.add(put(meta.children[2], FlashAttention::kOutCacheLoc, i, int64_t{0}));
      return status;
    }
  } slip;
  expect_law(slip.run(true), "num.bits", "replay");
}

TEST(RunnerFinds, ABindThatIsRefusedForAnotherReasonThanItsLimits) {
  struct : Slip {
    Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override {
      return on ? Status::out_of_memory() : Slip::bind(arena, limits, meta);
    }
  } slip;
  const ModelConfig model = model_of(2, {small_layer()});
  Runs runs(slip, model, options_of(model, {kBucket}));
  EXPECT_FALSE(runs.step(kDecode).ok());
  EXPECT_EQ(runs.runner.counts().refused, 0);
}

}  // namespace
}  // namespace shadowgraph::runner_finds_test
