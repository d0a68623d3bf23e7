// Buckets, and the patterns that are theirs: G142 to G150 and G152 (docs/references.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/capture/buckets.h"
#include "patterns_fixture.h"

namespace shadowgraph::patterns_buckets_test {
namespace {

std::vector<std::byte> padding_of(int32_t value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

/// Bytes that graphs with a temporary of 512 bytes a row take, recorded in this order.
size_t pool_bytes_of(Rig& rig, const std::vector<int32_t>& order) {
  const auto pool = GraphPool::create(rig.device);
  std::vector<PooledGraph> graphs;
  for (const int32_t rows : order) {
    const auto body = [&](Stream& s) {
      const Tensor t = rig.allocator.allocate(static_cast<size_t>(rows) * 512, "temporary");
      launch(s, k::fill, t.as<int32_t>(), rows, rows);
    };
    graphs.push_back(rig.record(body, pool));
  }
  return pool->bytes();
}

TEST(Patterns, G142_LargestFirstAPoolIsAsLargeAsTheLargestBucketNeeds) {
  Rig rig;
  EXPECT_EQ(pool_bytes_of(rig, {8, 4, 2, 1}), 8u * 512u);
  EXPECT_EQ(pool_bytes_of(rig, {1, 2, 4, 8}), (1u + 2u + 4u + 8u) * 512u);
}

/// x, doubled, row by row; x of every row also into a cache at the row's slot.
struct Engine {
  explicit Engine(Rig& r, std::vector<int32_t> bucket_sizes = {1, 2, 4, 8})
      : rig(r),
        x(r.bind("x", 8, Lifetime::kPerStep)),
        slot(r.bind("slot", 8, Lifetime::kPerStep)),
        out(r.bind("out", 8, Lifetime::kOutput)),
        cache(r.bind("cache", 16)),
        spec{.sizes = std::move(bucket_sizes),
             .arena = r.arena,
             .inputs = {{x, padding_of(-5)}, {slot, padding_of(0)}},
             .outputs = {out},
             .step = [this](Stream& s, int32_t rows) { step(s, rows); },
             .fill = {},
             .after_warm_up = {}} {
    r.write(cache, Ints(16, 0));
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void step(Stream& s, int32_t rows) {
    launch(s, kernels::scatter, ints(cache), ints(slot), ints(x), rows);
    const Tensor t =
        rig.allocator.allocate(static_cast<size_t>(rows) * sizeof(int32_t), "temporary");
    launch(s, k::mul, t.as<int32_t>(), ints(x), 2, rows);
    launch(s, k::copy, ints(out), t.as<int32_t>(), rows);
  }
  void record() {
    const Status status = Buckets::record(rig.stream, rig.allocator, spec, &buckets);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Status replay(const Ints& xs, const Ints& slots) {
    const std::vector<std::span<const std::byte>> inputs = {bytes_of(xs), bytes_of(slots)};
    return buckets->replay(rig.stream, static_cast<int32_t>(xs.size()), inputs);
  }

  Rig& rig;
  Buffer x, slot, out, cache;
  BucketSpec spec;
  std::optional<Buckets> buckets;
};

TEST(Patterns, G142_BucketsAreRecordedLargestFirst) {
  Rig rig;
  Engine engine(rig, {1, 4, 8, 2, 4});
  engine.spec.step = [&](Stream& s, int32_t rows) {
    const Tensor t = rig.allocator.allocate(static_cast<size_t>(rows) * 512, "temporary");
    launch(s, k::fill, t.as<int32_t>(), rows, rows);
  };
  engine.record();
  EXPECT_EQ(engine.buckets->pool_bytes(), 8u * 512u);
  EXPECT_TRUE(std::ranges::equal(engine.buckets->sizes(), Ints{1, 2, 4, 8}));
}

TEST(Patterns, G143_APaddedBatchComputesTheBucketAndReturnsTheBatch) {
  on_every_schedule([](Rig& rig) {
    Engine engine(rig);
    engine.record();
    rig.write(engine.cache, Ints(16, 0));
    rig.stream.fill(engine.out.data, 0, engine.out.bytes());
    const Status status = engine.replay({10, 20, 30}, {3, 7, 5});
    EXPECT_TRUE(status.ok()) << status.to_string();

    EXPECT_EQ(rig.read(engine.buckets->output(0)), (Ints{20, 40, 60}));
    EXPECT_EQ(rig.read(engine.out), (Ints{20, 40, 60, -10, 0, 0, 0, 0}));
    Ints cache(16, 0);
    cache[0] = -5, cache[3] = 10, cache[7] = 20, cache[5] = 30;
    EXPECT_EQ(rig.read(engine.cache), cache);
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G144_PaddedRowsThatAreNotRefreshedAreTheOldRequests) {
  on_every_schedule([](Rig& rig) {
    Engine engine(rig);
    const Ints first = {1, 2, 3, 4};
    rig.write(engine.cache, Ints(16, 0));
    PooledGraph g = rig.record([&](Stream& s) { engine.step(s, 4); });
    const auto replay = [&](const Ints& xs, const Ints& slots) {
      rig.device.begin_step();
      rig.write(engine.x, xs);
      rig.write(engine.slot, slots);
      g.exec.replay(rig.stream);
    };
    replay({10, 20, 30, 40}, first);
    EXPECT_EQ(rig.found(), "");
    replay({50, 60, 70}, {5, 6, 7});  // the fault: row 3 still names slot 4
    EXPECT_EQ(rig.read(engine.cache)[4], 40);
    EXPECT_EQ(rig.found(), "mem.stale_input");
    replay({50, 60, 70, -5}, {5, 6, 7, 0});
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G145_PaddingThatWritesALiveRequestsSlotIsFound) {
  constexpr OwnerId kPadding = 1000;
  on_every_schedule([](Rig& rig) {
    Engine engine(rig);
    engine.record();
    const auto replay = [&] {
      rig.device.set_row_owners(std::vector<OwnerId>{1, 2, 3, kPadding});
      return engine.replay({10, 20, 30}, {3, 7, 5}).ok();
    };
    EXPECT_TRUE(rig.arena.set_owner(engine.cache, {0, 1}, kPadding).ok());
    EXPECT_TRUE(rig.arena.set_owner(engine.cache, {3, 1}, 1).ok());
    EXPECT_TRUE(replay());
    EXPECT_EQ(rig.found(), "");
    EXPECT_TRUE(rig.arena.set_owner(engine.cache, {0, 1}, 9).ok());  // the fault: slot 0 is used
    EXPECT_TRUE(replay());
    EXPECT_EQ(rig.found(), "mem.wrong_region");
  });
}

TEST(Patterns, G146_ABatchThatNoBucketHoldsIsRefusedAndNothingRuns) {
  on_every_schedule([](Rig& rig) {
    Engine engine(rig, {1, 2, 4});
    engine.record();
    rig.stream.fill(engine.out.data, 0, engine.out.bytes());
    const Status status = engine.replay(Ints(5, 1), {1, 2, 3, 4, 5});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.to_string(), "input.shape: rows is 5, expected 4 at most");
    EXPECT_EQ(rig.read(engine.out), Ints(8, 0));
    EXPECT_TRUE(engine.replay(Ints(4, 1), {1, 2, 3, 4}).ok());
    EXPECT_EQ(rig.read(engine.out), (Ints{2, 2, 2, 2, 0, 0, 0, 0}));
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G147_TheBucketIsTheSmallestThatHoldsTheBatch) {
  // Every list of buckets out of 1..8, every batch.
  for (uint32_t subset = 0; subset < 256; ++subset) {
    Ints sizes;
    for (int32_t size = 1; size <= 8; ++size)
      if ((subset >> (size - 1) & 1) != 0) sizes.push_back(size);
    for (int32_t rows = -1; rows <= 10; ++rows) {
      std::optional<int32_t> expected;
      for (const int32_t size : sizes)
        if (rows >= 0 && size >= rows && !expected) expected = size;
      EXPECT_EQ(bucket_for(sizes, rows), expected) << "buckets " << subset << " rows " << rows;
    }
  }
}

TEST(Patterns, G147_EveryBatchGetsItsOwnRowsBack) {
  Rig rig;
  Engine engine(rig, {2, 3, 8});
  engine.record();
  for (int32_t rows = 0; rows <= 8; ++rows) {
    Ints xs, slots, expected;
    for (int32_t i = 0; i < rows; ++i)
      xs.push_back(100 * rows + i), slots.push_back(i + 1), expected.push_back(2 * xs.back());
    EXPECT_TRUE(engine.replay(xs, slots).ok());
    EXPECT_EQ(rig.read(engine.buckets->output(0)), expected);
  }
  EXPECT_EQ(rig.found(), "");
}

TEST(Patterns, G148_AnInputAtAnotherAddressIsRefused) {
  on_every_schedule([](Rig& rig) {
    Engine engine(rig);
    const Buffer other = rig.bind("other", 8);
    rig.write(other, Ints(8, 1));
    const Buffer* input = &engine.x;
    engine.spec.checked = true;
    engine.spec.step = [&](Stream& s, int32_t rows) {
      const Tensor t =
          rig.allocator.allocate(static_cast<size_t>(rows) * sizeof(int32_t), "temporary");
      launch(s, k::mul, t.as<int32_t>(), ints(*input), 2, rows);
      launch(s, k::copy, ints(engine.out), t.as<int32_t>(), rows);
    };
    engine.record();
    EXPECT_TRUE(engine.replay({10, 20, 30}, {1, 2, 3}).ok());
    EXPECT_EQ(rig.read(engine.buckets->output(0)), (Ints{20, 40, 60}));
    EXPECT_EQ(rig.found(), "");

    input = &other;
    const Status status = engine.replay({1, 2, 3}, {1, 2, 3});
    ASSERT_EQ(status.findings().size(), 1u) << status.to_string();
    EXPECT_EQ(status.findings()[0].id, "graph.address_changed");
    EXPECT_EQ(status.findings()[0].where.field, "mul argument 1");
    EXPECT_EQ(rig.read(engine.buckets->output(0)), (Ints{20, 40, 60}));
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G148_ARowCountThatIsNotTheBucketsIsRefused) {
  Rig rig;
  Engine engine(rig);
  int32_t live = 4;  // the fault: a scalar of the batch in a launch
  engine.spec.sizes = {4};
  engine.spec.checked = true;
  engine.spec.step = [&](Stream& s, int32_t) {
    launch(s, k::mul, ints(engine.out), ints(engine.x), 2, live);
  };
  engine.record();
  EXPECT_TRUE(engine.replay({1, 2, 3, 4}, {1, 2, 3, 4}).ok());
  live = 3;
  const Status status = engine.replay({1, 2, 3}, {1, 2, 3});
  ASSERT_EQ(status.findings().size(), 1u) << status.to_string();
  EXPECT_EQ(status.findings()[0].id, "graph.baked_scalar");
}

TEST(Patterns, G149_WhatTheWarmUpChangedIsPutBackBeforeTheRecording) {
  on_every_schedule([](Rig& rig) {
    Engine engine(rig, {2});
    const Buffer counter = rig.bind("counter", 1);
    engine.spec.step = [&](Stream& s, int32_t rows) {
      launch(s, k::add, ints(counter), 1, 1);
      launch(s, k::copy, ints(engine.out), ints(counter), 1);
      launch(s, k::mul, ints(engine.out) + 1, ints(engine.x), rows, 1);
    };
    const auto replay = [&] {
      EXPECT_TRUE(engine.replay({1, 2}, {1, 2}).ok());
      return rig.read(engine.buckets->output(0));
    };
    rig.write(counter, {0});
    engine.record();
    const Ints without_hook = replay();

    engine.spec.after_warm_up = [&](Stream& s) { s.fill(counter.data, 0, 4); };
    rig.write(counter, {0});
    engine.record();
    const Ints with_hook = replay();

    rig.write(counter, {0});
    rig.device.begin_step();
    rig.write(engine.x, {1, 2});
    engine.spec.step(rig.stream, 2);
    const Ints eager = rig.read(engine.out.data, 2);
    EXPECT_EQ(eager, (Ints{1, 2}));
    EXPECT_EQ(with_hook, eager);
    EXPECT_NE(without_hook, eager);
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G150_AnIndexThatIsPlannedAtCaptureOnlyIsStale) {
  on_every_schedule([](Rig& rig) {
    Engine engine(rig, {4});
    const Buffer indices = rig.bind("indices", 8, Lifetime::kPerStep);
    rig.write(engine.cache, {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150});
    Ints plan(8, 0);
    bool planner_runs = true;
    engine.spec.fill = [&](int32_t, int32_t rows) {
      if (!planner_runs) return Status();
      return rig.arena.write(indices, 0, plan.data(), rows);
    };
    engine.spec.step = [&](Stream& s, int32_t rows) {
      launch(s, kernels::gather, ints(engine.out), ints(engine.cache), ints(indices), rows);
    };
    engine.record();

    plan = {1, 2, 3, 0};
    EXPECT_TRUE(engine.replay({0, 0, 0}, {0, 0, 0}).ok());
    EXPECT_EQ(rig.read(engine.buckets->output(0)), (Ints{10, 20, 30}));
    EXPECT_EQ(rig.found(), "");

    plan = {4, 5, 6, 0};
    planner_runs = false;
    EXPECT_TRUE(engine.replay({0, 0, 0}, {0, 0, 0}).ok());
    EXPECT_EQ(rig.read(engine.buckets->output(0)), (Ints{10, 20, 30}));
    EXPECT_EQ(rig.found(), "mem.stale_input");
  });
}

TEST(Patterns, G152_AReplayOfAnotherLayoutThanTheBuffersIsRefused) {
  on_every_schedule([](Rig& rig) {
    Engine engine(rig, {4});
    const Buffer table = rig.bind("table", 4, Lifetime::kPerStep);  // at capture: one id a row
    int64_t ids_per_row = 1;
    engine.spec.fill = [&](int32_t, int32_t rows) {
      const Ints ids(static_cast<size_t>(rows * ids_per_row), 0);
      return rig.arena.write(table, 0, std::span<const int32_t>(ids));
    };
    engine.record();
    EXPECT_TRUE(engine.replay({1, 2, 3, 4}, {1, 2, 3, 4}).ok());
    ids_per_row = 2;
    const Status status = engine.replay({1, 2, 3, 4}, {1, 2, 3, 4});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.findings()[0].id, "input.shape");
    EXPECT_EQ(status.findings()[0].where.field, "table");
    EXPECT_EQ(rig.found(), "");

    // The same by a kernel that writes the metadata on the device.
    launch(rig.stream, k::fill, ints(table), 0, 4);
    EXPECT_EQ(rig.found(), "");
    launch(rig.stream, k::fill, ints(table), 0, 8);
    EXPECT_EQ(rig.found(), "mem.red_zone");
  });
}

TEST(Buckets, WhatDoesNotFitIsRefusedBeforeAnythingIsRecorded) {
  Rig rig;
  Engine engine(rig);
  const BucketSpec good = engine.spec;
  const auto refused = [&](const std::function<void(BucketSpec&)>& spoil) {
    BucketSpec spec = good;
    spoil(spec);
    std::optional<Buckets> buckets;
    const Status status = Buckets::record(rig.stream, rig.allocator, spec, &buckets);
    return !status.ok() && !buckets && status.findings()[0].id == "input.shape";
  };
  EXPECT_FALSE(refused([](BucketSpec&) {}));
  EXPECT_TRUE(refused([](BucketSpec& s) { s.sizes = {}; }));
  EXPECT_TRUE(refused([](BucketSpec& s) { s.sizes = {4, 0}; }));
  EXPECT_TRUE(refused([](BucketSpec& s) { s.sizes = {9}; }));
  EXPECT_TRUE(refused([](BucketSpec& s) { s.inputs[1].padding.pop_back(); }));
  EXPECT_TRUE(refused([](BucketSpec& s) { s.outputs[0].shape[0] = 7; }));
}

TEST(Buckets, InputsAreAsLongAsTheBatch) {
  Rig rig;
  Engine engine(rig);
  engine.record();
  EXPECT_TRUE(engine.replay({1, 2}, {1, 2}).ok());
  EXPECT_FALSE(engine.replay({1, 2}, {1, 2, 3}).ok());
  EXPECT_FALSE(engine.replay({1, 2}, {1}).ok());
  EXPECT_FALSE(engine.buckets->replay(rig.stream, 2, {}).ok());
  EXPECT_EQ(rig.read(engine.buckets->output(0)), (Ints{2, 4}));
}

TEST(Buckets, ABucketsWarmUpRunsTwiceOnPaddingAlone) {
  Rig rig;
  Engine engine(rig, {2, 4});
  const Buffer runs = rig.bind("runs", 1);
  rig.write(runs, {0});
  engine.spec.step = [&](Stream& s, int32_t rows) {
    launch(s, k::add, ints(runs), 1, 1);
    launch(s, k::copy, ints(engine.out), ints(engine.x), rows);
  };
  engine.record();
  EXPECT_EQ(rig.read(runs), Ints{4});
  EXPECT_EQ(rig.read(engine.out.data, 4), Ints(4, -5));
  EXPECT_EQ(rig.found(), "");
}

TEST(Buckets, AFillThatFailsIsReportedAndNothingRuns) {
  Rig rig;
  Engine engine(rig, {4});
  engine.record();
  EXPECT_TRUE(engine.replay({1}, {1}).ok());
  engine.spec.fill = [&](int32_t live, int32_t) {
    Status status;
    if (live > 0) status = rig.arena.write(engine.slot, 8, Ints{1}.data(), 1);
    return status;
  };
  engine.record();
  rig.stream.fill(engine.out.data, 0, engine.out.bytes());
  EXPECT_FALSE(engine.replay({1}, {1}).ok());
  EXPECT_EQ(rig.read(engine.out), Ints(8, 0));
}

}  // namespace
}  // namespace shadowgraph::patterns_buckets_test
