// sglang#26665: captures bind buffers and then run the filler of replays. What a capture does not
// know, a filler must not ask for: two halves' buckets, accepted lengths, a tree's mask, lengths of
// the host. Upstream's test: TboAttnBackend, fa3 over fa3 and fa3, prefixes 4 and 7, three drafts
// each, pages of 16.
#include "attn/finding_ids.h"
#include "backends/compose/two_batch_overlap.h"
#include "backends/paged/flash_attention.h"
#include "backends/recurrent/recurrent_backend.h"
#include "backends/step_fixture.h"
#include "faults/buffers.h"
#include "upstream/stories.h"

namespace shadowgraph::capture_replay_test {
namespace {

using enum ForwardMode;
using Fa = FlashAttention;
using Rb = RecurrentBackend;

const DraftShape kChain{1, 2, 3};
const StepShape kVerify{.mode = kTargetVerify, .prefix_lens = {4, 7}};
StepShape draft_extend(ForwardMode mode) {
  return {.mode = mode, .prefix_lens = {4, 7}, .q_lens = {3, 3}};
}

ModelConfig model(DraftShape draft = kChain) {
  return with_context(model_of(16, {small_layer()}, draft), 32);
}

/// What two_batch_overlap is upstream: a primary that runs the whole, and children that run halves.
/// All three are bound and filled, and the launches are the primary's or the halves'.
class WithPrimary final : public Backend {
 public:
  explicit WithPrimary(bool halves) : by_halves_(halves), info_(halves_.info()) {
    info_.name = "fa3_over_fa3_and_fa3";
  }
  const BackendInfo& info() const override { return info_; }
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override {
    Meta bound;
    bound.backend = this, bound.limits = limits, bound.arena = arena;
    bound.children.resize(2);
    Status status = primary_.bind(arena.scope("primary"), limits, &bound.children[0]);
    if (status.ok()) status = halves_.bind(arena.scope("halves"), limits, &bound.children[1]);
    if (status.ok()) *meta = bound;
    return status;
  }
  Status fill(const ForwardBatch& batch, Meta& meta) const override {
    return for_each_part(batch, meta, [](const Backend& b, const ForwardBatch& of, Meta& to) {
      return b.fill(of, to);
    });
  }
  Status for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const override {
    Status status = fn(primary_, batch, meta.children[0]);
    if (status.ok()) status = fn(halves_, batch, meta.children[1]);
    return status;
  }
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override {
    if (by_halves_)
      halves_.forward(stream, meta.children[1], step);
    else
      primary_.forward(stream, meta.children[0], step);
  }

 private:
  const bool by_halves_;
  const Backend& primary_ = *find_backend("flashattention");
  const Backend& halves_ = *find_backend("flashattention_two_batch");
  BackendInfo info_;
};

TEST(UpstreamCapture, APrimaryAndItsHalvesAreCapturedAndReplayed) {
  for (const bool by_halves : {false, true}) {
    const WithPrimary tbo(by_halves);
    Story story(tbo, model(), 4, {2, 4});
    EXPECT_EQ(story.step(kVerify).to_string(), "ok");
    EXPECT_EQ(story.runner.counts().captures, 2);
    EXPECT_EQ(story.runner.counts().replays, 1);
    EXPECT_EQ(story.step(draft_extend(kDraftExtendV2)).to_string(), "ok");
    EXPECT_EQ(story.step({.prefix_lens = {4, 7}}).to_string(), "ok");
    EXPECT_EQ(story.runner.counts().replays, 3);
    EXPECT_EQ(story.runner.counts().refused, 0);
  }
}

TEST(UpstreamCapture, TheHalvesOfABucketAreBoundByItsCapture) {
  const WithPrimary tbo(true);
  for (const auto& [bucket, left, right] : {std::tuple{2, 1, 1}, {3, 1, 2}, {4, 2, 2}, {8, 4, 4}}) {
    BoundStep s(tbo, Limits::bucket(kTargetVerify, bucket, 3, model()));
    const Meta &whole = s.meta.children[0], &halves = s.meta.children[1];
    EXPECT_EQ(whole.limits.rows, bucket);
    EXPECT_EQ(halves.children[0].limits.rows, left);
    EXPECT_EQ(halves.children[1].limits.rows, right);
    EXPECT_EQ(halves.children[0].limits.tokens, 3 * left);
    const Step step =
        make_step({.mode = kTargetVerify, .page_size = 16, .prefix_lens = {4, 7}, .draft = kChain},
                  width_of(model()));
    EXPECT_EQ(s.fill(step.batch()).to_string(), "ok");
    const auto lens = [](const Meta& m) {
      const auto* p = reinterpret_cast<const int32_t*>(m[Fa::kCacheSeqlens].data);
      return Ints(p, p + m.limits.rows);
    };
    Ints all = lens(halves.children[0]), rest = lens(halves.children[1]);
    all.insert(all.end(), rest.begin(), rest.end());
    EXPECT_EQ(lens(whole), all);
    EXPECT_EQ((Ints{all[0], all[1]}), (Ints{7, 10}));
  }
}

TEST(UpstreamCapture, BeforeAReplayOfWhatNobodyBoundIsRefusedWhereTheEngineHadAKeyError) {
  // The capture went to the replay's entry, so no child had metadata of the bucket: KeyError: 2.
  const Step step =
      make_step({.mode = kTargetVerify, .page_size = 16, .prefix_lens = {4, 7}, .draft = kChain},
                width_of(model()));
  Meta nobodys;
  for (const char* name : {"flashattention", "flashattention_two_batch"}) {
    const Laws found = laws(find_backend(name)->fill(step.batch(), nobodys));
    EXPECT_EQ(found, (Laws{"batch.capacity", "batch.mode"})) << name;
  }
  // A bucket of one row has no two halves: no graph, and no replay.
  Meta meta;
  SimDevice device;
  const Arena arena(device, size_t{1} << 20);
  const Limits one = Limits::bucket(kTargetVerify, 1, 3, model());
  EXPECT_EQ(laws(find_backend("flashattention_two_batch")->bind(arena, one, &meta)),
            Laws{"backend.limits"});
}

TEST(UpstreamCapture, BeforeADraftExtendWhoseLongestQueryIsBakedAs1IsFound) {
  for (const ForwardMode mode : {kDraftExtend, kDraftExtendV2}) {
    Story story("flashattention", model(), 2, {2}, fault("K11"));
    EXPECT_TRUE(laws(story.step(draft_extend(mode))).contains("graph.baked_scalar"))
        << name_of(mode);
    EXPECT_GT(story.tap->acted(), 0);
  }
}

TEST(UpstreamCapture, AfterADraftExtendKeepsTheBucketsLongestQuery) {
  for (const ForwardMode mode : {kDraftExtend, kDraftExtendV2}) {
    Story story("flashattention", model(), 4, {2, 4});
    EXPECT_EQ(story.step(draft_extend(mode)).to_string(), "ok");
    StepShape fewer = draft_extend(mode);
    fewer.q_lens = {1, 2};  // other numbers are accepted in the next step
    EXPECT_EQ(story.step(fewer).to_string(), "ok");
    EXPECT_EQ(story.runner.counts().replays, 2);
  }
}

TEST(UpstreamCapture, ATreesCaptureNeedsNeitherPositionsNorAMask) {
  const DraftTree tree{{-1, 0, 0}, {0, 1, 1}};
  Story story("flashattention", model({2, 2, 3}), 2, {2});
  StepShape verify = kVerify;
  verify.trees = {tree, tree};
  EXPECT_EQ(story.step(verify).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().replays, 1);
  // A real batch without its mask is refused: a dummy's must not stand in for it.
  BoundStep s(*find_backend("flashattention"),
              Limits::bucket(kTargetVerify, 2, 3, model({2, 2, 3})));
  const Step step = story.made(verify);
  ForwardBatch batch = step.batch();
  EXPECT_EQ(s.fill(batch.slice(0, 0)).to_string(), "ok");
  batch.spec.custom_mask = {};
  EXPECT_EQ(first_of(s.refill(batch), "batch.field").where.field, "custom_mask");
}

TEST(UpstreamCapture, BucketsThatTakeTurnsKeepTheirOwnBuffers) {
  Story story("flashattention", model(), 4, {2, 4});
  for (const Ints& prefix : {Ints{4, 7, 9, 1}, {7, 4}, {4, 7, 9, 1}, {9, 3}, {1, 2, 3}})
    EXPECT_EQ(story.step({.mode = kTargetVerify, .prefix_lens = prefix}).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().replays, 5);
  EXPECT_EQ(story.runner.counts().captures, 2);
}

ModelConfig ascend_gdn() {
  ModelConfig m = model_of(1, {recurrent_layer(RecurrentFamily::kGdn)});
  m.seq_len_fill = 0;
  return m;
}
const StepShape kPrompts{.mode = kExtend, .prefix_lens = {0, 0}, .q_lens = {7, 3}, .states = true};
const StepShape kDecodes{.prefix_lens = {7, 3}, .states = true};

TEST(UpstreamCapture, AscendGdnIsCapturedWithoutLengthsOfTheHost) {
  Story story("ascend_gdn", ascend_gdn(), 4, {2, 4});
  EXPECT_EQ(story.step(kPrompts).to_string(), "ok");
  EXPECT_EQ(story.step(kDecodes).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().captures, 2);
  EXPECT_EQ(story.runner.counts().replays, 1);
  // At the capture nobody has lengths: every row is padding. The replay has the two requests.
  const Step step = story.made(kDecodes);
  BoundStep s(*find_backend("ascend_gdn"), Limits::bucket(kDecode, 2, 1, ascend_gdn()));
  EXPECT_EQ(s.fill(step.batch().slice(0, 0)).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kStateIndices), (Ints{0, 0}));
  EXPECT_EQ(s.ints(Rb::kQueryStartLoc), (Ints{0, 0, 0}));
  EXPECT_EQ(s.fill(step.batch()).to_string(), "ok");
  EXPECT_EQ(s.ints(Rb::kStateIndices), (Ints{1, 2}));
  EXPECT_EQ(s.ints(Rb::kQueryStartLoc), (Ints{0, 1, 2}));
}

TEST(UpstreamCapture, AscendGdnWithSeqLensCpuNoneIsRefusedWhereRequestsAreNamed) {
  // seq_lens_cpu = None beside two requests: the engine compares None with its fill value.
  const Step step = make_step({.prefix_lens = {7, 3}, .states = true}, width_of(ascend_gdn()));
  ForwardBatch batch = step.batch();
  batch.seq_lens = {};
  BoundStep s(*find_backend("ascend_gdn"), Limits::bucket(kDecode, 2, 1, ascend_gdn()));
  EXPECT_TRUE(laws(s.refill(batch)).contains("len.batch"));
}

/// None is taken for lengths that are all the fill value: in replays every row is padding.
struct AllRowsArePadding final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    if (!is_replay(batch, meta)) return {};
    for (const size_t buffer : {size_t{Rb::kStateIndices}, size_t{Rb::kQueryStartLoc}})
      std::ranges::fill(staged<int32_t>(meta, meta[buffer]), 0);
    act();
    return {};
  }
};

TEST(UpstreamCapture, BeforeAscendGdnThatCountsEveryRowAsPaddingIsFound) {
  Story story("ascend_gdn", ascend_gdn(), 4, {2}, std::make_unique<AllRowsArePadding>());
  EXPECT_EQ(story.step(kPrompts).to_string(), "ok");
  const Status status = story.step(kDecodes);
  EXPECT_EQ(first_of(status, "state.slots").where.phase, "replay");
  EXPECT_EQ(story.tap->acted(), 1);
}

}  // namespace
}  // namespace shadowgraph::capture_replay_test
