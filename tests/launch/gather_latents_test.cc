// Latents gathered on the device: what is stored, in f32, for the requests that have tokens; and
// what is refused.
#include "launch/gather_latents.h"

#include "core/float_formats.h"
#include "launch/launch_world.h"

namespace shadowgraph::gather_latents_test {
namespace {

using Slots = std::vector<int64_t>;

constexpr int64_t kPages = 4, kPageSize = 4, kRows = 6, kDim = 24;
constexpr int32_t kDimVo = 16;
const Slots kSlots = {5, 14, 4, 9};
const Ints kCu = {0, 2, 2, 4};

/// A pool, and slots of requests 0 and 2; slots and rows behind them were never written.
class World : public LaunchWorld {
 public:
  explicit World(DType dtype = DType::kF32) : dtype_(dtype) {
    pool = bind("pool", dtype, {kPages, kPageSize, kDim}, kDim);
    write_bytes(pool, dtype == DType::kI8 ? random(DType::kF32, pool.numel() / 4)
                                          : random(DType::kBF16, pool.bytes() / 2));
    if (dtype == DType::kF32) randomise(pool);
    scales = bind("scales", DType::kF32, {kPages, kPageSize, 1});
    randomise(scales);
    slots = bind("slots", DType::kI64, {kRows});
    write(slots, 0, kSlots);
    cu = bind_values("cu", DType::kI32, kCu);
    out = bind("out", DType::kF32, {kRows, 1, kDim}, kDim);
  }
  KvCache cache() const {
    const KvCache c = KvCache::mla_latent(pool.view(), kDimVo);
    return dtype_ == DType::kI8 ? c.with_scales(scales.view(), scales.view()) : c;
  }
  GatherLatents call() const {
    return {cache(), elements<int64_t>(slots), elements<int32_t>(cu), out.view()};
  }
  void clear() { fill(out, 0x55); }
  /// The rows of so many slots, and the others as they were.
  Bytes expected(size_t count) {
    stream().synchronize();
    Bytes all(out.bytes(), std::byte{0x55});
    for (size_t t = 0; t < count; ++t) {
      for (int64_t d = 0; d < kDim; ++d) {
        const int64_t slot = kSlots[t];
        const float scale = dtype_ == DType::kI8 ? elements<float>(scales)[size_t(slot)] : 1;
        const float value = load_float(pool.data, dtype_, slot * kDim + d) * scale;
        std::memcpy(&all[(t * kDim + static_cast<size_t>(d)) * sizeof value], &value, sizeof value);
      }
    }
    return all;
  }

  Buffer pool, scales, slots, cu, out;

 private:
  const DType dtype_;
};

TEST(GatherLatents, WhatIsStoredInF32RequestByRequest) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kE4M3, DType::kI8}) {
    World w(dtype);
    const Bytes expected = w.expected(kSlots.size());
    w.run_both(
        gather_latents_launch(w.call()), [&] { w.clear(); },
        [&] {
          EXPECT_EQ(w.bytes(w.out), expected) << name_of(dtype);
          EXPECT_EQ(w.found(), "ok") << name_of(dtype);
        });
  }
}

TEST(GatherLatents, OffsetsAreReadWhenItRuns) {
  World w;
  GraphExec exec = w.record(gather_latents_launch(w.call()));
  w.write(w.cu, 0, Ints{0, 1, 3, 3});
  w.clear();
  exec.replay(w.stream());
  EXPECT_EQ(w.bytes(w.out), w.expected(3));
  EXPECT_EQ(w.found(), "ok");
}

TEST(GatherLatents, AnotherRequestsSlotIsFound) {
  World w;
  for (const int64_t page : {1, 3}) w.set_owner(w.pool, page, 2);
  w.set_owner(w.pool, 2, 4);
  // The call's requests are the last three of the step. Slot 4 is on the first's page.
  const OwnerId rows[] = {1, 2, 3, 4};
  w.device.set_row_owners(rows);
  const auto none = [] {};
  const KernelLaunch launch = gather_latents_launch(w.call(), {1, 1});
  w.run_both(launch, none, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.wrong_region: pool["), std::string::npos) << found;
    EXPECT_NE(found.find("that of request 2"), std::string::npos) << found;
    EXPECT_NE(found.find("row 3"), std::string::npos) << found;
  });
  w.write(w.slots, 2, Slots{8});
  w.run_both(launch, none, [&] { EXPECT_EQ(w.found(), "ok"); });
}

TEST(GatherLatents, ASlotBeyondThePoolIsFoundAndNothingIsGathered) {
  for (const int64_t missing : {kPages * kPageSize, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    World w;
    w.write(w.slots, 2, Slots{missing});
    w.clear();
    const Bytes none = w.expected(0);
    w.stream().launch(gather_latents_launch(w.call()));
    EXPECT_EQ(w.bytes(w.out), none);
    const std::string found = w.found();
    EXPECT_NE(found.find("mem."), std::string::npos) << missing << found;
    EXPECT_NE(found.find("read by"), std::string::npos) << found;
  }
}

TEST(GatherLatents, OffsetsThatLeadNowhereGatherNothing) {
  for (const Ints& cu : {Ints{0, 3, 2, 4}, Ints{1, 2, 3, 4}, Ints{0, 2, 2, 1000}}) {
    World w;
    w.write(w.cu, 0, cu);
    w.run_both(
        gather_latents_launch(w.call()), [&] { w.clear(); },
        [&] {
          EXPECT_EQ(w.bytes(w.out), w.expected(0));
          const std::string found = w.found();
          const bool beyond = cu.back() > kRows;
          EXPECT_EQ(found.find(": slots[") != std::string::npos, beyond) << found;
          EXPECT_EQ(found.find(": out[") != std::string::npos, beyond) << found;
        });
  }
}

TEST(GatherLatents, BuiltAgainItIsTheSameByteByByte) {
  const World w;
  EXPECT_EQ(gather_latents_launch(w.call()), gather_latents_launch(w.call()));
  EXPECT_NE(gather_latents_launch(w.call()), gather_latents_launch(w.call(), {1, 1}));
}

}  // namespace
}  // namespace shadowgraph::gather_latents_test
