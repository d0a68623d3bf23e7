#include "attn/tree_mask.h"

#include "attn/finding_ids.h"
#include "backends/step_fixture.h"

namespace shadowgraph::tree_mask_test {
namespace {

TEST(TreeMask, ExactlyTheForestsOfParentsFirstPass) {
  // All masks of three tokens against the six ways to choose parents: -1, or an earlier token.
  std::vector<uint32_t> forests;
  for (int second = -1; second < 1; ++second) {
    for (int third = -1; third < 2; ++third) {
      const uint32_t a = 1, b = 2u | (second == 0 ? a : 0u);
      const uint32_t c = 4u | (third == 0 ? a : third == 1 ? b : 0u);
      forests.push_back(a | b << 3 | c << 6);
    }
  }
  for (uint32_t bits = 0; bits < 512; ++bits) {
    OwnedBatch b(ForwardMode::kTargetVerify, SeqLensKind::kPrefix, {2});
    b.spec.num_draft_tokens = 3;
    std::vector<Ints> tree(3);
    for (uint32_t i = 0; i < 9; ++i) tree[i / 3].push_back(static_cast<int32_t>(bits >> i & 1));
    b.set_trees({tree});
    EXPECT_EQ(check_trees(b).ok(), std::ranges::count(forests, bits) == 1) << bits;
  }
}

TEST(TreeMask, ThePrefixIsSeenByAll) {
  for (size_t pair = 0; pair < 2; ++pair) {
    OwnedBatch b(ForwardMode::kTargetVerify, SeqLensKind::kPrefix, {2});
    b.spec.num_draft_tokens = 2;
    b.set_trees({{{1, 0}, {1, 1}}});
    std::vector<uint8_t> mask(b.spec.custom_mask.begin(), b.spec.custom_mask.end());
    mask[4 + pair] = 0;
    b.spec.custom_mask = mask;
    EXPECT_EQ(ids(check_trees(b)), (Ids{"mask.tree custom_mask"}));
  }
}

TEST(TreeMask, AParentIsTheLatestDraftBeforeThatIsSeen) {
  OwnedBatch b(ForwardMode::kTargetVerify, SeqLensKind::kPrefix, {2});
  b.spec.num_draft_tokens = 4;
  b.set_trees({{{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 0}, {0, 0, 0, 1}}});
  const TreeMask mask(b.spec.custom_mask, b.extent(0));
  const Ints parents = {mask.parent(0), mask.parent(1), mask.parent(2), mask.parent(3)};
  EXPECT_EQ(parents, (Ints{-1, 0, 0, -1}));
}

TEST(TreeMask, EveryRequestsTreeIsLookedAt) {
  OwnedBatch b(ForwardMode::kTargetVerify, SeqLensKind::kPrefix, {2, 0, 3});
  b.spec.num_draft_tokens = 2;
  b.set_trees({{{1, 0}, {1, 1}}, {{1, 0}, {1, 0}}, {{1, 1}, {0, 1}}});
  const Status status = check_trees(b);
  EXPECT_EQ(ids(status), (Ids{"mask.tree custom_mask", "mask.tree custom_mask"}));
  EXPECT_EQ(status.findings()[0].where.row, 1);
  EXPECT_EQ(status.findings()[0].where.col, 1);
  EXPECT_EQ(status.findings()[1].where.row, 2);
  EXPECT_EQ(status.findings()[1].where.col, 0);
}

}  // namespace
}  // namespace shadowgraph::tree_mask_test
