// Triton's metadata, example by example.
#include "backends/lists/triton.h"

#include "attn/tree_mask.h"
#include "backends/step_fixture.h"
#include "launch/triton_launch.h"

namespace shadowgraph::triton_test {
namespace {

using enum ForwardMode;
using enum SeqLensKind;

const Triton kTriton;

/// A layer that sees all, and one with a window.
ModelConfig model(int32_t window_left = -1) {
  ModelConfig m;
  m.max_context_len = 64;
  m.layers.resize(window_left >= 0 ? 2 : 1);
  for (LayerKind& k : m.layers) k.params.num_qo_heads = k.params.num_kv_heads = 8;
  m.layers.back().params.window_left = window_left;
  return m;
}

/// The metadata of one fill.
class Filled : public BoundStep {
 public:
  Filled(const ForwardBatch& batch, const Limits& limits) : BoundStep(kTriton, limits) {
    EXPECT_EQ(fill(batch).to_string(), "ok");
  }
  Filled(const ForwardBatch& batch, const ModelConfig& m)
      : Filled(batch, Limits::exact(batch, m)) {}

  /// Row i of a list.
  Ints list(const CsrIds& ids, int64_t i) const {
    const Ints indptr = ints(static_cast<size_t>(ids.indptr));
    const Longs all = slots(static_cast<size_t>(ids.indices));
    const auto at = static_cast<size_t>(i);
    return {all.begin() + indptr[at], all.begin() + indptr[at + 1]};
  }
  std::vector<uint8_t> mask() const {
    const Buffer& b = meta[Triton::kCustomMask];
    const auto* bytes = reinterpret_cast<const uint8_t*>(b.data);
    return {bytes, bytes + slots(Triton::kMaskIndptr).back()};
  }
};

Ints numbers(int32_t first, int32_t end) {
  Ints all(static_cast<size_t>(end - first));
  std::iota(all.begin(), all.end(), first);
  return all;
}
/// Request i's token t lies in slot 100 (i + 1) + t.
void set_hundreds(OwnedBatch* b, int32_t width = 64) {
  std::vector<Ints> rows;
  for (int32_t i = 1; i <= static_cast<int32_t>(b->lens.size()); ++i)
    rows.push_back(numbers(100 * i, 100 * i + width));
  b->set_rows(rows, width);
}

TEST(Triton, ADecodeListsItsKeysAndAWindowOneMoreThanItsRadius) {
  OwnedBatch b(kDecode, kFull, {5, 1, 3});
  set_hundreds(&b);
  const Filled s(b, model(2));
  EXPECT_EQ(s.ints(Triton::kKvIndptr), (Ints{0, 5, 6, 9}));
  EXPECT_EQ(s.list(Triton::kKv, 0), numbers(100, 105));
  EXPECT_EQ(s.list(Triton::kKv, 1), Ints{200});
  EXPECT_EQ(s.ints(Triton::kWindowKvIndptr), (Ints{0, 3, 4, 7}));
  EXPECT_EQ(s.list(Triton::kWindowKv, 0), numbers(102, 105));
  EXPECT_EQ(s.list(Triton::kWindowKv, 2), numbers(300, 303));
  EXPECT_EQ(s.slots(Triton::kOutCacheLoc), (Longs{104, 200, 302}));
  EXPECT_FALSE(s.meta.has(Triton::kQoIndptr) || s.meta.has(Triton::kCustomMask));
}

TEST(Triton, AWindowOfNothingIsTheTokenItself) {
  OwnedBatch decode(kDecode, kFull, {5}), extend(kExtend, kFull, {5}, {2});
  set_hundreds(&decode), set_hundreds(&extend);
  EXPECT_EQ(Filled(decode, model(0)).list(Triton::kWindowKv, 0), Ints{104});
  const Filled s(extend, model(0));
  EXPECT_EQ(s.ints(Triton::kWindowKvIndptr), (Ints{0, 0}));
  EXPECT_EQ(s.ints(Triton::kWindowKvOffsets), Ints{3});
}

TEST(Triton, PaddingHasTheFillsKeysInSlotZero) {
  OwnedBatch b(kDecode, kFull, {5, 2});
  set_hundreds(&b);
  ModelConfig m = model(2);
  m.seq_len_fill = 4;
  const Filled s(b, Limits::bucket(kDecode, 4, 1, m));
  EXPECT_EQ(s.ints(Triton::kKvIndptr), (Ints{0, 5, 7, 11, 15}));
  EXPECT_EQ(s.list(Triton::kKv, 3), Ints(4, 0));
  EXPECT_EQ(s.list(Triton::kWindowKv, 3), Ints(3, 0));
  EXPECT_EQ(s.slots(Triton::kOutCacheLoc), (Longs{104, 201, 0, 0}));
}

TEST(Triton, SplitsAreThoseOfEachListsOwnLengths) {
  OwnedBatch b(kDecode, kFull, {38, 40, 7, 12});
  set_hundreds(&b);
  ModelConfig m = model(8);
  for (LayerKind& k : m.layers) k.params.num_kv_heads = 2;
  const Filled s(b, m);
  EXPECT_EQ(s.ints(Triton::kNumKvSplits), (Ints{8, 8, 2, 3}));
  EXPECT_EQ(s.ints(Triton::kWindowNumKvSplits), (Ints{5, 5, 4, 5}));
  // Padding is a row, too.
  const Filled padded(b, Limits::bucket(kDecode, 8, 1, m));
  EXPECT_EQ(padded.ints(Triton::kNumKvSplits), (Ints{8, 8, 2, 3, 1, 1, 1, 1}));
}

TEST(Triton, ScratchHasThePartialResultsOfTheWidestLayer) {
  OwnedBatch b(kDecode, kFull, {5, 1, 3});
  set_hundreds(&b);
  ModelConfig m = model(2);
  m.layers[0].params.num_qo_heads = 4, m.layers[0].params.head_dim_vo = 16;
  m.layers[1].params.num_qo_heads = 8, m.layers[1].params.head_dim_vo = 4;
  m.split.max_splits = 5;
  const Filled s(b, m);
  EXPECT_EQ(s.meta[Triton::kAttnLogits].shape, (std::vector<int64_t>{3, 8, 5, 16}));
  EXPECT_EQ(s.meta[Triton::kAttnLogits].granule, 4);
  EXPECT_EQ(s.meta[Triton::kAttnLse].shape, (std::vector<int64_t>{3, 8, 5}));
}

TEST(Triton, AnExtendListsItsPrefixAlone) {
  for (const ForwardMode mode : {kExtend, kMixed, kSplitPrefill, kDllmExtend}) {
    OwnedBatch b(mode, kFull, {9, 4, 6}, {4, 4, 1});
    set_hundreds(&b);
    const Filled s(b, model(2));
    EXPECT_EQ(s.ints(Triton::kKvIndptr), (Ints{0, 5, 5, 10}));
    EXPECT_EQ(s.list(Triton::kKv, 0), numbers(100, 105));
    EXPECT_EQ(s.ints(Triton::kQoIndptr), (Ints{0, 4, 8, 9}));
    EXPECT_EQ(s.meta.scalars[Triton::kMaxExtendLen], 4);
    EXPECT_EQ(s.ints(Triton::kWindowKvIndptr), (Ints{0, 2, 2, 4}));
    EXPECT_EQ(s.list(Triton::kWindowKv, 0), numbers(103, 105));
    EXPECT_EQ(s.ints(Triton::kWindowKvOffsets), (Ints{3, 0, 3}));
    EXPECT_FALSE(s.meta.has(Triton::kNumKvSplits) || s.meta.has(Triton::kCustomMask));
  }
}

/// fa.I-94.
TEST(Triton, PaddingFitsBesideTheKeysOfABatch) {
  OwnedBatch two(kDecode, kFull, {1, 6}), one(kDecode, kFull, {6});
  set_hundreds(&two), set_hundreds(&one);
  ModelConfig m = model(2);
  m.seq_len_fill = 5;
  const Filled s(one, Limits::exact(two, m));
  EXPECT_EQ(s.ints(Triton::kKvIndptr), (Ints{0, 6, 11}));
}

TEST(Triton, ADraftExtendListsItsPrefixWhateverSeqLensMean) {
  for (const ForwardMode mode : {kDraftExtend, kDraftExtendV2}) {
    OwnedBatch full(mode, kFull, {10, 8}, {4, 4}), prefix(mode, kPrefix, {6, 4}, {4, 4});
    for (OwnedBatch* b : {&full, &prefix}) {
      set_hundreds(b);
      const Filled s(*b, model());
      EXPECT_EQ(s.ints(Triton::kKvIndptr), (Ints{0, 6, 10}));
      EXPECT_EQ(s.ints(Triton::kQoIndptr), (Ints{0, 4, 8}));
    }
  }
}

TEST(Triton, PaddingOfADraftExtendHasQueriesAndNoPrefix) {
  OwnedBatch b(kDraftExtendV2, kFull, {10, 8}, {3, 2});
  set_hundreds(&b);
  const Filled s(b, Limits::bucket(kDraftExtendV2, 4, 3, model(2)));
  EXPECT_EQ(s.ints(Triton::kKvIndptr), (Ints{0, 7, 13, 13, 13}));
  EXPECT_EQ(s.ints(Triton::kQoIndptr), (Ints{0, 3, 5, 8, 11}));
  EXPECT_EQ(s.ints(Triton::kWindowKvOffsets), (Ints{5, 4, 0, 0}));
}

TEST(Triton, AGraphHasTheQueriesOfItsBucket) {
  BoundStep s(kTriton, Limits::bucket(kDraftExtendV2, 4, 3, model()));
  EXPECT_EQ(s.meta.scalars[Triton::kMaxExtendLen], 3);
}

/// L = [3, 2], two branches of three tokens: what each step lists.
/// fi.I-24.
TEST(Triton, ABranchIsThePrefixAndItsOwnTokens) {
  const Ints indptrs[] = {{0, 4, 8, 11, 14}, {0, 5, 10, 14, 18}};
  for (int32_t step = 0; step < 2; ++step) {
    OwnedBatch b(kDraftDecode, kPrefix, {3, 2});
    set_hundreds(&b, 12);
    b.set_loc({103, 104, 105, 106, 107, 108, 202, 203, 204, 205, 206, 207});
    b.spec = {.topk = 2, .num_steps = 3, .step = step, .custom_mask = {}};
    ModelConfig m = model();
    m.topk = 2, m.num_steps = 3;
    const Filled s(b, m);
    EXPECT_EQ(s.ints(Triton::kKvIndptr), indptrs[step]);
    const Ints last[] = {{100, 101, 102, 106}, {100, 101, 102, 106, 107}};
    EXPECT_EQ(s.list(Triton::kKv, 1), last[step]);
    EXPECT_EQ(s.list(Triton::kKv, 3).back(), 205 + step);
    EXPECT_EQ(s.slots(Triton::kOutCacheLoc),
              (Longs{103 + step, 106 + step, 202 + step, 205 + step}));
  }
}

TEST(Triton, AWindowOfABranchMayEndInThePrefixOrInTheBranch) {
  const std::vector<Ints> wants = {{102, 106}, {106, 107}, {107, 108}};
  for (int32_t step = 0; step < 3; ++step) {
    OwnedBatch b(kDraftDecode, kPrefix, {3});
    set_hundreds(&b, 12);
    b.set_loc({103, 104, 105, 109, 106, 107, 108, 110});
    b.spec = {.topk = 2, .num_steps = 4, .step = step, .custom_mask = {}};
    ModelConfig m = model(1);
    m.topk = 2, m.num_steps = 4;
    const Filled s(b, m);
    EXPECT_EQ(s.list(Triton::kWindowKv, 1), wants[static_cast<size_t>(step)]);
  }
}

/// fa.I-95.
TEST(Triton, PaddingOfADraftHasAListForEachBranch) {
  OwnedBatch b(kDraftDecode, kPrefix, {3});
  set_hundreds(&b, 12);
  b.set_loc({103, 104, 105, 106});
  b.spec = {.topk = 2, .num_steps = 2, .step = 0, .custom_mask = {}};
  ModelConfig m = model(1);
  m.topk = 2, m.num_steps = 2;
  const Filled s(b, Limits::bucket(kDraftDecode, 2, 1, m));
  EXPECT_EQ(s.ints(Triton::kKvIndptr), (Ints{0, 4, 8, 10, 12}));
  EXPECT_EQ(s.list(Triton::kKv, 3), Ints(2, 0));
  EXPECT_EQ(s.ints(Triton::kWindowKvIndptr), (Ints{0, 2, 4, 6, 8}));
  EXPECT_EQ(s.ints(Triton::kNumKvSplits).size(), 4U);
}

TEST(Triton, AChainsTokensSeeThoseBeforeThem) {
  OwnedBatch b(kTargetVerify, kPrefix, {2, 0});
  b.spec.num_draft_tokens = 2;
  set_hundreds(&b);
  const Filled s(b, model(1));
  EXPECT_EQ(s.ints(Triton::kKvIndptr), (Ints{0, 2, 2}));
  EXPECT_EQ(s.slots(Triton::kMaskIndptr), (Longs{0, 8, 12}));
  EXPECT_EQ(s.mask(), (std::vector<uint8_t>{1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(s.ints(Triton::kDepths), (Ints{0, 1, 0, 1}));
  EXPECT_EQ(s.ints(Triton::kWindowKvIndptr), (Ints{0, 1, 1}));
  EXPECT_EQ(s.ints(Triton::kWindowKvOffsets), (Ints{1, 0}));
}

TEST(Triton, ATreesMaskIsCopiedAndItsTokensStandAtTheirDepths) {
  OwnedBatch b(kTargetVerify, kPrefix, {2, 1});
  b.spec.num_draft_tokens = 3, b.spec.topk = 2;
  set_hundreds(&b);
  b.set_trees({{{1, 0, 0}, {1, 1, 0}, {1, 0, 1}}, {{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}});
  ModelConfig m = model(1);
  m.topk = 2, m.num_draft_tokens = 3;
  const Filled s(b, Limits::bucket(kTargetVerify, 3, 3, m));
  std::vector<uint8_t> want = b.mask;
  want.insert(want.end(), {1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1});  // padding's: a chain
  EXPECT_EQ(s.mask(), want);
  EXPECT_EQ(s.slots(Triton::kMaskIndptr), (Longs{0, 15, 27, 39}));
  EXPECT_EQ(s.ints(Triton::kDepths), (Ints{0, 1, 1, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(s.ints(Triton::kQoIndptr), (Ints{0, 3, 6, 9}));
}

TEST(Triton, WindowListsAreInTheWindowsPool) {
  OwnedBatch b(kDecode, kFull, {5});
  set_hundreds(&b);
  b.set_swa(200, 1);
  ModelConfig m = model(1);
  m.swa_pool = true;
  const Filled s(b, m);
  EXPECT_EQ(s.list(Triton::kKv, 0), numbers(100, 105));
  EXPECT_EQ(s.list(Triton::kWindowKv, 0), (Ints{200 - 103, 200 - 104}));
  EXPECT_EQ(s.slots(Triton::kSwaOutCacheLoc), Longs{200 - 104});
}

TEST(Triton, ModelsThatItDoesNotServeAreRefusedWithAllThatIsWrong) {
  ModelConfig m = model(3);
  m.layers.push_back(m.layers[1]);
  m.layers[2].params.window_left = 4;
  m.layers[0].cross = true, m.max_encoder_len = 2;
  m.split.max_splits = 0, m.split.num_sms = 0, m.split.fixed_size = -1;
  SimDevice device;
  const Arena arena(device, 1 << 20);
  Meta meta;
  const Status status = kTriton.bind(arena, Limits::bucket(kDecode, 2, 1, m), &meta);
  EXPECT_EQ(status.findings().size(), 6U) << status.to_string();
  for (const Finding& f : status.findings()) EXPECT_EQ(f.id, "backend.limits");
  EXPECT_EQ(arena.used(), 0U);
}

TEST(Triton, AMaskThatIsNoTreeIsRefused) {
  OwnedBatch b(kTargetVerify, kPrefix, {2});
  b.spec.num_draft_tokens = 2;
  set_hundreds(&b);
  b.set_trees({{{1, 1}, {1, 1}}});
  BoundStep s(kTriton, Limits::exact(b, model()));
  const Status status = s.fill(b);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, "mask.tree");
}

TEST(Triton, MergesSplitsThatHaveKeys) {
  OwnedBatch b(kDecode, kFull, {100, 200, 20});
  ModelConfig m = model(40);
  m.split.fixed_size = 13;
  const Limits limits = Limits::exact(b, m);
  // 8 splits of 32 keys, 16 of 32, 2 of 32.
  EXPECT_EQ(kTriton.merged_parts(b, limits, m.layers[0]), (Ints{4, 7, 1}));
  // 4 splits of 32 of the window's 41.
  EXPECT_EQ(kTriton.merged_parts(b, limits, m.layers[1]), (Ints{2, 2, 1}));
}

TEST(Triton, MergesAPrefixAndTheStepsOwnTokens) {
  const OwnedBatch b(kExtend, kFull, {5, 3}, {2, 3});
  const ModelConfig m = model(0);
  const Limits limits = Limits::exact(b, m);
  EXPECT_EQ(kTriton.merged_parts(b, limits, m.layers[0]), (Ints{2, 2, 1, 1, 1}));
  EXPECT_EQ(kTriton.merged_parts(b, limits, m.layers[1]), (Ints{1, 1, 1, 1, 1}));
}

TEST(TritonSplits, AreWholePanelsOfKeys) {
  EXPECT_EQ(triton_split_keys(100, 8), 32);
  EXPECT_EQ(triton_split_keys(200, 8), 32);
  EXPECT_EQ(triton_split_keys(257, 8), 64);
}

}  // namespace
}  // namespace shadowgraph::triton_test
