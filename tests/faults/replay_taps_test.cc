// Faults of graphs leave eager steps alone, and those of padding leave real rows alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "faults/buffers.h"
#include "faults/faults.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::replay_taps_test {
namespace {

/// Two decodes, of 3 and 5 keys, in pages of one slot.
class TwoDecodes {
 public:
  TwoDecodes() : arena(device, size_t{1} << 20) {
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
    model.max_context_len = kWidth;
    model.layers.resize(1);
    model.layers[0].params = {.num_qo_heads = 1,
                              .num_kv_heads = 1,
                              .head_dim_qk = 4,
                              .head_dim_vo = 4,
                              .sm_scale = 1.0f,
                              .causal = true};
    batch.mode = ForwardMode::kDecode;
    batch.req_pool_indices = rows, batch.seq_lens = lens;
    batch.out_cache_loc = stored;
    batch.req_to_token = {slots, kWidth};
  }

  Meta filled(const char* backend, const Limits& limits, const Arena& scope) const {
    Meta meta;
    EXPECT_TRUE(find_backend(backend)->bind(scope, limits, &meta).ok());
    EXPECT_TRUE(find_backend(backend)->fill(batch, meta).ok());
    return meta;
  }
  Meta eager(const char* backend) const {
    return filled(backend, Limits::exact(batch, model), arena.scope("eager"));
  }
  Meta bucket(const char* backend) const {
    return filled(backend, Limits::bucket(ForwardMode::kDecode, 4, 1, model), arena.scope("graph"));
  }

  static constexpr int64_t kWidth = 8;
  SimDevice device;
  Arena arena;
  ModelConfig model;
  ForwardBatch batch;

 private:
  std::array<int32_t, 3 * kWidth> slots;
  const std::vector<int32_t> rows = {1, 2}, lens = {3, 5};
  const std::vector<int64_t> stored = {10, 20};
};

int64_t acted(const char* id, const ForwardBatch& batch, Meta meta) {
  const std::unique_ptr<Tap> planted = find_fault(id)->tap();
  Tap& tap = *planted;
  EXPECT_TRUE(tap.filled(batch, meta).ok());
  return tap.acted();
}

TEST(ReplayTaps, LeaveEagerStepsAlone) {
  for (const char* id : {"K12", "K14", "K19", "K26", "K30"}) {
    const TwoDecodes w;
    EXPECT_EQ(acted(id, w.batch, w.eager("flashinfer")), 0) << id;
    EXPECT_GT(acted(id, w.batch, w.bucket("flashinfer")), 0) << id;
  }
  const TwoDecodes w;
  EXPECT_EQ(acted("K13", w.batch, w.eager("flashattention")), 0);
  EXPECT_GT(acted("K13", w.batch, w.bucket("flashattention")), 0);
}

TEST(ReplayTaps, LeaveCapturesAlone) {
  for (const char* id : {"K12", "K14", "K19", "K26", "K30"}) {
    const TwoDecodes w;
    Meta meta = w.bucket("flashinfer");
    const ForwardBatch dummy = w.batch.slice(0, 0);
    EXPECT_TRUE(find_backend("flashinfer")->fill(dummy, meta).ok());
    EXPECT_EQ(acted(id, dummy, meta), 0) << id;
  }
}

TEST(PaddingTaps, LeaveRealRowsAlone) {
  const TwoDecodes w;
  const Meta meta = w.bucket("flashattention");
  acted("K27", w.batch, meta);
  acted("K30", w.batch, meta);
  const auto lens = staged<int32_t>(meta, *find_buffer(meta, "cache_seqlens"));
  EXPECT_EQ(std::vector(lens.begin(), lens.end()), (std::vector<int32_t>{3, 5, 0, 0}));
  const auto stored = staged<int64_t>(meta, *find_buffer(meta, "out_cache_loc"));
  EXPECT_EQ(std::vector(stored.begin(), stored.end()), (std::vector<int64_t>{10, 20, 8, 8}));
}

TEST(FaultBuffers, WhatIsNotKeptIsNotUploaded) {
  TwoDecodes w;
  const Meta meta = w.bucket("flashattention");
  const Buffer& lens = *find_buffer(meta, "cache_seqlens");
  Stream stream(w.device);
  ASSERT_TRUE(w.arena.upload(stream.handle()).ok());
  stream.synchronize();
  std::ranges::fill(staged<int32_t>(meta, lens), 7);
  keep_staged(meta, lens, {0, 1});
  ASSERT_TRUE(w.arena.upload(stream.handle()).ok());
  stream.synchronize();
  const auto* on_device = reinterpret_cast<const int32_t*>(lens.data);
  EXPECT_EQ(std::vector(on_device, on_device + 4), (std::vector<int32_t>{7, 5, 1, 1}));
}

TEST(FaultBuffers, AHalfHasTheRequestsOfItsRows) {
  const TwoDecodes w;
  Limits half = Limits::bucket(ForwardMode::kDecode, 2, 1, w.model);
  half.first_row = 1;
  EXPECT_EQ(real_rows(w.batch, half).rows, 1);
  EXPECT_EQ(real_rows(w.batch, half).tokens, 1);
  half.first_row = 2;
  EXPECT_EQ(real_rows(w.batch, half).rows, 0);
}

}  // namespace
}  // namespace shadowgraph::replay_taps_test
