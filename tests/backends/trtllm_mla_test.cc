// TRTLLM-MLA: table widths, and the window that its kernel reads every request through.
#include "backends/paged/trtllm_mla.h"

#include <gtest/gtest.h>

#include "attn/finding_ids.h"
#include "backends/paged_world.h"

namespace shadowgraph::trtllm_mla_test {
namespace {

using Mla = TrtllmMla;
const TrtllmMla kMla;

ModelConfig model(int32_t page_size, int32_t max_context_len = 256) {
  ModelConfig m = model_of(page_size, 1, max_context_len);
  m.num_steps = 3, m.num_draft_tokens = 4;
  return m;
}

TEST(TrtllmMla, TableColumnsComeInWholeTilesOf4096Keys) {
  PagedWorld w;
  const auto columns = [&](int32_t page_size, int32_t keys) {
    Limits limits = Limits::bucket(ForwardMode::kDecode, 1, 1, model(page_size, keys));
    limits.max_kv_len = keys;
    const std::string name = std::to_string(page_size) + "of" + std::to_string(keys);
    return w.bind(kMla, limits, name)[Mla::kPageTable].shape[1];
  };
  EXPECT_EQ(columns(64, 200), 64);
  EXPECT_EQ(columns(32, 200), 128);
  EXPECT_EQ(columns(64, 4096), 64);
  EXPECT_EQ(columns(64, 4097), 128);
  EXPECT_EQ(columns(32, 4097), 256);
}

TEST(TrtllmMla, TheWindowOfAShortExtendHasColumnsToo) {
  PagedWorld w;
  Limits limits = Limits::bucket(ForwardMode::kDraftExtend, 2, 4, model(64));
  limits.max_kv_len = 4096;  // prefix 4095 and one new token: the window ends at key 4099
  EXPECT_EQ(w.bind(kMla, limits)[Mla::kPageTable].shape[1], 128);
}

TEST(TrtllmMla, DraftExtendTellsPrefixAndWindowButReadsItsOwnKeys) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftExtend, {{99, 1}, {96, 4}}, 32);
  const Meta meta = w.exact(kMla, owned.view(), model(32));
  EXPECT_EQ(held(meta[Mla::kSeqLensK]), (Ints{103, 100}));
  EXPECT_EQ(held(meta[Mla::kSeqLensQ]), (Ints{1, 4}));
  EXPECT_EQ(held(meta[Mla::kKvLens]), (Ints{100, 100}));
  EXPECT_EQ(held(meta[Mla::kCuSeqlensQ]), (Ints{0, 1, 5}));
  EXPECT_EQ(meta.scalars[Mla::kMaxSeqLenQ], 4);
  EXPECT_EQ(meta.scalars[Mla::kSumSeqLensQ], 5);
}

TEST(TrtllmMla, UniformModesTellTheKeysTheyRead) {
  PagedWorld w;
  for (const ForwardMode mode : {ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                 ForwardMode::kDraftExtendV2, ForwardMode::kDraftDecode}) {
    const int32_t q = is_decode_or_idle(mode) ? 1 : 4;
    const PagedBatch owned(mode, {{136, q}, {95, q}}, 64, q == 1 ? 3 : 0);
    const Meta meta = w.exact(kMla, owned.view(), model(64));
    EXPECT_EQ(held(meta[Mla::kSeqLensK]), held(meta[Mla::kKvLens])) << name_of(mode);
    EXPECT_EQ(held(meta[Mla::kKvLens]), (Ints{136 + q, 95 + q})) << name_of(mode);
  }
}

TEST(TrtllmMla, ADraftStepCountsTheStepsBeforeIt) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftDecode, {{117, 1}}, 32, 3);
  ForwardBatch batch = owned.view();
  batch.spec.step = 1;
  const Meta meta = w.exact(kMla, batch, model(32));
  EXPECT_EQ(held(meta[Mla::kSeqLensK]), (Ints{119}));
}

TEST(TrtllmMla, PaddingOfDraftExtendIsTheFillWithoutPrefix) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftExtendV2, {{136, 4}}, 64);
  Meta meta = w.bind(kMla, Limits::bucket(ForwardMode::kDraftExtendV2, 2, 4, model(64)));
  w.fill(kMla, owned.view(), meta);
  EXPECT_EQ(held(meta[Mla::kSeqLensK]), (Ints{140, 1}));
  EXPECT_EQ(held(meta[Mla::kSeqLensQ]), (Ints{4, 4}));
}

TEST(TrtllmMla, OtherLayersAreRefused) {
  PagedWorld w;
  ModelConfig m = model(64);
  m.layers[0].params.num_kv_heads = 2;
  m.layers[0].params.window_left = 4;
  m.swa_pool = true;
  Meta meta;
  EXPECT_EQ(ids(kMla.bind(w.arena, Limits::bucket(ForwardMode::kExtend, 1, 1, m), &meta)),
            (Ids{"backend.limits mode", "backend.limits swa_pool",
                 "backend.limits layers.num_kv_heads", "backend.limits layers.window_left"}));
}

}  // namespace
}  // namespace shadowgraph::trtllm_mla_test
