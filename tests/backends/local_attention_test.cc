#include "backends/fill/local_attention.h"

#include <gtest/gtest.h>

#include <vector>

namespace shadowgraph::local_attention_test {
namespace {

std::vector<LocalRow> rows(int32_t prefix, int32_t q_len, int32_t chunk) {
  std::vector<LocalRow> all;
  for_each_local_row({prefix, q_len, prefix + q_len}, chunk,
                     [&](const LocalRow& row) { all.push_back(row); });
  return all;
}

TEST(LocalAttention, ARowForEachChunkThatIsTouched) {
  EXPECT_EQ(rows(2, 4, 4), (std::vector<LocalRow>{{2, 4, 0}, {2, 2, 4}}));
  EXPECT_EQ(rows(7, 10, 4), (std::vector<LocalRow>{{1, 4, 4}, {4, 4, 8}, {4, 4, 12}, {1, 1, 16}}));
  EXPECT_EQ(rows(4, 5, 4), (std::vector<LocalRow>{{4, 4, 4}, {1, 1, 8}}));
  EXPECT_TRUE(rows(4, 0, 4).empty());
}

TEST(LocalAttention, EveryQuerySeesItsChunkUpToItself) {
  for (int32_t chunk = 1; chunk <= 6; ++chunk) {
    for (int32_t prefix = 0; prefix <= 9; ++prefix) {
      for (int32_t q_len = 0; q_len <= 9; ++q_len) {
        int32_t position = prefix;
        for (const LocalRow& row : rows(prefix, q_len, chunk)) {
          ASSERT_GE(row.q_len, 1);
          for (int32_t q = 0; q < row.q_len; ++q, ++position) {
            ASSERT_EQ(row.first_key, position / chunk * chunk);
            ASSERT_EQ(row.first_key + row.kv_len - row.q_len + q, position);
          }
        }
        ASSERT_EQ(position, prefix + q_len);
      }
    }
  }
}

TEST(LocalAttention, QueriesBeforeTheFirstKeySeeNothing) {
  EXPECT_EQ(rows(-3, 4, 4), (std::vector<LocalRow>{{4, 1, 0}}));
  EXPECT_EQ(rows(-1, 4, 2), (std::vector<LocalRow>{{3, 2, 0}, {1, 1, 2}}));
  EXPECT_EQ(rows(-2, 2, 4), (std::vector<LocalRow>{{2, 0, 0}}));
}

TEST(LocalAttention, ChunksNearTheLargestLength) {
  EXPECT_EQ(rows(INT32_MAX - 2, 2, 1 << 30), (std::vector<LocalRow>{{2, (1 << 30) - 1, 1 << 30}}));
}

TEST(LocalAttention, NoRequestsHaveMoreRowsThanTheBound) {
  for (int32_t chunk = 1; chunk <= 5; ++chunk) {
    for (int32_t a = 0; a <= 8; ++a) {
      for (int32_t b = 0; b <= 8; ++b) {
        for (int32_t at = 0; at < chunk * chunk; ++at) {
          const size_t count =
              rows(at / chunk, a, chunk).size() + rows(at % chunk, b, chunk).size();
          ASSERT_LE(count, static_cast<size_t>(max_local_rows(2, a + b, chunk)));
        }
      }
    }
  }
  EXPECT_EQ(max_local_rows(8, 8, 4), 8);  // a decode has a row each
}

}  // namespace
}  // namespace shadowgraph::local_attention_test
