// Hybrid: the mode chooses the backend, and what both serve is served.
#include "backends/compose/hybrid.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "attn/finding_ids.h"
#include "backends/paged/cutlass_mla.h"
#include "backends/paged/trtllm_mha.h"
#include "backends/paged/trtllm_mla.h"
#include "backends/paged_world.h"

namespace shadowgraph::hybrid_test {
namespace {

const TrtllmMla kDecode;
const TrtllmMha kPrefill;
const Hybrid kByDecode(kDecode, kPrefill, VerifyBy::kDecode);
const Hybrid kByPrefill(kDecode, kPrefill, VerifyBy::kPrefill);

/// fi.I-72: nothing but the mode does.
TEST(Hybrid, TheModeChooses) {
  for (int m = 0; m < kNumForwardModes; ++m) {
    const auto mode = static_cast<ForwardMode>(m);
    const bool decode = mode == ForwardMode::kDecode || mode == ForwardMode::kIdle ||
                        mode == ForwardMode::kDraftDecode;
    const bool verify = mode == ForwardMode::kTargetVerify;
    const auto part = [](bool first) -> const Backend* {
      return first ? static_cast<const Backend*>(&kDecode) : &kPrefill;
    };
    EXPECT_EQ(&kByDecode.part(mode), part(decode || verify)) << name_of(mode);
    EXPECT_EQ(&kByPrefill.part(mode), part(decode)) << name_of(mode);
  }
}

TEST(Hybrid, NamesItsPartsAndServesThePagesOfBoth) {
  EXPECT_EQ(kByDecode.info().name, "trtllm_mla_trtllm_mha");
  EXPECT_EQ(kByPrefill.info().name, "trtllm_mla_trtllm_mha_verify");
  EXPECT_EQ(Ints(kByDecode.info().page_sizes.begin(), kByDecode.info().page_sizes.end()),
            (Ints{32, 64}));
  const Hybrid other(kPrefill, kDecode, VerifyBy::kDecode);
  EXPECT_EQ(Ints(other.info().page_sizes.begin(), other.info().page_sizes.end()), (Ints{32, 64}));
}

TEST(Hybrid, AModeThatItsBackendLacksIsNotServed) {
  const CutlassMla cutlass;
  const auto verifies = [](const Hybrid& h) {
    return std::ranges::find(h.info().modes, ForwardMode::kTargetVerify) != h.info().modes.end();
  };
  EXPECT_FALSE(verifies(Hybrid(cutlass, kDecode, VerifyBy::kDecode)));
  EXPECT_TRUE(verifies(Hybrid(cutlass, kDecode, VerifyBy::kPrefill)));
}

TEST(Hybrid, AMetaIsTheChosenBackends) {
  PagedWorld w;
  ModelConfig m = model_of(64, 1, 256);
  const PagedBatch decode(ForwardMode::kDecode, {{3, 1}}, 64),
      extend(ForwardMode::kExtend, {{3, 5}}, 64);
  const Meta of_decode = w.exact(kByDecode, decode.view(), m);
  const Meta of_extend = w.exact(kByDecode, extend.view(), m);
  EXPECT_EQ(held(of_decode[TrtllmMla::kSeqLensK]), (Ints{4}));
  EXPECT_EQ(held(of_extend[TrtllmMha::kCuSeqlensK]), (Ints{0, 8}));
}

TEST(Hybrid, ForwardIsTheChosenBackends) {
  for (const ForwardMode mode : {ForwardMode::kDecode, ForwardMode::kExtend}) {
    PagedWorld w;
    const ModelConfig m = model_of(64, 2, 256);
    const Hybrid hybrid(kPrefill, kPrefill, VerifyBy::kDecode);
    const PagedBatch owned(mode, {{70, 1}, {3, 1}}, 64);
    const Meta meta = w.exact(hybrid, owned.view(), m);
    const Layer layer(w, "layer", m, 2, owned.pages());
    w.forward(hybrid, meta, {layer.io()});
    EXPECT_EQ(layer.results(2), layer.expected(owned));
  }
}

TEST(Hybrid, PagesThatOneOfThemLacksAreRefusedInEveryMode) {
  PagedWorld w;
  Meta meta;
  for (const ForwardMode mode : {ForwardMode::kDecode, ForwardMode::kExtend})
    EXPECT_EQ(ids(kByDecode.bind(w.arena, Limits::bucket(mode, 1, 1, model_of(16, 1, 64)), &meta)),
              (Ids{"backend.limits page_size"}));
}

TEST(Hybrid, SplitsByTheBatchAreThoseOfTheModesOwnPart) {
  const Backend& hybrid = *find_backend("flashinfer_flashattention_verify");
  const auto splits = [&](ForwardMode m) {
    return std::ranges::find(hybrid.info().batch_splits, m) != hybrid.info().batch_splits.end();
  };
  EXPECT_TRUE(splits(ForwardMode::kDecode));
  EXPECT_FALSE(splits(ForwardMode::kTargetVerify));
  EXPECT_FALSE(hybrid.info().window_with_encoder);
}

}  // namespace
}  // namespace shadowgraph::hybrid_test
