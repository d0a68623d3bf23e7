// FlashMLA: the schedule that shares keys out among the parts of a machine.
#include "backends/paged/flash_mla.h"

#include <gtest/gtest.h>

#include "attn/page_table.h"
#include "backends/paged_world.h"

namespace shadowgraph::flash_mla_test {
namespace {

struct Schedule {
  Schedule(const Ints& lens, int32_t n)
      : parts(static_cast<size_t>(n) * kMlaPartInts, -9), num_splits(lens.size() + 1, -9) {
    share_out(lens, parts, num_splits);
  }
  Ints part(size_t p) const {
    const auto at = parts.begin() + static_cast<int64_t>(p * kMlaPartInts);
    return {at, at + 5};
  }
  Ints parts, num_splits;
};

TEST(ShareOut, OnePartTakesAll) {
  const Schedule s({100, 1, 640}, 1);
  EXPECT_EQ(s.part(0), (Ints{0, 0, 2, 640, 0}));
  EXPECT_EQ(s.num_splits, (Ints{0, 1, 2, 3}));
}

TEST(ShareOut, ALongRowIsCutAtBlocks) {
  // 20 blocks and the row's 5 among 4 parts: 7 each and 5 more, of which 7 are blocks.
  const Schedule s({1280}, 4);
  EXPECT_EQ(s.part(0), (Ints{0, 0, 0, 448, 0}));
  EXPECT_EQ(s.part(1), (Ints{0, 448, 0, 896, 1}));
  EXPECT_EQ(s.part(2), (Ints{0, 896, 0, 1280, 2}));
  EXPECT_EQ(s.part(3), (Ints{1, 0, 0, 1280, 0}));
  EXPECT_EQ(s.num_splits, (Ints{0, 3}));
}

TEST(ShareOut, ShortRowsGoTogether) {
  // 4 rows of 1 + 5, 2 parts: 12 each and 5 more.
  const Schedule s({64, 64, 64, 64}, 2);
  EXPECT_EQ(s.part(0), (Ints{0, 0, 1, 64, 0}));
  EXPECT_EQ(s.part(1), (Ints{2, 0, 3, 64, 0}));
  EXPECT_EQ(s.num_splits, (Ints{0, 1, 2, 3, 4}));
}

/// Walks the parts in order; every block of every row is read once, each split by one part.
void expect_whole(const Ints& lens, int32_t n) {
  const Schedule s(lens, n);
  int32_t row = 0, key = 0, split = 0;
  Ints splits(lens.size(), 0);
  for (size_t p = 0; p < static_cast<size_t>(n); ++p) {
    const Ints part = s.part(p);
    ASSERT_EQ((Ints{part[kBeginRow], part[kBeginKey], part[kBeginSplit]}), (Ints{row, key, split}));
    for (; row <= part[kEndRow]; ++row, key = split = 0) {
      ++splits[static_cast<size_t>(row)];
      if (row < part[kEndRow] || part[kEndKey] == lens[static_cast<size_t>(row)]) continue;
      ASSERT_GT(part[kEndKey], key);
      ASSERT_EQ(part[kEndKey] % 64, 0);
      ASSERT_LT(part[kEndKey], lens[static_cast<size_t>(row)]);
      key = part[kEndKey];
      ++split;
      break;
    }
  }
  EXPECT_EQ(row, static_cast<int32_t>(lens.size()));
  int32_t total = 0;
  for (size_t i = 0; i < lens.size(); ++i) {
    EXPECT_EQ(s.num_splits[i], total);
    total += splits[i];
  }
  EXPECT_EQ(s.num_splits.back(), total);
}

TEST(ShareOut, EveryKeyIsInOnePart) {
  constexpr int32_t kLens[] = {0, 1, 64, 65, 700, 5000};
  for (const int32_t n : {1, 2, 3, 7, 66, 132}) {
    for (const int32_t a : kLens) {
      for (const int32_t b : kLens) {
        for (const int32_t c : kLens) {
          SCOPED_TRACE(::testing::Message() << a << " " << b << " " << c << " among " << n);
          ASSERT_NO_FATAL_FAILURE(expect_whole({a, b, c}, n));
        }
      }
    }
  }
}

TEST(ShareOut, NoRowIsNoWork) {
  const Schedule s({}, 2);
  EXPECT_EQ(s.part(1), (Ints{0, 0, -1, 0, 0}));
  EXPECT_EQ(s.num_splits, (Ints{0}));
}

/// fa.I-86: 132 multiprocessors, and nothing of a batch.
TEST(FlashMla, PartsDependOnHeadsAndQueriesAlone) {
  ModelConfig m = model_of(64, 1, 256);
  const auto parts = [&](int32_t heads, int32_t q_len, int32_t rows) {
    m.layers[0].params.num_qo_heads = heads;
    return FlashMla::num_parts(Limits::bucket(ForwardMode::kTargetVerify, rows, q_len, m));
  };
  EXPECT_EQ(parts(16, 1, 1), 132);
  EXPECT_EQ(parts(128, 1, 1), 66);
  EXPECT_EQ(parts(16, 5, 1), 66);
  EXPECT_EQ(parts(128, 2, 64), 33);
  EXPECT_EQ(parts(128, 200, 1), 1);
}

TEST(FlashMla, TheScheduleIsOfTheKeysTheKernelIsTold) {
  PagedWorld w;
  const FlashMla mla;
  ModelConfig m = model_of(64, 1, 6000);
  m.num_draft_tokens = 3;
  const PagedBatch owned(ForwardMode::kTargetVerify, {{1000, 3}, {61, 3}}, 64);
  Meta meta = w.bind(mla, Limits::bucket(ForwardMode::kTargetVerify, 3, 3, m));
  w.fill(mla, owned.view(), meta);
  EXPECT_EQ(held(meta[FlashMla::kSeqLensK]), (Ints{1003, 64, 4}));
  const Schedule s({1003, 64, 4}, FlashMla::num_parts(meta.limits));
  EXPECT_EQ(held(meta[FlashMla::kTileMetadata]), s.parts);
  EXPECT_EQ(held(meta[FlashMla::kNumSplits]), s.num_splits);
}

/// Verifies drafts of 3 on a machine of few parts; page 0 is padding's.
struct Verify {
  Verify() : model(model_of(64, 1, 700)) {
    model.num_draft_tokens = 3, model.split.num_sms = 7;
    meta = world.bind(mla, Limits::bucket(ForwardMode::kTargetVerify, 3, 3, model));
    world.fill(mla, owned.view(), meta);
  }
  /// What the two launches of a layer leave.
  std::vector<float> run() {
    world.forward(mla, meta, {layer.io()});
    return layer.results(6);
  }

  FlashMla mla;
  PagedWorld world;
  ModelConfig model;
  PagedBatch owned{ForwardMode::kTargetVerify, {{600, 3}, {61, 3}}, 64};
  Meta meta;
  Layer layer{world, "layer", model, 9, owned.pages()};
};

TEST(FlashMla, ForwardFollowsTheSchedule) {
  Verify v;
  const std::vector<float> all = v.run();
  EXPECT_EQ(v.world.found(), "ok");
  EXPECT_GT(held(v.meta[FlashMla::kNumSplits])[1], 1);
  // The first part reads a block less.
  const int32_t end = held(v.meta[FlashMla::kTileMetadata])[kEndKey];
  const Ints less{end - 64};
  EXPECT_TRUE(
      v.world.arena.write(v.meta[FlashMla::kTileMetadata], kEndKey, std::span<const int32_t>(less))
          .ok());
  v.world.upload();
  EXPECT_NE(v.run(), all);
}

TEST(FlashMla, AStaleScheduleIsFound) {
  constexpr size_t kRead[] = {FlashMla::kTileMetadata, FlashMla::kNumSplits, FlashMla::kSeqLensK};
  for (const size_t stale : kRead) {
    Verify v;
    v.run();
    ASSERT_EQ(v.world.found(), "ok");
    v.world.arena.begin_step();
    for (const Buffer& b : v.meta.buffers) {
      if (b.data == nullptr || b.lifetime != Lifetime::kPerStep || b.name == v.meta[stale].name)
        continue;
      EXPECT_TRUE(v.world.arena.write(b, 0, b.data, b.numel()).ok());
    }
    v.world.upload();
    v.run();
    const std::string found = v.world.found();
    EXPECT_EQ(found.find("mem.stale_input: " + v.meta[stale].name), 0u) << found;
  }
}

/// A draft extend's rows are cut by prefix + the widest extend, padding counted.
TEST(FlashMla, PartsOfARowAreThoseOfItsBucket) {
  ModelConfig m = model_of(64, 1, 700);
  m.num_draft_tokens = 3, m.split.num_sms = 4;
  const PagedBatch owned(ForwardMode::kDraftExtend, {{600, 2}, {60, 3}}, 64);
  const FlashMla mla;
  const Limits limits = Limits::bucket(ForwardMode::kDraftExtend, 3, 3, m);
  const Schedule s({603, 63, 4}, 4);
  const int32_t first = s.num_splits[1];
  EXPECT_GT(first, 1);
  EXPECT_EQ(mla.merged_parts(owned.view(), limits, m.layers[0]), (Ints{first, first, 1, 1, 1}));
}

}  // namespace
}  // namespace shadowgraph::flash_mla_test
