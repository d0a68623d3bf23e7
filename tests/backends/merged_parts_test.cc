// How many partial results a query token's is merged from: what its error bound counts.
#include "backends/compose/two_batch_overlap.h"
#include "backends/paged/flash_attention.h"
#include "backends/step_fixture.h"

namespace shadowgraph::merged_parts_test {
namespace {

using enum ForwardMode;
using enum SeqLensKind;

LayerKind layer(int32_t window_left = -1, bool latent = false) {
  LayerKind kind;
  kind.params.causal = true;
  kind.params.window_left = window_left;
  kind.mla = latent;
  return kind;
}

ModelConfig model(LayerKind kind) {
  ModelConfig m;
  m.max_context_len = 64;
  m.layers = {kind};
  return m;
}

TEST(MergedParts, OfACascadeAreItsHalves) {
  const FlashAttention fa;
  ModelConfig m = model(layer());
  m.topk = 2, m.num_steps = 3, m.num_draft_tokens = 4;
  OwnedBatch draft(kDraftDecode, kPrefix, {5, 9});
  draft.spec.topk = 2, draft.spec.num_steps = 3, draft.spec.step = 1;
  EXPECT_EQ(fa.merged_parts(draft, Limits::exact(draft, m), layer()), Ints({2, 2, 2, 2}));
  OwnedBatch verify(kTargetVerify, kPrefix, {5});
  verify.spec.topk = 2, verify.spec.num_draft_tokens = 4;
  EXPECT_EQ(fa.merged_parts(verify, Limits::exact(verify, m), layer()), Ints({2, 2, 2, 2}));
  // A window reads one merged row a query.
  EXPECT_EQ(fa.merged_parts(verify, Limits::exact(verify, m), layer(3)), Ints({1, 1, 1, 1}));
}

TEST(MergedParts, OfARowThatIsOneCallAreOne) {
  const FlashAttention fa;
  OwnedBatch extend(kExtend, kPrefix, {5, 0}, {2, 1});
  const Limits limits = Limits::exact(extend, model(layer()));
  EXPECT_EQ(fa.merged_parts(extend, limits, layer()), Ints({1, 1, 1}));
}

TEST(MergedParts, OfTwoHalvesAreThoseOfEach) {
  const FlashAttention fa;
  const TwoBatchOverlap halves(fa);
  ModelConfig m = model(layer(-1, true));
  m.prefix_chunk_tokens = 8;
  // All together would be in chunks of two tokens; a half of one request, of eight.
  OwnedBatch extend(kExtend, kPrefix, {9, 3, 20}, {1, 1, 2});
  const Limits limits = Limits::exact(extend, m);
  ASSERT_EQ(limits.split_rows, 2);
  EXPECT_EQ(fa.merged_parts(extend, limits, layer(-1, true)), Ints({6, 3, 11, 11}));
  EXPECT_EQ(halves.merged_parts(extend, limits, layer(-1, true)), Ints({4, 2, 4, 4}));
}

}  // namespace
}  // namespace shadowgraph::merged_parts_test
