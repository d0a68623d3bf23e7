// What frameworks do with recorded graphs, and what goes wrong there: G136
// to G160 by number (docs/references.md); those of buckets are in patterns_buckets_test.cc, those
// of attention metadata in patterns_metadata_test.cc. Every row has its fault beside the same
// program done right, on every schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "patterns_fixture.h"

namespace shadowgraph::patterns_test {
namespace {

void copy4(Stream& s, void* to, const void* from) {
  launch(s, k::copy, static_cast<int32_t*>(to), static_cast<const int32_t*>(from), 4);
}
void mul4(Stream& s, void* y, const void* x, int32_t m) {
  launch(s, k::mul, static_cast<int32_t*>(y), static_cast<const int32_t*>(x), m, 4);
}
void fill4(Stream& s, void* p, int32_t v) { launch(s, k::fill, static_cast<int32_t*>(p), v, 4); }

TEST(Patterns, G136_RebindingAStaticInputReplaysTheOldOne) {
  on_every_schedule([](Rig& rig) {
    const Buffer x = rig.bind("x", 4, Lifetime::kPerStep), other = rig.bind("other", 4);
    const Buffer out = rig.bind("out", 4, Lifetime::kOutput);
    const Buffer* static_x = &x;
    PooledGraph g = rig.record([&](Stream& s) { copy4(s, out.data, static_x->data); });

    rig.device.begin_step();
    rig.write(x, {1, 1, 1, 1});
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(out), Ints(4, 1));
    EXPECT_EQ(rig.found(), "");

    rig.device.begin_step();
    rig.write(other, {2, 2, 2, 2});
    static_x = &other;  // the fault: nothing that a replay sees
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(out), Ints(4, 1));
    EXPECT_EQ(rig.found(), "mem.stale_input");

    rig.device.begin_step();
    rig.write(x, {2, 2, 2, 2});
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(out), Ints(4, 2));
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G137_AKeptOutputHoldsTheNextReplaysResult) {
  on_every_schedule([](Rig& rig) {
    const Buffer x = rig.bind("x", 4), out = rig.bind("out", 4, Lifetime::kOutput);
    PooledGraph g = rig.record([&](Stream& s) { copy4(s, out.data, x.data); });

    rig.write(x, {1, 1, 1, 1});
    g.exec.replay(rig.stream);
    const WeakOutput first = rig.output(out.data, 4);
    EXPECT_EQ(rig.read(first), Ints(4, 1));
    EXPECT_EQ(rig.found(), "");

    rig.write(x, {2, 2, 2, 2});
    g.exec.replay(rig.stream);
    const WeakOutput second = rig.output(out.data, 4);
    EXPECT_EQ(rig.read(second), Ints(4, 2));
    EXPECT_EQ(rig.found(), "");
    EXPECT_EQ(rig.read(first), Ints(4, 2));
    EXPECT_EQ(rig.found(), "mem.clobbered_output");
  });
}

TEST(Patterns, G138_ADroppedTensorIsReusedInsideThePoolOnly) {
  on_every_schedule([](Rig& rig) {
    const Buffer out = rig.bind("out", 8);
    const void *first = nullptr, *second = nullptr;
    PooledGraph g = rig.record([&](Stream& s) {
      {
        const Tensor t = rig.allocator.allocate(16, "first");
        first = t.data();
        fill4(s, t.data(), 1);
        copy4(s, out.data, t.data());
      }
      const Tensor t = rig.allocator.allocate(16, "second");
      second = t.data();
      fill4(s, t.data(), 2);
      copy4(s, out.data + 16, t.data());
    });
    EXPECT_EQ(first, second);

    std::vector<Tensor> general;
    for (int i = 0; i < 16; ++i) {
      general.push_back(rig.allocator.allocate(16, "general"));
      EXPECT_NE(general.back().data(), first);
    }
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(out), (Ints{1, 1, 1, 1, 2, 2, 2, 2}));
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G139_ThePoolStaysForTheGraphAndForEveryTensor) {
  on_every_schedule([](Rig& rig) {
    Tensor kept;
    std::optional<PooledGraph> g = rig.record([&](Stream& s) {
      kept = rig.allocator.allocate(16, "kept");
      fill4(s, kept.data(), 5);
    });
    const std::weak_ptr<GraphPool> pool = g->pool;
    g->exec.replay(rig.stream);
    g.reset();
    EXPECT_FALSE(pool.expired());
    EXPECT_EQ(rig.read(kept.data(), 4), Ints(4, 5));
    EXPECT_EQ(rig.found(), "");

    void* at = kept.data();
    kept = {};
    EXPECT_TRUE(pool.expired());
    fill4(rig.stream, at, 6);
    EXPECT_EQ(rig.found(), "mem.use_after_free");
    // 512 bytes, as the pool's block was: its memory is anybody's now.
    EXPECT_EQ(rig.allocator.allocate(512, "general").data(), at);
  });
}

TEST(Patterns, G139_AGraphAloneKeepsThePool) {
  on_every_schedule([](Rig& rig) {
    PooledGraph g = rig.record([&](Stream& s) {
      const Tensor t = rig.allocator.allocate(16, "t");
      fill4(s, t.data(), 5);
    });
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.found(), "");
    g.pool.reset();  // the fault: only the exec is kept
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.found(), "mem.use_after_free");
  });
}

/// Two graphs of one pool: each makes 3 * x in a temporary and from that an output.
struct TwoGraphs {
  explicit TwoGraphs(Rig& r) : rig(r), pool(GraphPool::create(r.device)), x(r.bind("x", 4)) {}

  PooledGraph record(int32_t factor, Tensor* out, const void** temporary) {
    return rig.record(
        [&](Stream& s) {
          const Tensor t = rig.allocator.allocate(16, "temporary");
          *temporary = t.data();
          mul4(s, t.data(), x.data, 3);
          *out = rig.allocator.allocate(16, "out");
          mul4(s, out->data(), t.data(), factor);
        },
        pool);
  }

  Rig& rig;
  std::shared_ptr<GraphPool> pool;
  Buffer x;
};

TEST(Patterns, G140_TwoGraphsShareAPoolInTheOrderOfTheirRecording) {
  on_every_schedule([](Rig& rig) {
    TwoGraphs two(rig);
    Tensor out1, out2;
    const void *temporary1 = nullptr, *temporary2 = nullptr;
    PooledGraph g1 = two.record(1, &out1, &temporary1), g2 = two.record(2, &out2, &temporary2);
    EXPECT_EQ(temporary1, temporary2);
    EXPECT_EQ(two.pool->bytes(), 3u * 512u);

    rig.write(two.x, {1, 2, 3, 4});
    g1.exec.replay(rig.stream);
    const WeakOutput read1 = rig.output(out1.data(), 4);
    g2.exec.replay(rig.stream);
    const WeakOutput read2 = rig.output(out2.data(), 4);
    EXPECT_EQ(rig.read(read1), (Ints{3, 6, 9, 12}));
    EXPECT_EQ(rig.read(read2), (Ints{6, 12, 18, 24}));
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G141_AnotherGraphOfThePoolOverwritesADroppedTensor) {
  on_every_schedule([](Rig& rig) {
    TwoGraphs two(rig);
    Tensor out1, out2;
    const void *temporary1 = nullptr, *temporary2 = nullptr;
    PooledGraph g1 = two.record(1, &out1, &temporary1), g2 = two.record(2, &out2, &temporary2);

    rig.write(two.x, {1, 2, 3, 4});
    g1.exec.replay(rig.stream);
    const WeakOutput intermediate = rig.output(temporary1, 4);
    EXPECT_EQ(rig.read(intermediate), (Ints{3, 6, 9, 12}));
    EXPECT_EQ(rig.found(), "");
    g2.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(intermediate), (Ints{3, 6, 9, 12}));  // the same bytes, by luck
    EXPECT_EQ(rig.found(), "mem.clobbered_output");
  });
}

TEST(Patterns, G141_OutOfOrderAnEarlierGraphOverwritesALaterOnesOutput) {
  on_every_schedule([](Rig& rig) {
    const auto pool = GraphPool::create(rig.device);
    Tensor out;
    PooledGraph g1 = rig.record(
        [&](Stream& s) { fill4(s, rig.allocator.allocate(16, "temporary").data(), 1); }, pool);
    PooledGraph g2 = rig.record(
        [&](Stream& s) {
          out = rig.allocator.allocate(16, "out");
          fill4(s, out.data(), 2);
        },
        pool);
    g1.exec.replay(rig.stream);
    g2.exec.replay(rig.stream);
    const WeakOutput result = rig.output(out.data(), 4);
    EXPECT_EQ(rig.read(result), Ints(4, 2));
    EXPECT_EQ(rig.found(), "");
    g1.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(result), Ints(4, 1));
    EXPECT_EQ(rig.found(), "mem.clobbered_output");
  });
}

TEST(Patterns, G153_SegmentsReadWhatRanBetweenThemThroughABridge) {
  on_every_schedule([](Rig& rig) {
    const Buffer x = rig.bind("x", 4), middle = rig.bind("middle", 4), out = rig.bind("out", 4);
    const Buffer bridge = rig.bind("bridge", 4, Lifetime::kPerStep);
    const auto pool = GraphPool::create(rig.device);
    PooledGraph g1 = rig.record([&](Stream& s) { mul4(s, middle.data, x.data, 2); }, pool);
    PooledGraph g2 = rig.record([&](Stream& s) { mul4(s, out.data, bridge.data, 5); }, pool);
    for (int32_t v = 1; v <= 2; ++v) {
      rig.device.begin_step();
      rig.write(x, Ints(4, v));
      g1.exec.replay(rig.stream);
      const Tensor y = rig.allocator.allocate(16, "y");  // elsewhere in every step
      mul4(rig.stream, y.data(), middle.data, 3);
      copy4(rig.stream, bridge.data, y.data());
      g2.exec.replay(rig.stream);
      EXPECT_EQ(rig.read(out), Ints(4, 30 * v));
    }
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G154_WithoutTheBridgeCopyASegmentReadsAnOlderResult) {
  on_every_schedule([](Rig& rig) {
    const Buffer x = rig.bind("x", 4), middle = rig.bind("middle", 4), out = rig.bind("out", 4);
    Tensor y = rig.allocator.allocate(16, "y");
    rig.device.declare_buffer({.address = y.data(),
                               .bytes = 16,
                               .granule_bytes = 4,
                               .lifetime = Lifetime::kPerStep,
                               .name = "y"});
    const auto pool = GraphPool::create(rig.device);
    PooledGraph g1 = rig.record([&](Stream& s) { mul4(s, middle.data, x.data, 2); }, pool);
    PooledGraph g2 = rig.record([&](Stream& s) { mul4(s, out.data, y.data(), 5); }, pool);
    const auto step = [&](int32_t v, void* to) {
      rig.device.begin_step();
      rig.write(x, Ints(4, v));
      g1.exec.replay(rig.stream);
      mul4(rig.stream, to, middle.data, 3);
      g2.exec.replay(rig.stream);
    };
    step(1, y.data());
    EXPECT_EQ(rig.read(out), Ints(4, 30));
    EXPECT_EQ(rig.found(), "");

    const Tensor next = rig.allocator.allocate(16, "y of the next step");
    step(2, next.data());
    EXPECT_EQ(rig.read(out), Ints(4, 30));
    EXPECT_EQ(rig.found(), "mem.stale_input");

    y = {};  // nobody holds what the segment reads
    step(3, next.data());
    EXPECT_EQ(rig.found(), "mem.use_after_free");
  });
}

TEST(Patterns, G155_ASideStreamIsJoinedBeforeTheSegmentEnds) {
  on_every_schedule([](Rig& rig) {
    const Buffer out = rig.bind("out", 4);
    const auto record = [&](bool join, PooledGraph* g) {
      Stream side(rig.device);
      return PooledGraph::record(
          rig.stream, rig.allocator, GraphPool::create(rig.device),
          [&](Stream& s) {
            side.wait_for(s);
            fill4(side, out.data, 9);
            if (join) s.wait_for(side);
          },
          g);
    };
    PooledGraph g;
    const Status status = record(false, &g);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.findings()[0].id, "graph.device_error");
    EXPECT_EQ(status.findings()[0].got, "cudaErrorStreamCaptureUnjoined (904)");

    const Status joined = record(true, &g);
    EXPECT_TRUE(joined.ok()) << joined.to_string();
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(out), Ints(4, 9));
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G156_AWeakOutputIsGoodUntilThePoolsNextGraphRuns) {
  on_every_schedule([](Rig& rig) {
    const auto pool = GraphPool::create(rig.device);
    const void* at[2] = {};
    PooledGraph graphs[2];
    for (int32_t i = 0; i < 2; ++i) {
      graphs[i] = rig.record(
          [&](Stream& s) {
            const Tensor out = rig.allocator.allocate(16, "out");  // and nobody keeps it
            at[i] = out.data();
            fill4(s, out.data(), i + 1);
          },
          pool);
    }
    EXPECT_EQ(at[0], at[1]);
    graphs[0].exec.replay(rig.stream);
    const WeakOutput first = rig.output(at[0], 4);
    EXPECT_EQ(rig.read(first), Ints(4, 1));
    EXPECT_EQ(rig.found(), "");
    graphs[1].exec.replay(rig.stream);
    EXPECT_EQ(rig.read(first), Ints(4, 2));
    EXPECT_EQ(rig.found(), "mem.clobbered_output");
  });
}

TEST(Patterns, G157_ARecordedCopyFromAPlannersTemporaryReadsWhatIsThereLater) {
  on_every_schedule([](Rig& rig) {
    const Buffer plan = rig.bind("plan", 4);
    Ints staging(4, 1);  // stays: an allocator of the host lends it to others
    rig.device.host_block(staging.data(), 16, "planner's");
    PooledGraph g = rig.record([&](Stream& s) { s.copy(plan.data, staging.data(), 16); });
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(plan), Ints(4, 1));
    EXPECT_EQ(rig.found(), "");

    rig.device.host_block_ended(staging.data());
    std::ranges::fill(staging, 77);
    g.exec.replay(rig.stream);
    EXPECT_EQ(rig.read(plan), Ints(4, 77));
    EXPECT_EQ(rig.found(), "mem.host_lifetime");
  });
}

/// The bits of 32 rows of attend.
struct Attention {
  explicit Attention(Rig& r)
      : rig(r),
        x(r.bind("x", 32, Lifetime::kPersistent, DType::kF32)),
        out(r.bind("out", 32, Lifetime::kOutput, DType::kF32)) {
    std::vector<float> values(32);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.37f * static_cast<float>(i) - 4.0f;
    Status status = rig.arena.write(x, 0, std::span<const float>(values));
    status.add(rig.arena.upload(rig.stream.handle()));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  void run(Stream& s) const {
    launch(s, kernels::attend, reinterpret_cast<float*>(out.data), reinterpret_cast<float*>(x.data),
           32);
  }
  Ints bits() { return rig.read(out); }

  Rig& rig;
  Buffer x, out;
};

TEST(Patterns, G159_ReplaysOfTheSameInputsAgreeBitForBit) {
  on_every_schedule([](Rig& rig) {
    Attention attention(rig);
    PooledGraph g = rig.record([&](Stream& s) { attention.run(s); });
    std::optional<Ints> first;
    for (int i = 0; i < 5; ++i) {
      rig.stream.fill(attention.out.data, 0xAB, attention.out.bytes());
      g.exec.replay(rig.stream);
      const Ints bits = attention.bits();
      EXPECT_EQ(bits, first.value_or(bits));
      first = bits;
    }
    EXPECT_NE(*first, Ints(32, static_cast<int32_t>(0xABABABAB)));
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G160_AReplayIsTheEagerRunBitForBit) {
  on_every_schedule([](Rig& rig) {
    Attention attention(rig);
    attention.run(rig.stream);
    const Ints eager = attention.bits();
    PooledGraph g = rig.record([&](Stream& s) { attention.run(s); });
    rig.stream.fill(attention.out.data, 0xAB, attention.out.bytes());
    g.exec.replay(rig.stream);
    EXPECT_EQ(attention.bits(), eager);
    EXPECT_EQ(rig.found(), "");
  });
}

}  // namespace
}  // namespace shadowgraph::patterns_test
