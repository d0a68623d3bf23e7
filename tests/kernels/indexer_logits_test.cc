#include "kernels/sparse/indexer_logits.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "check/bounds/array_judge.h"
#include "check/bounds/indexer_bound.h"
#include "check/bounds/linear_bound.h"
#include "kernels/footprint_elements.h"
#include "kernels/small_indexer.h"

namespace shadowgraph::indexer_logits_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Largest error of its bound; infinite where a score should not be there, or should.
double worst(SmallIndexer& right, const SmallIndexer& got) {
  const IndexerLogits call = right.call();
  ArrayJudge judge("num.bound", "logits");
  for (int64_t t = 0; t < call.tokens(); ++t)
    for (int64_t s = 0; s < right.width; ++s) {
      const bool seen = s >= call.first(t) && s < call.last(t);
      if (!seen) {
        judge.take(t, s, got.logit(t, s), -kInf, 0);
        continue;
      }
      const IndexScore score = index_score(call, t, s);
      const double bound =
          with_rounding(score.score, score_bound(score, right.heads, {}), DType::kF32);
      judge.take(t, s, got.logit(t, s), score.score, bound);
    }
  return judge.worst();
}

TEST(IndexerLogits, ScoresAreWithinTheBoundAndNotFarFromIt) {
  for (const bool paged : {true, false}) {
    SmallIndexer s;
    s.paged = paged;
    SmallIndexer after = s;
    ASSERT_EQ(after.run(), "ok");
    EXPECT_LE(worst(s, after), 1);
    EXPECT_GT(worst(s, after), 0.9);
  }
}

TEST(IndexerLogits, TheJudgeSeesASlip) {
  const std::function<void(SmallIndexer&)> slips[] = {
      [](SmallIndexer& s) { s.ke[1] = 129; },
      [](SmallIndexer& s) { s.ks[2] = 2; },
      [](SmallIndexer& s) { std::swap(s.rows[0], s.rows[1]); },
      [](SmallIndexer& s) { std::swap_ranges(&s.table[0], &s.table[4], &s.table[4]); },
      [](SmallIndexer& s) { s.weights[14] ^= std::byte{1}; },
      [](SmallIndexer& s) { s.q[3 * kIndexDim + 5] ^= std::byte{0x80}; },
      [](SmallIndexer& s) { s.pages[6 * kIndexPageBytes + 64 * 128 + 6] ^= std::byte{1}; },
  };
  for (const auto& slip : slips) {
    SmallIndexer right, after;
    slip(after);
    ASSERT_EQ(after.run(), "ok");
    EXPECT_GT(worst(right, after), 1) << &slip - slips;
  }
}

TEST(IndexerLogits, ThreadsAndNeighboursDoNotMatter) {
  SmallIndexer one;
  one.options.num_threads = 1;
  ASSERT_EQ(one.run(), "ok");
  for (const int threads : {2, 3, 7}) {
    SmallIndexer more;
    more.options.num_threads = threads;
    ASSERT_EQ(more.run(), "ok");
    EXPECT_EQ(more.logits, one.logits);
  }
  for (size_t t = 0; t < one.ke.size(); ++t) {
    SmallIndexer alone;
    const auto part = [&](Bytes* all, size_t size) {
      *all = Bytes(all->begin() + static_cast<int64_t>(t * size),
                   all->begin() + static_cast<int64_t>((t + 1) * size));
    };
    part(&alone.q, 3 * kIndexDim), part(&alone.weights, 3 * 4), part(&alone.logits, 200 * 4);
    alone.rows = {one.rows[t]}, alone.ks = {one.ks[t]}, alone.ke = {one.ke[t]};
    ASSERT_EQ(alone.run(), "ok");
    for (int64_t s = 0; s < one.width; ++s)
      EXPECT_EQ(alone.logit(0, s), one.logit(static_cast<int64_t>(t), s));
  }
}

TEST(IndexerLogits, InstructionSetsDoNotMatter) {
  for (const int64_t heads : {1, 3, 7}) {
    SmallIndexer first(heads);
    first.heads = heads;
    Rng rng(static_cast<uint64_t>(heads));
    first.q = random_e4m3(rng, first.tokens() * heads * kIndexDim);
    first.weights = random_f32(rng, first.tokens() * heads);
    SmallIndexer of(first);
    ASSERT_EQ(first.run(), "ok");
    EXPECT_LE(worst(of, first), 1);
    for (const std::string_view isa : available_isas()) {
      SmallIndexer again(of);
      again.options.isa = isa;
      ASSERT_EQ(again.run(), "ok");
      EXPECT_EQ(again.logits, first.logits) << isa;
    }
  }
  SmallIndexer unknown;
  unknown.options.isa = "tomorrow's";
  EXPECT_NE(unknown.run(), "ok");
}

/// The same keys one after the other: and so it is whatever the place of a page.
TEST(IndexerLogits, PagesAreOnlyAPlace) {
  SmallIndexer pages;
  pages.rows = {1, 1, 1, 1, 1};
  SmallIndexer packed = pages;
  packed.paged = false;
  const int64_t ids[] = {2, 6, 3};
  for (int64_t s = 0; s < 192; ++s) {
    const std::byte* page = pages.pages.data() + ids[s / 64] * kIndexPageBytes;
    std::memcpy(packed.k.data() + s * 128, page + s % 64 * 128, 128);
    std::memcpy(packed.k_scale.data() + s * 4, page + 64 * 128 + s % 64 * 4, 4);
  }
  ASSERT_EQ(pages.run(), "ok");
  ASSERT_EQ(packed.run(), "ok");
  EXPECT_EQ(pages.logits, packed.logits);
}

TEST(IndexerLogits, AScoreByHand) {
  SmallIndexer s;
  s.paged = false, s.heads = 2, s.ke = {1}, s.ks = {}, s.rows = {};
  std::fill(s.q.begin(), s.q.end(), std::byte{0});
  std::fill(s.k.begin(), s.k.end(), std::byte{0});
  s.q[0] = std::byte{0x38}, s.q[128] = std::byte{0xb8};  // 1 and -1
  s.k[0] = std::byte{0x40};                              // 2
  s.weights = bytes_of(std::vector<float>{10, 100});
  s.k_scale = bytes_of(std::vector<float>(192, 0.5F));
  ASSERT_EQ(s.run(), "ok");
  EXPECT_EQ(s.logit(0, 0), 10);  // the second head's dot is below 0
  EXPECT_EQ(s.logit(0, 1), -kInf);
}

TEST(IndexerLogits, WhatItDoesNotReadHasNoInfluenceAndItWritesWhatItSays) {
  for (const bool paged : {true, false}) {
    SmallIndexer plain(3), poisoned(3);
    plain.paged = poisoned.paged = paged;
    const Footprint spans = indexer_logits_footprint(poisoned.call());
    // Entries of the table that nobody reads are ids outside the pool then.
    for (Bytes* buffer : {&poisoned.q, &poisoned.weights, &poisoned.pages, &poisoned.table,
                          &poisoned.k, &poisoned.k_scale})
      poison_others(spans, buffer, Access::kRead);
    poison_others(spans, &poisoned.logits, Access::kRead);  // all of it
    ASSERT_EQ(plain.run(), "ok");
    ASSERT_EQ(poisoned.run(), "ok");
    EXPECT_EQ(plain.logits, poisoned.logits);
    const auto written = written_bytes(spans, poisoned.logits);
    EXPECT_EQ(std::count(written.begin(), written.end(), 1), std::ssize(written));
  }
}

TEST(IndexerLogits, TheTableIsReadFromTheFirstKeysPageOn) {
  SmallIndexer s;
  s.rows.assign(5, 1), s.ks.assign(5, 70), s.ke.assign(5, 131);
  const auto read = elements(indexer_logits_footprint(s.call()), s.table, Access::kRead);
  EXPECT_EQ(read, (std::set<int64_t>{4, 5}));
}

}  // namespace
}  // namespace shadowgraph::indexer_logits_test
