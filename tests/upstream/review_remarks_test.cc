// What reviewers of the five changes remarked. sglang#26512 and sglang#25045 had no remark.
#include "backends/lists/flashinfer.h"
#include "backends/lists/triton.h"
#include "backends/paged/ascend.h"
#include "backends/step_fixture.h"
#include "check/laws/metadata_case.h"
#include "faults/buffers.h"
#include "shadowgraph/testing.h"
#include "upstream/stories.h"

namespace shadowgraph::review_remarks_test {
namespace {

using enum ForwardMode;
using Fi = FlashInfer;

/// sglang#26513: layers with a window and without, in two calls.
ModelConfig windowed(int32_t window, int32_t context) {
  ModelConfig m =
      with_context(model_of(1, {small_layer(window), small_layer()}, {2, 2, 3}), context);
  m.ragged_prefill = true;
  return m;
}

/// Metadata of a step, and then with one number changed.
struct Filled {
  const Step step;
  const ForwardBatch batch = step.batch();
  MetadataCase metadata;

  Filled(const char* backend, const ModelConfig& m, StepShape shape)
      : step(make_step(shape, width_of(m))),
        metadata(*find_backend(backend), Limits::exact(batch, m)) {
    EXPECT_EQ(metadata.run(batch).to_string(), "ok");
  }
  template <class T>
  Laws with(int buffer, int64_t element, T value) {
    const Buffer& b = metadata.meta()[static_cast<size_t>(buffer)];
    EXPECT_TRUE(metadata.meta().arena.write(b, element, &value, 1).ok());
    return laws(metadata.judge(batch));
  }
};

TEST(UpstreamReviews, AMaskOfBytesWhereBitsAreReadIsFound) {
  // "custom_mask should stay torch.bool": the kernel packs a boolean mask, and takes bytes as they
  // come. Four queries of two keys are 8 pairs, one byte of bits; as bytes they would be 8.
  Filled f("flashinfer", windowed(2, 16), {.mode = kExtend, .prefix_lens = {5}, .q_lens = {4}});
  EXPECT_TRUE(f.with(Fi::list(0, Fi::kMaskIndptr), 1, 8).contains("mask.size"));
  Filled g("flashinfer", windowed(2, 16), {.mode = kExtend, .prefix_lens = {5}, .q_lens = {4}});
  EXPECT_EQ(g.with(Fi::list(0, Fi::kMask), 0, uint8_t{1}), Laws{"mask.bit"});
}

TEST(UpstreamReviews, AByteOfAMaskIs0Or1) {
  const DraftTree tree{{-1, 0, 0}, {0, 1, 1}};
  Filled f("triton", windowed(2, 16),
           {.mode = kTargetVerify, .prefix_lens = {2}, .draft = {2, 2, 3}, .trees = {tree}});
  EXPECT_EQ(f.with(Triton::kCustomMask, 0, uint8_t{0}), Laws{"mask.bit"});
  // Who writes a mask of its own is asked for exactly 0 or 1, too.
  testing::Truth truth;
  truth.mask = {1, 0, 1, 1};
  const std::vector<uint8_t> bytes = {1, 0, 255, 1};
  EXPECT_EQ(laws(testing::check_mask({"custom_mask", bytes}, truth)), Laws{"mask.bit"});
}

TEST(UpstreamReviews, ALongPrefixTakesNoLongerMaskThanItsWindow) {
  // "Restrict the paged prefix to the window": 4 queries behind 1000 tokens, of which 8 are seen.
  Filled f("flashinfer", windowed(8, 1024),
           {.mode = kExtend, .prefix_lens = {1000}, .q_lens = {4}});
  const auto list = [&](Fi::ListId id) { return static_cast<size_t>(Fi::list(0, id)); };
  const Meta& meta = f.metadata.meta();
  const auto last = [&](Fi::ListId id) {
    return reinterpret_cast<const int32_t*>(meta.arena.staged(meta[list(id)]))[1];
  };
  EXPECT_EQ(last(Fi::kKvIndptr), 8);
  EXPECT_EQ(last(Fi::kMaskIndptr), 4);  // 32 pairs; all 1000 keys would be 500 bytes
  EXPECT_LE(meta[list(Fi::kMask)].numel(), 8);
}

TEST(UpstreamReviews, AnEmptyBatchOfBranchesHasNoLongestPosition) {
  // "positions.max() of an empty batch raises": sglang#27360. Nothing is read of a batch of none.
  const ModelConfig m = with_context(model_of(2, {small_layer(), small_layer(2)}, {8, 8, 9}), 32);
  for (const char* backend : {"flashattention", "flashattention_multi_step"}) {
    Story story(backend, m, 2, {1, 2});
    EXPECT_EQ(story.step({.mode = kDraftDecode, .prefix_lens = {}}).to_string(), "ok");
    EXPECT_EQ(story.step({.mode = kDraftDecode, .prefix_lens = {7, 9}}).to_string(), "ok");
    EXPECT_EQ(story.step({.mode = kDraftDecode, .prefix_lens = {}}).to_string(), "ok");
    EXPECT_EQ(story.runner.counts().replays, 3) << backend;
  }
}

TEST(UpstreamReviews, PaddingIsCountedAndNotGuessedFromTheFillValue) {
  // sglang#26665: where the fill value is 1, a verify behind one committed token looks like
  // padding.
  const ModelConfig m = model_of(1, {recurrent_layer(RecurrentFamily::kGdn)}, {1, 2, 3});
  Story story("gdn", m, 4, {4});
  const StepShape prompts{.mode = kExtend, .prefix_lens = {0, 0}, .q_lens = {7, 1}, .states = true};
  EXPECT_EQ(story.step(prompts).to_string(), "ok");
  const Step step = story.made({.mode = kTargetVerify, .prefix_lens = {7, 1}, .states = true});
  EXPECT_EQ(step.seq_lens, (Ints{7, m.seq_len_fill}));
  EXPECT_EQ(story.runner.step(step).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().replays, 1);
}

/// sglang#26665: blocks of a diffusion model on an NPU, whose kernel takes lists of the host.
ModelConfig blocks() {
  ModelConfig m = with_context(model_of(4, {small_layer()}), 32);
  m.seq_len_fill = 0;
  return m;
}
const StepShape kTwoBlocks{.mode = kDllmExtend, .prefix_lens = {8, 16}, .q_lens = {4, 4}};

TEST(UpstreamReviews, AnNpusListsOfTheHostAreThereAtTheCaptureAndOfEveryStep) {
  Story story("ascend", blocks(), 2, {1, 2});
  EXPECT_EQ(story.step({.mode = kDllmExtend, .prefix_lens = {8}, .q_lens = {4}}).to_string(), "ok");
  EXPECT_EQ(story.step(kTwoBlocks).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().replays, 2);
  const Step step = story.made(kTwoBlocks);
  BoundStep s(*find_backend("ascend"), Limits::bucket(kDllmExtend, 2, 4, blocks()));
  EXPECT_EQ(s.fill(step.batch()).to_string(), "ok");
  EXPECT_EQ(s.ints(Ascend::kActualSeqLengths), (Ints{4, 8}));
  EXPECT_EQ(s.ints(Ascend::kKvLens), (Ints{12, 20}));
}

TEST(UpstreamReviews, AnNpusListsThatACaptureLacksOrKeepsAreFound) {
  for (const char* id : {"K11a", "K11b"}) {
    Story story("ascend", blocks(), 2, {1, 2}, fault(id));
    EXPECT_FALSE(story.step(kTwoBlocks).ok()) << id;
    EXPECT_GT(story.tap->acted(), 0) << id;
  }
}

}  // namespace
}  // namespace shadowgraph::review_remarks_test
