// The merge launch: the call's bits, and values without mass that nobody reads.
#include "launch/merge_launch.h"

#include <limits>

#include "launch/launch_world.h"

namespace shadowgraph::merge_launch_test {
namespace {

constexpr int64_t kRows = 3, kHeads = 2, kDim = 8;
constexpr float kEmpty = -std::numeric_limits<float>::infinity();

/// Two partial results on a device; the logarithms lie head by head, as a kernel leaves them.
class World : public LaunchWorld {
 public:
  explicit World(DType dtype = DType::kF32) {
    for (Buffer* b : {&v_a, &v_b, &out}) {
      *b = bind(b == &v_a ? "v_a" : b == &v_b ? "v_b" : "out", dtype, {kRows, kHeads, kDim}, kDim);
    }
    for (Buffer* b : {&s_a, &s_b, &lse})
      *b = bind(b == &s_a ? "s_a" : b == &s_b ? "s_b" : "lse", DType::kF32, {kHeads, kRows});
    for (const Buffer* b : {&v_a, &v_b, &s_a, &s_b}) randomise(*b);
  }
  MergeState<LseBase::kNatural> call() const {
    const auto turned = [](const Buffer& b) {
      return TensorView(b.data, DType::kF32, {kRows, kHeads}, {1, kRows});
    };
    MergeState<LseBase::kNatural> c;
    c.v_a = v_a.view(), c.s_a = turned(s_a), c.v_b = v_b.view(), c.s_b = turned(s_b);
    c.out = out.view();
    c.lse = NaturalLse(turned(lse));
    return c;
  }
  void clear() { fill(out, 0), fill(lse, 0); }
  Bytes results() {
    Bytes all = bytes(out);
    const Bytes more = bytes(lse);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Bytes expected() {
    stream().synchronize();
    Bytes all(out.bytes() + lse.bytes());
    MergeState<LseBase::kNatural> c = call();
    c.out.data = all.data();
    c.lse.tensor.data = all.data() + out.bytes();
    const Status status = merge_state(c);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return all;
  }

  Buffer v_a, s_a, v_b, s_b, out, lse;
};

TEST(MergeLaunch, TheBitsOfTheCallEagerAndReplayed) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    World w(dtype);
    const Bytes expected = w.expected();
    w.run_both(
        merge_launch(w.call()), [&] { w.clear(); },
        [&] {
          EXPECT_EQ(w.results(), expected);
          EXPECT_EQ(w.found(), "ok");
        });
  }
}

TEST(MergeLaunch, LogarithmsAreReadWhenItRuns) {
  World w;
  const Bytes before = w.expected();
  GraphExec exec = w.record(merge_launch(w.call()));
  w.write(w.s_b, 1, std::vector<float>{3});
  w.clear();
  exec.replay(w.stream());
  EXPECT_EQ(w.results(), w.expected());
  EXPECT_NE(w.results(), before);
  EXPECT_EQ(w.found(), "ok");
}

TEST(MergeLaunch, ValuesOfAnEmptyStateAreNotRead) {
  World w;
  const Buffer never = w.bind("never", DType::kF32, {kRows, kHeads, kDim}, kDim);
  MergeState<LseBase::kNatural> call = w.call();
  call.v_b = never.view();
  for (int64_t i = 0; i < kRows * kHeads; ++i) w.write(w.s_b, i, std::vector<float>{kEmpty});
  const auto clear = [&] { w.clear(); };
  w.run_both(merge_launch(call), clear, [&] {
    EXPECT_EQ(w.bytes(w.out), w.bytes(w.v_a)) << "one state alone keeps its values";
    EXPECT_EQ(w.found(), "ok");
  });
  w.write(w.s_b, 0, std::vector<float>{0});
  w.run_both(merge_launch(call), clear, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.uninit_read: never["), std::string::npos) << found;
  });
}

TEST(MergeLaunch, RowsPastTheLastOffsetAreNeitherReadNorWritten) {
  World w;
  // The last row of one state was never written.
  const Buffer v = w.bind("v", DType::kF32, {kRows, kHeads, kDim}, kDim);
  w.write(v, 0, std::vector<float>(2 * kHeads * kDim, 1));
  const Buffer cu_q = w.bind_values("cu_q", DType::kI32, Ints{0, 1, 2});
  MergeState<LseBase::kNatural> call = w.call();
  call.v_a = v.view();
  const auto rows_of = [&](const Bytes& all, size_t first, size_t count) {
    const size_t row = kHeads * kDim * sizeof(float);
    return Bytes(&all[first * row], &all[first * row] + count * row);
  };
  w.clear();
  MergeState<LseBase::kNatural> strict = call;
  for (ConstTensorView* t : {&strict.v_a, &strict.s_a, &strict.v_b, &strict.s_b}) t->shape[0] = 2;
  for (TensorView* t : {&strict.out, &strict.lse.tensor}) t->shape[0] = 2;
  w.stream().synchronize();
  ASSERT_EQ(merge_state(strict).to_string(), "ok");
  const Bytes expected = w.bytes(w.out);
  w.run_both(
      merge_launch(call, World::elements<int32_t>(cu_q)), [&] { w.clear(); },
      [&] {
        EXPECT_EQ(w.bytes(w.out), expected);
        EXPECT_EQ(rows_of(w.bytes(w.out), 2, 1), Bytes(kHeads * kDim * sizeof(float)));
        EXPECT_EQ(w.found(), "ok");
      });
  w.run_both(
      merge_launch(call), [] {},
      [&] { EXPECT_NE(w.found().find("mem.uninit_read: v["), std::string::npos); });
}

TEST(MergeLaunch, ItsRowsAreNoRequests) {
  World w;
  // Row 0 of the batch is not who owns this memory: a row of out is a token.
  w.set_owner(w.out, 0, 7);
  const OwnerId rows[] = {1, 2, 3};
  w.device.set_row_owners(rows);
  w.run_both(
      merge_launch(w.call()), [] {}, [&] { EXPECT_EQ(w.found(), "ok"); });
}

TEST(MergeLaunch, ARefusedCallPoisonsTheOutputs) {
  World w;
  MergeState<LseBase::kNatural> call = w.call();
  call.v_b.shape[2] = kDim - 1;
  w.run_both(
      merge_launch(call), [&] { w.clear(); },
      [&] {
        EXPECT_EQ(w.results(), Bytes(w.results().size(), std::byte{0xff}));
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(MergeLaunch, BuiltAgainItIsTheSameByteByByte) {
  const World w;
  MergeState<LseBase::kNatural> call = w.call();
  const KernelLaunch kept = merge_launch(call);
  EXPECT_EQ(kept, merge_launch(call));
  std::swap(call.s_a, call.s_b);
  EXPECT_NE(kept, merge_launch(call));
}

}  // namespace
}  // namespace shadowgraph::merge_launch_test
