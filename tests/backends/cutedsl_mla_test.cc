// CuteDSL-MLA: what each rank of a decode context parallel group holds, sees and stores.
#include "backends/paged/cutedsl_mla.h"

#include <gtest/gtest.h>

#include "attn/finding_ids.h"
#include "attn/page_table.h"
#include "backends/paged_world.h"
#include "launch/row_numbers.h"

namespace shadowgraph::cutedsl_mla_test {
namespace {

using Mla = CuteDslMla;
const CuteDslMla kMla;
constexpr int32_t kPage = 32;

ModelConfig model(int32_t rank, int32_t size) {
  ModelConfig m = model_of(kPage, 1, 256);
  m.num_steps = 3, m.num_draft_tokens = 3;
  m.dcp_rank = rank, m.dcp_size = size;
  return m;
}

/// The slots of a rank's first keys, in its own pool.
Ints local_slots(const Meta& meta, int64_t row, int32_t keys) {
  const Ints pages = held_row(meta[Mla::kPageTable], row, pages_for(keys, kPage));
  Ints slots;
  for (int32_t j = 0; j < keys; ++j)
    slots.push_back(pages[static_cast<size_t>(j / kPage)] * kPage + j % kPage);
  return slots;
}

TEST(LocalLen, RanksHoldEveryTokenOnce) {
  for (const int32_t size : {1, 2, 4, 8}) {
    for (int32_t len = 0; len < 20; ++len) {
      int32_t sum = 0;
      for (int32_t r = 0; r < size; ++r) sum += local_len(len, r, size);
      EXPECT_EQ(sum, len);
    }
  }
  EXPECT_EQ(local_len(5, 0, 2), 3);
  EXPECT_EQ(local_len(5, 1, 2), 2);
}

TEST(CuteDslMla, OneRankIsTrtllmMla) {
  PagedWorld w;
  const TrtllmMla trtllm;
  const PagedBatch owned(ForwardMode::kTargetVerify, {{40, 3}, {7, 3}}, kPage);
  const Meta a = w.exact(kMla, owned.view(), model(0, 1));
  const Meta b = w.exact(trtllm, owned.view(), model(0, 1));
  for (const size_t i : {Mla::kKvLens, Mla::kCuSeqlensQ}) EXPECT_EQ(held(a[i]), held(b[i]));
  EXPECT_EQ(held(a[Mla::kSeqLensK]), held(b[Mla::kSeqLensK]));
  EXPECT_EQ(a[Mla::kPageTable].shape, b[Mla::kPageTable].shape);
}

TEST(CuteDslMla, ARankReadsEachOfItsTokensFromItsOwnPool) {
  for (const int32_t size : {2, 4}) {
    for (const int32_t prefix : {0, 1, 2, kPage * size - 2, kPage * size, 3 * kPage * size + 5}) {
      const PagedBatch owned(ForwardMode::kDecode, {{prefix, 1}, {3, 1}}, kPage * size);
      ModelConfig m = model(0, size);
      for (int32_t r = 0; r < size; ++r) {
        PagedWorld w;
        m.dcp_rank = r;
        const Meta meta = w.exact(kMla, owned.view(), m);
        for (size_t i = 0; i < 2; ++i) {
          Ints expected;
          for (int32_t c = r; c < (i == 0 ? prefix : 3) + 1; c += size)
            expected.push_back(owned.slot(i, c) / size);
          EXPECT_EQ(held(meta[Mla::kSeqLensK])[i], std::ssize(expected));
          EXPECT_EQ(local_slots(meta, static_cast<int64_t>(i),
                                static_cast<int32_t>(std::ssize(expected))),
                    expected);
        }
        EXPECT_EQ(held(meta[Mla::kGlobalSeqLensK]), (Ints{prefix + 1, 4}));
      }
    }
  }
}

TEST(CuteDslMla, ARankStoresItsOwnTokensOnly) {
  const PagedBatch owned(ForwardMode::kTargetVerify, {{10, 3}}, 2 * kPage);
  const auto slot = [&](int32_t token) { return int64_t{owned.slot(0, token) / 2}; };
  for (const int32_t r : {0, 1}) {
    PagedWorld w;
    const Meta meta = w.exact(kMla, owned.view(), model(r, 2));
    EXPECT_EQ(held<int64_t>(meta[Mla::kOutCacheLoc]),
              r == 0 ? (std::vector<int64_t>{slot(10), -1, slot(12)})
                     : (std::vector<int64_t>{-1, slot(11), -1}));
  }
}

TEST(CuteDslMla, ARankWithoutKeysIsBoundedByOne) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDecode, {{0, 1}}, 2 * kPage);
  const Meta meta = w.exact(kMla, owned.view(), model(1, 2));
  EXPECT_EQ(held(meta[Mla::kSeqLensK]), (Ints{0}));
  EXPECT_EQ(meta.scalars[Mla::kMaxSeqLenK], 1);
}

TEST(CuteDslMla, PaddingRowsSeeTheFillAndStoreNowhere) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kTargetVerify, {{10, 3}}, 2 * kPage);
  Meta meta = w.bind(kMla, Limits::bucket(ForwardMode::kTargetVerify, 2, 3, model(1, 2)));
  w.fill(kMla, owned.view(), meta);
  EXPECT_EQ(held_row(meta[Mla::kPageTable], 1, 1), (Ints{0}));
  const auto loc = held<int64_t>(meta[Mla::kOutCacheLoc]);
  EXPECT_EQ((std::vector<int64_t>{loc.begin() + 3, loc.end()}), (std::vector<int64_t>{-1, -1, -1}));
}

TEST(CuteDslMla, TablesAreWideEnoughForARanksShare) {
  PagedWorld w;
  Limits limits = Limits::bucket(ForwardMode::kDecode, 1, 1, model(1, 2));
  limits.max_kv_len = 8192;
  EXPECT_EQ(w.bind(kMla, limits)[Mla::kPageTable].shape[1], 4096 / kPage);
  limits.max_kv_len = 8193;
  EXPECT_EQ(w.bind(kMla, limits, "wider")[Mla::kPageTable].shape[1], 8192 / kPage);
}

TEST(CuteDslMla, EachQueryAttendsToWhatItSeesOfTheRanksKeys) {
  const PagedBatch owned(ForwardMode::kTargetVerify, {{70, 3}, {9, 3}}, 2 * kPage);
  for (const int32_t r : {0, 1}) {
    PagedWorld w;
    const Meta meta = w.exact(kMla, owned.view(), model(r, 2));
    const Layer layer(w, "layer", model(r, 2), 6, owned.pages());
    w.forward(kMla, meta, {layer.io()});
    EXPECT_EQ(w.found(), "ok");
    Ints table, lens;
    for (size_t i = 0; i < 2; ++i) {
      for (int32_t t = 0; t < 3; ++t) {
        lens.push_back(local_len((i == 0 ? 70 : 9) + t + 1, r, 2));
        for (const int32_t page : {0, 1})
          table.push_back(page * kPage < lens.back() ? owned.slot(i, page * 2 * kPage) / (2 * kPage)
                                                     : -1);
      }
    }
    EXPECT_EQ(layer.results(6), layer.expected(table, 2, lens, {}));
  }
}

TEST(CuteDslMla, LimitsOfNoRankAreRefused) {
  PagedWorld w;
  const auto refused = [&](int32_t rank, int32_t size, ForwardMode mode, int32_t tokens) {
    Limits limits = Limits::bucket(mode, 2, 3, model(rank, size));
    limits.tokens = tokens;
    Meta meta;
    return ids(kMla.bind(w.arena, limits, &meta));
  };
  const ForwardMode verify = ForwardMode::kTargetVerify;
  EXPECT_EQ(refused(0, 3, verify, 6), (Ids{"backend.limits dcp_size"}));
  EXPECT_EQ(refused(2, 2, verify, 6), (Ids{"backend.limits dcp_rank"}));
  EXPECT_EQ(refused(-1, 2, verify, 6), (Ids{"backend.limits dcp_rank"}));
  EXPECT_EQ(refused(0, 0, verify, 6), (Ids{"backend.limits dcp_size", "backend.limits dcp_rank"}));
  EXPECT_EQ(refused(0, 2, ForwardMode::kDraftExtend, 4), (Ids{"backend.limits tokens"}));
  EXPECT_EQ(w.arena.used(), 0U);
}

TEST(CuteDslMla, RanksNeedAsManyQueriesOfEveryRequest) {
  PagedWorld w;
  const PagedBatch owned(ForwardMode::kDraftExtend, {{10, 3}, {5, 1}}, 2 * kPage);
  Meta meta = w.bind(kMla, Limits::bucket(ForwardMode::kDraftExtend, 2, 3, model(0, 2)));
  EXPECT_EQ(ids(kMla.fill(owned.view(), meta)), (Ids{"batch.mode extend_lens"}));
}

}  // namespace
}  // namespace shadowgraph::cutedsl_mla_test
