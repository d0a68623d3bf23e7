// sglang#25045: cross-attention took request 0's encoder length for every request. Upstream saw 12
// to 36 % of the outputs garbled at 8 to 128 requests, and none afterwards.
#include "backends/paged/flash_attention.h"
#include "check/laws/metadata_case.h"
#include "upstream/stories.h"

namespace shadowgraph::encoder_lengths_test {
namespace {

using enum ForwardMode;
using Fa = FlashAttention;

constexpr int32_t kMostEncoderTokens = 13;

/// Self-attention, then cross-attention.
ModelConfig model() {
  ModelConfig m = with_context(model_of(1, {small_layer(), small_layer()}), 16);
  m.max_encoder_len = kMostEncoderTokens;
  m.layers[1].cross = true;
  m.layers[1].params.causal = false;
  return m;
}

/// Pictures of many sizes: every request's encoder has 3 to 13 tokens.
Ints encoders(int32_t requests) {
  Ints lens;
  for (int32_t i = 0; i < requests; ++i) lens.push_back(3 + i * 7 % 11);
  return lens;
}
Ints texts(int32_t requests) {
  Ints lens;
  for (int32_t i = 0; i < requests; ++i) lens.push_back(1 + i % 5);
  return lens;
}
StepShape decodes(int32_t requests) {
  return {.prefix_lens = texts(requests), .encoder_lens = encoders(requests)};
}
int64_t other_than_the_first(const Ints& lens) {
  return std::ssize(lens) - std::ranges::count(lens, lens[0]);
}

class UpstreamEncoderLengths : public ::testing::TestWithParam<int32_t> {};

TEST_P(UpstreamEncoderLengths, AfterEveryRequestReadsBehindItsOwnEncoder) {
  const int32_t n = GetParam();
  Story story("flashattention", model(), n, {n});
  StepShape prompts = decodes(n);
  prompts.mode = kExtend, prompts.q_lens = prompts.prefix_lens;
  prompts.prefix_lens.assign(static_cast<size_t>(n), 0);
  EXPECT_EQ(story.step(prompts).to_string(), "ok");
  EXPECT_EQ(story.step(decodes(n)).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().rows, 2 * n);
  EXPECT_EQ(story.runner.counts().replays, 1);
}

TEST_P(UpstreamEncoderLengths, BeforeTheFirstLengthForAllIsFoundInBothTables) {
  Story story("flashattention", model(), GetParam(), {}, fault("K31"));
  const Laws found = laws(story.step(decodes(GetParam())));
  EXPECT_TRUE(found.contains("len.kv_extent"));
  EXPECT_TRUE(found.contains("table.slot"));
}

TEST_P(UpstreamEncoderLengths, BeforeTheFirstLengthForAllIsFoundInAReplay) {
  // The report's replay: eager steps are right, and graphs copy encoder_lens[0].
  struct InReplays final : Tap {
    void batch(ForwardBatch& b) override {
      if (calls++ % 2 == 1) first->batch(b);
    }
    const std::unique_ptr<Tap> first = fault("K31");
    int calls = 0;
  };
  const int32_t n = GetParam();
  Story story("flashattention", model(), n, {n}, std::make_unique<InReplays>());
  const Finding found = first_of(story.step(decodes(n)), "len.kv_extent");
  EXPECT_EQ(found.where.phase, "replay");
}

TEST_P(UpstreamEncoderLengths, BeforeEveryRequestOfAnotherLengthReadsWrongKeys) {
  const int32_t n = GetParam();
  const Step step = make_step(decodes(n), width_of(model()));
  ForwardBatch told = step.batch();
  const Ints first(static_cast<size_t>(n), step.encoder_lens[0]);
  told.encoder_lens = first, told.encoder_out_cache_loc = {};
  MetadataCase before(*find_backend("flashattention"), Limits::exact(told, model())),
      after(*find_backend("flashattention"), Limits::exact(step.batch(), model()));
  ASSERT_EQ(before.fill(told).to_string(), "ok");
  ASSERT_EQ(after.run(step.batch()).to_string(), "ok");
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto text = [&](MetadataCase& m) {
      const Buffer& b = m.meta()[Fa::kPageTable];
      const auto* p = reinterpret_cast<const int32_t*>(m.meta().arena.staged(b));
      return p[i * b.shape[1]];
    };
    wrong += text(before) != text(after);
  }
  EXPECT_EQ(wrong, other_than_the_first(step.encoder_lens));
  EXPECT_GE(wrong, n * 3 / 4);
}

INSTANTIATE_TEST_SUITE_P(Requests, UpstreamEncoderLengths, ::testing::Values(8, 16, 32, 64, 128),
                         ::testing::PrintToStringParamName());

TEST(UpstreamEncoder, TheFirstRequestIsAlwaysRightSoOneRequestOrEqualLengthsShowNothing) {
  for (const Ints& lens : {Ints{5}, Ints(8, 5)}) {
    Story story("flashattention", model(), 8, {8}, fault("K31"));
    EXPECT_EQ(
        story.step({.prefix_lens = texts(static_cast<int32_t>(lens.size())), .encoder_lens = lens})
            .to_string(),
        "ok");
    EXPECT_EQ(story.tap->acted(), 0);
  }
}

TEST(UpstreamEncoder, TheWorkedExampleReadsTwoSlotsOfTheEncoder) {
  // Encoders of 3 and 5 tokens, one token of text and a new one: row 1 begins two slots early.
  const Step step = make_step({.prefix_lens = {1, 1}, .encoder_lens = {3, 5}}, width_of(model()));
  Story story("flashattention", model(), 2, {}, fault("K31"));
  const Status status = story.runner.step(step);
  EXPECT_EQ(first_of(status, "len.kv_extent").where.row, 1);
  const Finding found = first_of(status, "table.slot");
  EXPECT_EQ(found.where.row, 1);
  const auto row = step.batch().req_to_token.row(2);
  EXPECT_TRUE(found.expected.starts_with("slot " + std::to_string(row[5]))) << found.to_string();
  EXPECT_TRUE(found.got.starts_with(std::to_string(row[3]))) << found.to_string();
}

}  // namespace
}  // namespace shadowgraph::encoder_lengths_test
