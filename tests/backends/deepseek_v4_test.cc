// The metadata of DeepSeek-V4, number by number: per token, whatever the mode.
#include "backends/sparse/deepseek_v4.h"

#include <gtest/gtest.h>

#include "backends/sparse/deepseek_v4_hip.h"
#include "backends/step_fixture.h"

namespace shadowgraph::deepseek_v4_test {
namespace {

using enum ForwardMode;
using V4 = DeepseekV4;
using Hip = DeepseekV4Hip;

constexpr size_t c4(V4::GroupBufferId id) { return V4::of(V4Group::kC4, id); }
constexpr size_t c128(V4::GroupBufferId id) { return V4::of(V4Group::kC128, id); }

ModelConfig model_of(int32_t page_size, int32_t window, std::initializer_list<int32_t> ratios,
                     int32_t rows = 0) {
  ModelConfig m;
  m.page_size = page_size;
  m.max_context_len = 512;
  for (const int32_t ratio : ratios) {
    V4Layer l;
    l.window = window, l.ratio = ratio;
    l.head_dim = 8, l.rope_dim = 4, l.layout = LatentLayout::kRows;
    l.sm_scale = 0.5F;
    l.pools = rows > 0 ? V4Pools::kUnified : V4Pools::kPaged, l.rows = rows;
    m.layers.emplace_back().math = l;
  }
  return m;
}
const ModelConfig kEngine = model_of(256, 128, {0, 4, 128});
const ModelConfig kSmall = model_of(4, 3, {4, 2});

struct Requests : OwnedBatch {
  Requests(ForwardMode m, Ints seq, Ints extend, int32_t page_size)
      : OwnedBatch(m, usual_seq_lens_kind(m), std::move(seq), std::move(extend)) {
    set_pages(page_size, 512);
  }
};

/// Golden numbers of the contract: 1, 4, 128 and 300 tokens.
TEST(DeepseekV4, ADecodeHasTheNumbersOfTheContract) {
  const Requests batch(kDecode, {1, 4, 128, 300}, {}, 256);
  BoundStep s(*find_backend("deepseek_v4"), Limits::bucket(kDecode, 5, 1, kEngine));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(V4::kSeqLens), (Ints{1, 4, 128, 300, 1}));
  EXPECT_EQ(s.ints(V4::kPositions), (Ints{0, 3, 127, 299, 0}));
  EXPECT_EQ(s.ints(V4::kPoolRows), (Ints{1, 2, 3, 4, 0}));
  EXPECT_EQ(s.ints(V4::kWindowLens), (Ints{1, 4, 128, 128, 1}));
  EXPECT_EQ(s.ints(c4(V4::kLensRaw)), (Ints{0, 1, 32, 75, 0}));
  EXPECT_EQ(s.ints(c4(V4::kLensClamp1)), (Ints{1, 1, 32, 75, 1}));
  EXPECT_EQ(s.ints(c4(V4::kTopkLens)), (Ints{1, 1, 32, 75, 1}));
  EXPECT_EQ(s.ints(c128(V4::kLensRaw)), (Ints{0, 0, 1, 2, 0}));
  // Pages of a request: 8 - 4 * its first, then 4 - ...
  const Ints rows(batch.req_to_token.slots.begin(), batch.req_to_token.slots.end());
  const auto slot = [&](size_t request, size_t p) { return rows[(request + 1) * 512 + p]; };
  EXPECT_EQ(s.slots(c4(V4::kOutLoc)),
            (Longs{0, slot(1, 3) / 4, slot(2, 127) / 4, slot(3, 299) / 4, 0}));
  EXPECT_EQ(s.slots(c128(V4::kOutLoc)), (Longs{0, 0, slot(2, 127) / 128, 0, 0}));
  EXPECT_EQ(s.row(c128(V4::kBlocks), 3, 3), (Ints{slot(3, 0) / 128, slot(3, 0) / 128 + 1, -1}));
  EXPECT_EQ(s.row(V4::kWindow, 3, 3), (Ints{slot(3, 299), slot(3, 298), slot(3, 297)}));
  EXPECT_EQ(s.row(V4::kWindow, 1, 5), (Ints{slot(1, 3), slot(1, 2), slot(1, 1), slot(1, 0), -1}));
  EXPECT_EQ(s.row(V4::kWindow, 4, 2), (Ints{0, -1}));
  for (const size_t list : {size_t{V4::kWindow}, c4(V4::kBlocks), c128(V4::kBlocks)})
    EXPECT_EQ(s.columns(list) % 64, 0);
  // Two states a page of c4, one of c128.
  const int32_t page = slot(3, 299) / 256;
  EXPECT_EQ(s.ints(c4(V4::kStatePages))[3], page * 2 + 299 % 256 / 4 % 2);
  EXPECT_EQ(s.ints(c128(V4::kStatePages))[3], page);
  EXPECT_EQ(s.ints(c4(V4::kExtraPages))[3], page * 2 + (299 % 256 / 4 - 1) % 2);
  EXPECT_EQ(s.ints(c4(V4::kExtraPages))[1], 0);
}

TEST(DeepseekV4, TokensOfAPrefillHaveLengthsOfTheirOwn) {
  const Requests batch(kExtend, {6, 3}, {3, 2}, 4);
  const Limits limits = Limits::exact(batch, kSmall);
  BoundStep s(*find_backend("deepseek_v4"), limits);
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.ints(V4::kSeqLens), (Ints{4, 5, 6, 2, 3}));
  EXPECT_EQ(s.ints(V4::kTokenOffsets), (Ints{0, 3, 5}));
  EXPECT_EQ(s.ints(V4::kWindowLens), (Ints{3, 3, 3, 2, 3}));
  EXPECT_EQ(s.ints(c4(V4::kLensRaw)), (Ints{1, 1, 1, 0, 0}));
  EXPECT_EQ(s.ints(c128(V4::kLensRaw)), (Ints{2, 2, 3, 1, 1}));
  const Longs out = s.slots(c128(V4::kOutLoc));
  for (size_t t = 0; t < 5; ++t) EXPECT_EQ(out[t] != 0, t == 0 || t == 2 || t == 3) << t;
}

TEST(DeepseekV4, WindowsAreSlotsOfTheirPool) {
  ModelConfig m = model_of(4, 8, {4});
  m.swa_pool = true;
  Requests batch(kDecode, {6}, {}, 4);
  batch.set_swa(200, 4);
  BoundStep s(*find_backend("deepseek_v4"), Limits::bucket(kDecode, 2, 1, m));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  const Ints row(batch.req_to_token.row(1).begin(), batch.req_to_token.row(1).end());
  EXPECT_EQ(s.row(V4::kWindow, 0, 2),
            (Ints{static_cast<int32_t>(batch.swa[static_cast<size_t>(row[5])]),
                  static_cast<int32_t>(batch.swa[static_cast<size_t>(row[4])])}));
  EXPECT_EQ(s.slots(V4::kWindowOutLoc), (Longs{batch.swa[static_cast<size_t>(row[5])], 0}));
  // Blocks lie by pages of the full pool, states by the window's.
  EXPECT_EQ(s.row(V4::kPageTable, 0, 2), (Ints{row[0] / 4, row[4] / 4}));
  EXPECT_EQ(s.ints(c4(V4::kStatePages))[0], batch.swa[static_cast<size_t>(row[5])] / 4);
}

TEST(DeepseekV4Hip, ARingHasTheWindowAndTheDraftsBesideTheFirst) {
  ModelConfig m = model_of(4, 3, {0, 4}, 3);
  m.num_steps = 2, m.num_draft_tokens = 3;
  Requests batch(kTargetVerify, {6, 1}, {}, 4);
  batch.spec.num_steps = 2, batch.spec.num_draft_tokens = 3;
  BoundStep s(*find_backend("deepseek_v4_hip"), Limits::bucket(kTargetVerify, 3, 3, m));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  const int64_t ring = 5, blocks = 3 * ring;
  EXPECT_EQ(s.slots(V4::kWindowOutLoc), (Longs{ring + 6 % 5, ring + 7 % 5, ring + 8 % 5,
                                               2 * ring + 1, 2 * ring + 2, 2 * ring + 3, 0, 0, 0}));
  const Ints all = s.ints(Hip::list(1)), ends = s.ints(Hip::indptr(1));
  // Three of the window, and 1, 2, 2 blocks; of the other request two, three and three, no block.
  EXPECT_EQ(Ints(ends.begin(), ends.begin() + 8), (Ints{0, 4, 9, 14, 16, 19, 23, 24}));
  const int32_t page = batch.req_to_token.row(1)[0] / 4;
  EXPECT_EQ(Ints(all.begin(), all.begin() + 4),
            (Ints{5 + 1, 5 + 0, 5 + 4, static_cast<int32_t>(blocks) + page}));
}

TEST(DeepseekV4Hip, APrefillSeesItsOwnRowsAndStoresItsLastWindow) {
  const ModelConfig m = model_of(4, 3, {0}, 3);
  const Requests batch(kExtend, {7, 2}, {5, 2}, 4);
  BoundStep s(*find_backend("deepseek_v4_hip"), Limits::exact(batch, m));
  ASSERT_EQ(s.fill(batch).to_string(), "ok");
  EXPECT_EQ(s.slots(V4::kWindowOutLoc), (Longs{0, 0, 3 + 4 % 3, 3 + 5 % 3, 3 + 6 % 3, 6, 7}));
  // The prefix is positions 0 and 1, in the ring; the rest are rows of the step.
  EXPECT_EQ(s.ints(Hip::indptr(0)), (Ints{0, 2, 3, 3, 3, 3, 3, 3}));
  const Ints old = s.ints(Hip::list(0));
  EXPECT_EQ(Ints(old.begin(), old.begin() + 3), (Ints{3 + 1, 3 + 0, 3 + 1}));
  EXPECT_EQ(s.ints(Hip::own(Hip::kOwnIndptr)), (Ints{0, 1, 3, 6, 9, 12, 13, 15}));
  const Ints own = s.ints(Hip::own(Hip::kOwnList));
  EXPECT_EQ(Ints(own.begin() + 3, own.begin() + 9), (Ints{2, 1, 0, 3, 2, 1}));
}

TEST(DeepseekV4, RefusesWhatItHasNoListsFor) {
  const auto refused = [](const char* backend, const ModelConfig& m) {
    SimDevice device;
    Meta meta;
    const Arena arena(device, size_t{1} << 20);
    const Status status =
        find_backend(backend)->bind(arena, Limits::bucket(kDecode, 1, 1, m), &meta);
    return status.ok() ? std::string("ok") : status.findings()[0].where.field;
  };
  EXPECT_EQ(refused("deepseek_v4", kSmall), "ok");
  EXPECT_EQ(refused("deepseek_v4_hip", kSmall), "layers");
  EXPECT_EQ(refused("deepseek_v4", model_of(4, 3, {0, 8})), "ratio");   // no whole blocks
  EXPECT_EQ(refused("deepseek_v4", model_of(16, 3, {2, 8})), "ratio");  // two of one group
  EXPECT_EQ(refused("deepseek_v4", model_of(4, 3, {}, 0)), "layers");
  ModelConfig swa = model_of(4, 7, {4});
  swa.swa_pool = true;
  EXPECT_EQ(refused("deepseek_v4", swa), "window");  // states of a window that is gone
  ModelConfig few = model_of(4, 3, {4});
  std::get<V4Layer>(few.layers[0].math).index_topk = 9;
  EXPECT_EQ(refused("deepseek_v4", few), "ok");
  few = model_of(4, 3, {4}, 3);
  std::get<V4Layer>(few.layers[0].math).index_topk = 9;
  EXPECT_EQ(refused("deepseek_v4_hip", few), "index_topk");  // its lists choose nothing
}

}  // namespace
}  // namespace shadowgraph::deepseek_v4_test
