// Offsets are made of ends by what memory holds when the launch runs, and no further.
#include "launch/ascend_launch.h"

#include "launch/launch_world.h"

namespace shadowgraph::ascend_launch_test {
namespace {

TEST(IndptrLaunch, PutsAZeroBeforeTheEnds) {
  LaunchWorld w;
  const Buffer ends = w.bind_values("actual_seq_lengths", DType::kI32, Ints{4, 4, 9, 5});
  const Buffer indptr = w.bind("cu_seqlens_q", DType::kI32, {5});
  const auto first = [&](const Buffer& b, size_t n) { return w.elements<int32_t>(b).first(n); };
  const InclusiveEnds three(first(ends, 3));
  const KernelLaunch launch = indptr_launch(three, first(indptr, 4));
  w.run_both(
      launch,
      [&] {
        w.write(indptr, 0, Ints{7, 7, 7, 7, 7});
      },
      [&] {
        EXPECT_EQ(w.found(), "ok");
        const auto held = w.elements<int32_t>(indptr);
        EXPECT_EQ(Ints(held.begin(), held.end()), (Ints{0, 4, 4, 9, 7}));
      });
}

TEST(IndptrLaunch, AReplayReadsWhatTheListThenHolds) {
  LaunchWorld w;
  const Buffer ends = w.bind_values("actual_seq_lengths", DType::kI32, Ints{1, 2});
  const Buffer indptr = w.bind("cu_seqlens_q", DType::kI32, {3});
  GraphExec exec = w.record(
      indptr_launch(InclusiveEnds(w.elements<int32_t>(ends)), w.elements<int32_t>(indptr)));
  w.write(ends, 0, Ints{3, 8});
  exec.replay(w.stream());
  EXPECT_EQ(w.found(), "ok");
  const auto held = w.elements<int32_t>(indptr);
  EXPECT_EQ(Ints(held.begin(), held.end()), (Ints{0, 3, 8}));
}

TEST(IndptrLaunch, AListThatNobodyWroteIsSeen) {
  LaunchWorld w;
  const Buffer ends = w.bind("actual_seq_lengths", DType::kI32, {2});
  const Buffer indptr = w.bind("cu_seqlens_q", DType::kI32, {3});
  w.stream().launch(
      indptr_launch(InclusiveEnds(w.elements<int32_t>(ends)), w.elements<int32_t>(indptr)));
  EXPECT_NE(w.found().find("actual_seq_lengths"), std::string::npos);
}

}  // namespace
}  // namespace shadowgraph::ascend_launch_test
