// sglang#26512: the lengths of a draft extend v2 are the cached prefix, and FlashAttention took
// them for all keys. The report's matrix is FA3 and FA4, eagerly and in graphs: both kernels have
// one builder, so one twin. Upstream's test of it: prefixes 4 and 7, three new tokens each.
#include "backends/paged/flash_attention.h"
#include "check/laws/metadata_case.h"
#include "upstream/stories.h"

namespace shadowgraph::draft_extend_lengths_test {
namespace {

using enum ForwardMode;
using Fa = FlashAttention;

const DraftShape kDraft{1, 2, 3};
const StepShape kStep{.mode = kDraftExtendV2, .prefix_lens = {4, 7}, .q_lens = {3, 3}};

ModelConfig model(int32_t page_size, int32_t context = 32) {
  return with_context(model_of(page_size, {small_layer(), small_layer(2)}, kDraft), context);
}

enum class Phase { kEager, kGraph };

/// The lengths of one phase's batch are what `told` makes of them, taken for all keys. A runner
/// tells a step first for its eager run, then for its replay.
struct Told final : Tap {
  using Lens = std::vector<int32_t>;
  Told(Phase phase, Lens (*told)(const ForwardBatch&)) : phase_(phase), told_(told) {}

  void batch(ForwardBatch& b) override {
    const Phase now = calls_++ % 2 == 0 ? Phase::kEager : Phase::kGraph;
    if (now != phase_) return;
    lens_ = told_(b);
    b.seq_lens = lens_, b.seq_lens_kind = SeqLensKind::kFull;
    act();
  }

 private:
  const Phase phase_;
  Lens (*const told_)(const ForwardBatch&);
  Lens lens_;
  int calls_ = 0;
};

std::vector<int32_t> prefixes(const ForwardBatch& b) {
  std::vector<int32_t> lens;
  for (int64_t i = 0; i < b.size(); ++i) lens.push_back(b.extent(i).prefix_len);
  return lens;
}
std::vector<int32_t> with_new_tokens_twice(const ForwardBatch& b) {
  std::vector<int32_t> lens;
  for (int64_t i = 0; i < b.size(); ++i) lens.push_back(b.extent(i).kv_len + b.q_len(i));
  return lens;
}

/// The engine's number of keys, and the right one.
void expect_keys(const Finding& found, const char* got, const char* expected) {
  EXPECT_TRUE(found.got.starts_with(got)) << found.to_string();
  EXPECT_EQ(found.expected, expected);
}

struct Way {
  const char* kernel;
  Phase phase;
  int32_t page_size;
};
void PrintTo(const Way& w, std::ostream* out) {
  *out << w.kernel << (w.phase == Phase::kEager ? "_eager" : "_graph") << "_page_" << w.page_size;
}

class UpstreamDraftExtendMatrix : public ::testing::TestWithParam<Way> {
 protected:
  /// What is found with these lengths in this phase.
  static Status before(std::vector<int32_t> (*told)(const ForwardBatch&)) {
    const Way& way = GetParam();
    Story story("flashattention", model(way.page_size), 2, {2},
                std::make_unique<Told>(way.phase, told));
    const Status status = story.step(kStep);
    const char* phase = way.phase == Phase::kEager ? "eager" : "replay";
    for (const Finding& f : status.findings()) EXPECT_EQ(f.where.phase, phase);
    return status;
  }
};

TEST_P(UpstreamDraftExtendMatrix, BeforeOnlyThePrefixIsReadAndThatIsFound) {
  const Finding found = first_of(before(prefixes), "len.kv_extent");
  expect_keys(found, "4 ", "7 keys");
}

TEST_P(UpstreamDraftExtendMatrix, BeforeTheOtherWayNewTokensCountTwiceAndThatIsFound) {
  const Finding found = first_of(before(with_new_tokens_twice), "len.kv_extent");
  expect_keys(found, "10 ", "7 keys");
}

TEST_P(UpstreamDraftExtendMatrix, AfterPrefixAndNewTokensAreReadAndNothingIsFound) {
  const Way& way = GetParam();
  const std::vector<int32_t> buckets =
      way.phase == Phase::kEager ? std::vector<int32_t>{} : std::vector<int32_t>{2, 4, 8};
  Story story("flashattention", model(way.page_size), 3, buckets);
  EXPECT_EQ(story.step(kStep).to_string(), "ok");
  EXPECT_EQ(story.step({.mode = kDraftExtendV2, .prefix_lens = {4, 7, 9}, .q_lens = {3, 3, 3}})
                .to_string(),
            "ok");
  EXPECT_EQ(story.runner.counts().steps, 2);
  EXPECT_EQ(story.runner.counts().captures, std::ssize(buckets));
  EXPECT_EQ(story.runner.counts().replays, buckets.empty() ? 0 : 2);
}

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const char* kernel : {"fa3", "fa4"})
    for (const Phase phase : {Phase::kEager, Phase::kGraph})
      for (const int32_t page_size : {1, 4, 16}) all.push_back({kernel, phase, page_size});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Sglang26512, UpstreamDraftExtendMatrix, ::testing::ValuesIn(ways()),
                         ::testing::PrintToStringParamName());

TEST(UpstreamDraftExtend, ThePlainExtendKeepsItsFullLengths) {
  // The mend touches draft extends alone: seq_lens of an extend are full already.
  Story story("flashattention", model(4), 2, {});
  StepShape shape = kStep;
  shape.mode = kExtend;
  const Step step = story.made(shape);
  EXPECT_EQ(step.seq_lens_kind, SeqLensKind::kFull);
  EXPECT_EQ(step.seq_lens, (Ints{7, 10}));
  EXPECT_EQ(story.runner.step(step).to_string(), "ok");
}

/// Bound for exactly these prefixes and new tokens.
struct Filled {
  const ModelConfig m;
  const Step step;
  const ForwardBatch batch = step.batch();
  MetadataCase metadata{*find_backend("flashattention"), Limits::exact(batch, m)};

  Filled(Ints prefix, Ints news)
      : m(model(1, 128)),
        step(make_step({.mode = kDraftExtendV2, .prefix_lens = prefix, .q_lens = news},
                       width_of(m))) {
    EXPECT_EQ(metadata.run(batch).to_string(), "ok");
  }
};

TEST(UpstreamDraftExtend, TheLongestIsTheLargestSumAndNotTheSumOfTheLargest) {
  // The batch is skewed: max(100 + 1, 2 + 7) = 101, and max + max is 107.
  Filled f({100, 2}, {1, 7});
  const Meta& meta = f.metadata.meta();
  EXPECT_EQ(meta.scalars[Fa::kMaxSeqLenK], 101);
  EXPECT_EQ(meta[Fa::kPageTable].shape[1], 101);
  EXPECT_EQ(Limits::exact(f.batch, f.m).max_kv_len, 101);
  f.metadata.meta().scalars[Fa::kMaxSeqLenK] = 100;
  EXPECT_EQ(laws(f.metadata.judge(f.batch)), Laws{"len.bound"});
}

/// A step that has lost its extend lengths.
Step without_extend_lens(const Story& story) {
  Step step = story.made(kStep);
  step.extend_lens.clear();
  return step;
}

TEST(UpstreamDraftExtend, WithoutExtendLengthsTheBatchIsRefusedAndNothingIsGuessed) {
  Story story("flashattention", model(16), 2, {2});
  const Step step = without_extend_lens(story);
  const Status status = story.runner.step(step);
  EXPECT_EQ(first_of(status, "len.batch").where.field, "extend_lens");
  EXPECT_EQ(story.runner.counts().steps, 0);
  // The builder itself refuses it, too, and writes nothing.
  Filled f({4, 7}, {3, 3});
  const auto lens = [&] {
    const Buffer& b = f.metadata.meta()[Fa::kCacheSeqlens];
    const auto* p = reinterpret_cast<const int32_t*>(f.metadata.meta().arena.staged(b));
    return Ints(p, p + 2);
  };
  EXPECT_EQ(first_of(f.metadata.fill(step.batch()), "len.batch").where.field, "extend_lens");
  EXPECT_EQ(lens(), (Ints{7, 10}));
}

/// Extend lengths that are missing are taken to be `each`, for every request.
struct FallsBackTo final : Tap {
  explicit FallsBackTo(int32_t each) : each_(each) {}
  void batch(ForwardBatch& b) override {
    lens_.assign(b.seq_lens.size(), each_), full_.clear();
    for (int64_t i = 0; i < b.size(); ++i) full_.push_back(b.extent(i).prefix_len + each_);
    b.seq_lens = full_, b.seq_lens_kind = SeqLensKind::kFull;
    b.extend_lens = lens_;
    b.out_cache_loc = {}, b.positions = {};  // as long as the right ones
    act();
  }

 private:
  const int32_t each_;
  std::vector<int32_t> lens_, full_;
};

TEST(UpstreamDraftExtend, TheReportsFallbackToTheFirstLengthIsFound) {
  // extend_seq_lens = seq_lens[0] = 4 for both: the two have 8 and 11 keys, and 7 and 10 are there.
  Story story("flashattention", model(16), 2, {2}, std::make_unique<FallsBackTo>(4));
  const Finding found = first_of(story.step(kStep), "len.kv_extent");
  expect_keys(found, "8 ", "7 keys");
}

TEST(UpstreamDraftExtend, TheFallbackToOneTokenIsFound) {
  Story story("flashattention", model(16), 2, {2}, std::make_unique<FallsBackTo>(1));
  const Finding found = first_of(story.step(kStep), "len.kv_extent");
  expect_keys(found, "5 ", "7 keys");
}

TEST(UpstreamDraftExtend, TheEnginesFallbackToAllDraftTokensIsRightWhereAllRequestsHaveThem) {
  // num_tokens_per_req, or num_steps + 1: the width of a draft extend v2.
  Filled all({4, 7}, {3, 3});
  EXPECT_EQ(kDraft.num_steps + 1, all.batch.q_len(0));
  EXPECT_EQ(kDraft.num_draft_tokens, all.batch.q_len(1));
  // A request that has fewer gets keys that are not there.
  Story story("flashattention", model(16), 2, {2},
              std::make_unique<FallsBackTo>(kDraft.num_steps + 1));
  const Status status =
      story.step({.mode = kDraftExtendV2, .prefix_lens = {4, 7}, .q_lens = {3, 1}});
  const Finding found = first_of(status, "len.kv_extent");
  expect_keys(found, "10 ", "8 keys");
}

}  // namespace
}  // namespace shadowgraph::draft_extend_lengths_test
