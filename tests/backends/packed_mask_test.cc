// Packed masks: bits that a window and a tree hide, for lists that do not begin at the first key.
#include "backends/fill/packed_mask.h"

#include <gtest/gtest.h>

#include <vector>

namespace shadowgraph::packed_mask_test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes packed(const PackedMask& mask) {
  Bytes bytes(static_cast<size_t>(mask.bytes()), 0xa5);
  mask.write(bytes);
  return bytes;
}
AttentionParams window(int32_t left, bool causal = true) {
  AttentionParams p;
  p.causal = causal, p.window_left = left;
  return p;
}

TEST(PackedMask, OfAPrefixHasTheBitsOfEveryQuerysWindow) {
  // Five keys before four queries, of which the list has the last two: 11 01 00 00.
  EXPECT_EQ(packed({{5, 4, 9}, {3, 5}, window(2), {}}), Bytes{0x0b});
  EXPECT_EQ(packed({{1, 2, 3}, {0, 1}, window(2), {}}), Bytes{0x03});
  EXPECT_EQ(packed({{5, 4, 9}, {5, 5}, window(0), {}}), Bytes{});
}

/// fi.I-43.
TEST(PackedMask, OfAPrefixARowEndsInOnesAndHasNoMoreThanTheRowBefore) {
  for (int32_t prefix = 1; prefix < 20; ++prefix)
    for (int32_t left = 0; left < 7; ++left) {
      const KvRange keys{std::max(prefix - left, 0), prefix};
      const PackedMask mask{{prefix, 5, prefix + 5}, keys, window(left), {}};
      const Bytes bytes = packed(mask);
      int32_t before = keys.size();
      for (int32_t q = 0; q < 5; ++q) {
        int32_t ones = 0;
        for (int32_t k = 0; k < keys.size(); ++k) {
          const auto bit = static_cast<size_t>(q * keys.size() + k);
          const bool seen = (bytes[bit / 8] >> bit % 8 & 1) != 0;
          ASSERT_TRUE(seen || ones == 0) << prefix << " " << left << " " << q << " " << k;
          ones += seen ? 1 : 0;
        }
        ASSERT_LE(ones, before) << prefix << " " << left << " " << q;
        before = ones;
      }
    }
}

TEST(PackedMask, OfAChainIsCausal) {
  // 111100 111110 111111
  EXPECT_EQ(packed({{3, 3, 6}, {0, 6}, window(-1), {}}), (Bytes{0xcf, 0xf7, 0x03}));
  // A window of its own and one key: 1100 0110 0011, from key 2 on.
  EXPECT_EQ(packed({{3, 3, 6}, {2, 6}, window(1), {}}), (Bytes{0x63, 0x0c}));
  EXPECT_EQ(packed({{1, 2, 3}, {0, 3}, window(-1, false), {}}), Bytes{0x3f});
}

TEST(PackedMask, OfATreeHasDraftsAtTheirDepth) {
  // Two keys, then a root, its child, and another root: the last stands beside the first.
  const Bytes tree = {1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0, 1};
  const RequestExtent e{2, 3, 5};
  const PackedMask all{e, {0, 5}, window(-1), TreeMask(tree, e)};
  EXPECT_EQ(packed(all), (Bytes{0xe7, 0x4d}));  // 11100 11110 11001
  const PackedMask near{e, {1, 5}, window(1), TreeMask(tree, e)};
  EXPECT_EQ(packed(near), (Bytes{0x63, 0x09}));  // 1100 0110 1001
}

/// fi.I-53.
TEST(PackedMask, OfAnyListIsWhatEveryPairSays) {
  for (int32_t prefix = 0; prefix < 20; ++prefix)
    for (int32_t q_len = 0; q_len < 5; ++q_len)
      for (int32_t left = -1; left < 6; ++left) {
        const int32_t kv_len = prefix + q_len;
        const KvRange keys{left < 0 ? 0 : std::max(prefix - left, 0), kv_len};
        const PackedMask mask{{prefix, q_len, kv_len}, keys, window(left), {}};
        const Bytes bytes = packed(mask);
        const MaskShape shape = MaskShape::of(mask.params, q_len, kv_len);
        for (int32_t q = 0; q < q_len; ++q)
          for (int32_t k = keys.begin; k < keys.end; ++k) {
            const auto bit = static_cast<size_t>(q * keys.size() + k - keys.begin);
            ASSERT_EQ(bytes[bit / 8] >> bit % 8 & 1, attends(shape, q, k));
          }
        for (int64_t bit = mask.bits(); bit < 8 * mask.bytes(); ++bit)
          ASSERT_EQ(bytes.back() >> bit % 8, 0);
      }
}

}  // namespace
}  // namespace shadowgraph::packed_mask_test
