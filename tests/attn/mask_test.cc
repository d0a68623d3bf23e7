// THE binding test: the predicate attends() and the closed form kv_range() are two statements of
// one mask.
#include "attn/mask.h"

#include <gtest/gtest.h>

#include <climits>
#include <span>
#include <utility>

namespace shadowgraph::mask_test {
namespace {

constexpr int32_t kMax = INT32_MAX;

/// The set that the predicate describes must be one range; this is it.
KvRange range_of_predicate(const MaskShape& m, int64_t q) {
  KvRange r;
  bool ended = false;
  for (int32_t k = 0; k < m.kv_len; ++k) {
    if (!attends(m, q, k)) {
      ended = r.size() > 0;
      continue;
    }
    EXPECT_FALSE(ended) << "keys of query " << q << " are not one range";
    if (r.size() == 0) r.begin = k;
    r.end = k + 1;
  }
  return r;
}

/// q_len and kv_len 0..6, causal or not, both windows -1..6: visit(shape).
template <class Visit>
void for_each_shape(const Visit& visit) {
  for (int32_t q_len = 0; q_len <= 6; ++q_len) {
    for (int32_t kv_len = 0; kv_len <= 6; ++kv_len) {
      for (const bool causal : {false, true}) {
        for (int32_t left = -1; left <= 6; ++left) {
          for (int32_t right = -1; right <= 6; ++right)
            visit(MaskShape{q_len, kv_len, causal, left, right});
        }
      }
    }
  }
}

/// The same sizes, some windows, and what calls have beside them: chunks, padding, ranges.
template <class Visit>
void for_each_term(const Visit& visit) {
  static constexpr int32_t kOne[] = {1, 3}, kTwo[] = {0, 1, 3, 4};
  const std::span<const int32_t> all_ranges[] = {{}, kOne, kTwo};
  const auto with_terms = [&](MaskShape m) {
    for (const auto& [chunk, lookback] : {std::pair(0, 0), {1, 0}, {2, 0}, {2, 1}, {3, 2}}) {
      for (const int32_t first_key : {0, 1, 3}) {
        for (const std::span<const int32_t> ranges : all_ranges) {
          m.attention_chunk = chunk, m.chunk_lookback = lookback;
          m.first_key = first_key, m.bidirectional = ranges;
          visit(m);
        }
      }
    }
  };
  for (const bool causal : {false, true}) {
    for (int32_t q_len = 0; q_len <= 6; ++q_len) {
      for (const int32_t left : {-1, 0, 2})
        for (const int32_t right : {-1, 1}) with_terms({q_len, 5, causal, left, right});
    }
  }
}

std::string text(const MaskShape& m, int64_t q) {
  return "q_len " + std::to_string(m.q_len) + " kv_len " + std::to_string(m.kv_len) +
         (m.causal ? " causal" : "") + " left " + std::to_string(m.window_left) + " right " +
         std::to_string(m.window_right) + " q " + std::to_string(q);
}

void expect_range_of_predicate(const MaskShape& m) {
  for (int64_t q = 0; q < m.q_len; ++q)
    ASSERT_EQ(kv_range(m, q), range_of_predicate(m, q)) << text(m, q);
}

void expect_range_of_union(const MaskShape& m) {
  for (int64_t from = 0; from <= m.q_len; ++from) {
    for (int64_t to = from; to <= m.q_len; ++to) {
      KvRange all;
      for (int32_t k = 0; k < m.kv_len; ++k) {
        bool seen = false;
        for (int64_t q = from; q < to; ++q) seen = seen || attends(m, q, k);
        if (!seen) continue;
        if (all.size() == 0) all.begin = k;
        all.end = k + 1;
      }
      ASSERT_EQ(kv_range(m, from, to), all) << text(m, from) << " to " << to;
    }
  }
}

TEST(Mask, TheRangeIsTheSetOfThePredicate) {
  for_each_shape(expect_range_of_predicate);
  for_each_term(expect_range_of_predicate);
}

TEST(Mask, TheRangeOfManyQueriesIsTheUnionOfTheirs) {
  for_each_shape(expect_range_of_union);
  for_each_term(expect_range_of_union);
}

TEST(Mask, AlignedAtTheEndEveryQuerySeesTheSameKeys) {
  for_each_shape([](const MaskShape& m) {
    for (int64_t ahead = -8; ahead <= 14; ++ahead) {
      const MaskShape a = aligned(m, ahead);
      ASSERT_TRUE(a.window_left >= -1 && a.window_right >= -1);
      for (int64_t q = 0; q < m.q_len; ++q) {
        for (int64_t k = 0; k < m.kv_len; ++k) {
          const int64_t before = ahead + q - k;
          const bool sees = (!m.causal || before >= 0) &&
                            (m.window_left < 0 || before <= m.window_left) &&
                            (m.window_right < 0 || -before <= m.window_right);
          ASSERT_EQ(q < a.q_len && attends(a, q, k), sees)
              << text(m, q) << " k " << k << " ahead " << ahead;
        }
      }
    }
  });
}

// The predicate itself, against sentences and not against the code beside it.

TEST(Mask, WithoutCausalAndWindowEveryKeyIsSeen) {
  for (int64_t q = 0; q < 3; ++q) {
    for (int64_t k = 0; k < 5; ++k) EXPECT_TRUE(attends({3, 5, false, -1, -1}, q, k));
  }
}

TEST(Mask, KeysOutsideTheRequestAreNeverSeen) {
  EXPECT_FALSE(attends({3, 5, false, -1, -1}, 0, -1));
  EXPECT_FALSE(attends({3, 5, false, -1, -1}, 0, 5));
}

TEST(Mask, CausalIsBottomRight) {
  const MaskShape m = {3, 5, true, -1, -1};
  EXPECT_EQ(kv_range(m, 0), (KvRange{0, 3}));
  EXPECT_EQ(kv_range(m, 1), (KvRange{0, 4}));
  EXPECT_EQ(kv_range(m, 2), (KvRange{0, 5}));
  EXPECT_TRUE(attends(m, 0, 2));
  EXPECT_FALSE(attends(m, 0, 3));
}

/// fa.I-82.
TEST(Mask, ALengthThatIsOffMovesWhatEveryQuerySees) {
  const MaskShape right = {3, 9, true, 4, -1};
  for (int32_t off = -2; off <= 3; ++off) {
    MaskShape wrong = right;
    wrong.kv_len += off;
    for (int64_t q = 0; q < 3; ++q) {
      const KvRange seen = kv_range(right, q);
      EXPECT_EQ(kv_range(wrong, q), (KvRange{seen.begin + off, seen.end + off})) << text(wrong, q);
    }
  }
}

TEST(Mask, WindowZeroSeesOnlySelf) {
  for (int64_t q = 0; q < 3; ++q) {
    const auto self = static_cast<int32_t>(2 + q);
    EXPECT_EQ(kv_range({3, 5, false, 0, 0}, q), (KvRange{self, self + 1}));
    EXPECT_EQ(kv_range({3, 5, true, 0, -1}, q), (KvRange{self, self + 1}));
    for (int32_t k = 0; k < 5; ++k) EXPECT_EQ(attends({3, 5, true, 0, -1}, q, k), k == self);
  }
}

TEST(Mask, AWindowCountsTheKeysBesideTheQuery) {
  const MaskShape m = {1, 9, false, 3, -1};  // the query stands at 8
  EXPECT_EQ(kv_range(m, 0), (KvRange{5, 9}));
  EXPECT_TRUE(attends(m, 0, 5));
  EXPECT_FALSE(attends(m, 0, 4));
  EXPECT_EQ(kv_range({9, 9, false, -1, 2}, 3), (KvRange{0, 6}));
}

TEST(Mask, CausalIsWindowRightZero) {
  for_each_shape([](const MaskShape& m) {
    if (!m.causal) return;
    MaskShape other = m;
    other.causal = false, other.window_right = 0;
    for (int64_t q = 0; q < m.q_len; ++q) {
      if (m.window_right <= 0) {
        ASSERT_EQ(kv_range(m, q), kv_range(other, q)) << text(m, q);
      }
    }
  });
}

TEST(Mask, EmptyRowsAreAtTheTop) {
  // More queries than keys: the first q_len - kv_len rows stand before the first key.
  const MaskShape m = {5, 3, true, -1, -1};
  for (int64_t q = 0; q < 5; ++q)
    EXPECT_EQ(kv_range(m, q).size(), static_cast<int32_t>(std::max<int64_t>(0, q - 1)));
  EXPECT_EQ(kv_range(m, 0), KvRange{});
  EXPECT_EQ(kv_range(m, 0, 2), KvRange{});
}

TEST(Mask, ShiftingQueriesAndKeysTogetherChangesNothing) {
  // A chunk of a causal prefill: the row sees what it saw in the whole.
  for (int32_t left : {-1, 0, 2}) {
    const MaskShape whole = {6, 8, true, left, -1}, chunk = {2, 4, true, left, -1};
    for (int64_t q = 0; q < 2; ++q) EXPECT_EQ(kv_range(whole, q), kv_range(chunk, q));
  }
}

TEST(Mask, TheLargestLengthsDoNotOverflow) {
  const MaskShape decode = {1, kMax, true, kMax, kMax};
  EXPECT_EQ(kv_range(decode, 0), (KvRange{0, kMax}));
  EXPECT_EQ(kv_range({1, kMax, true, 0, -1}, 0), (KvRange{kMax - 1, kMax}));
  EXPECT_EQ(kv_range({kMax, 0, true, kMax, kMax}, 0), KvRange{});
  EXPECT_EQ(kv_range({kMax, 1, true, kMax, kMax}, kMax - 1), (KvRange{0, 1}));
  EXPECT_EQ(kv_range({kMax, kMax, false, kMax, kMax}, 0), (KvRange{0, kMax}));
  EXPECT_EQ(kv_range({kMax, kMax, false, 1, kMax}, kMax - 1), (KvRange{kMax - 2, kMax}));
  EXPECT_TRUE(attends(decode, 0, kMax - 1));
  EXPECT_FALSE(attends({kMax, 1, true, kMax, kMax}, 0, 0));
  EXPECT_TRUE(attends({kMax, kMax, false, kMax, kMax}, kMax - 1, 0));
}

TEST(Mask, TheShapeOfALayerTakesItsFields) {
  AttentionParams p;
  p.causal = true, p.window_left = 3, p.window_right = 4;
  const MaskShape m = MaskShape::of(p, 5, 6);
  EXPECT_EQ(m.q_len, 5);
  EXPECT_EQ(m.kv_len, 6);
  EXPECT_TRUE(m.causal);
  EXPECT_EQ(m.window_left, 3);
  EXPECT_EQ(m.window_right, 4);
}

// Terms of a call, in sentences.

TEST(Mask, AQuerySeesItsChunkAndThoseThatItLooksBackAt) {
  MaskShape m{10, 10, true, -1, -1};
  m.attention_chunk = 4;
  EXPECT_EQ(kv_range(m, 5), (KvRange{4, 6}));
  m.chunk_lookback = 1;
  EXPECT_EQ(kv_range(m, 5), (KvRange{0, 6}));
  EXPECT_EQ(kv_range(m, 9), (KvRange{4, 10}));
  m.causal = false;
  EXPECT_EQ(kv_range(m, 5), (KvRange{0, 8}));
}

TEST(Mask, TokensOfARangeSeeEachOtherAndOthersDoNot) {
  const int32_t range[] = {2, 4};
  MaskShape m{8, 8, true, 1, -1};
  m.bidirectional = range;
  EXPECT_EQ(kv_range(m, 1), (KvRange{0, 2}));
  EXPECT_EQ(kv_range(m, 2), (KvRange{1, 5}));
  EXPECT_EQ(kv_range(m, 4), (KvRange{2, 5}));
  EXPECT_EQ(kv_range(m, 5), (KvRange{4, 6}));
}

TEST(Mask, PaddingAtTheLeftIsSeenByNobody) {
  MaskShape m{4, 4, true, -1, -1};
  m.first_key = 2;
  EXPECT_EQ(kv_range(m, 1), KvRange());
  EXPECT_EQ(kv_range(m, 3), (KvRange{2, 4}));
}

}  // namespace
}  // namespace shadowgraph::mask_test
