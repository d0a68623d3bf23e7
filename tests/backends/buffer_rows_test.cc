#include "backends/fill/buffer_rows.h"

#include <gtest/gtest.h>

namespace shadowgraph::buffer_rows_test {
namespace {

constexpr auto kFamily = std::to_array<BufferInfo>(
    {{0, Role::kKeyLens}, {1, Role::kStored}, {0, Role::kLongestQuery}, {1, Role::kAllQueries}});

TEST(BufferRows, AFamilyGivesTheRowsThatABackendLacks) {
  constexpr auto kTable = with_family(
      kFamily,
      {field::rows(0, "seq_lens", ""), {1, Role::kStoredInWindow}, {1, Role::kLongestQuery}});
  const std::span<const BufferInfo> rows = kTable;
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].role, Role::kKeyLens);  // seq_lens has no role of its own
  EXPECT_EQ(rows[1].recorded, "seq_lens");
  EXPECT_EQ(rows[2].role, Role::kStoredInWindow);
  EXPECT_EQ(rows[3].buffer, 1);                  // a scalar
  EXPECT_EQ(rows[4].role, Role::kLongestQuery);  // scalar 0; buffer 0 is another thing
}

TEST(BufferRows, TheRoleSaysHowATraceRecordsABuffer) {
  EXPECT_EQ(recorded(0, Role::kKeyOffsets, "kv_indptr", "").shape, FieldShape::kIndptr);
  EXPECT_FALSE(recorded(0, Role::kKeyOffsets, "kv_indptr", "").of_queries);
  EXPECT_TRUE(recorded(0, Role::kKeyLens, "seq_lens", "").of_padding);
  EXPECT_EQ(recorded(0, Role::kLongestQuery, "max_q", "").rule, FieldRule::kBaked);
  EXPECT_EQ((BufferInfo{0, Role::kKeyLens}).shape, FieldShape::kNone);
}

}  // namespace
}  // namespace shadowgraph::buffer_rows_test
