#include "conformance/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace shadowgraph::kernels_test {
namespace {

constexpr int64_t kElements = 128;
using Buffer = std::array<int32_t, kElements>;

KernelLaunch launch_of(const Kernel& kernel, Dim3 grid, Dim3 block, KernelArgs args) {
  return {.kernel = &kernel, .grid = grid, .block = block, .args = std::move(args)};
}

template <class... Values>
KernelLaunch warp(const Kernel& kernel, const Values&... values) {
  return launch_of(kernel, {1}, {32}, k::args(values...));
}

/// Runs to the end, as a device on which other work goes on.
void run(const KernelLaunch& launch) {
  LaunchFrame frame{.launch = launch};
  while (launch.kernel->body(frame) == Progress::kWaiting) {
    ASSERT_LT(++frame.calls, 100u) << launch.kernel->name << " never ends";
  }
}

/// Which elements of the buffer the footprint holds, with this access.
std::vector<int64_t> elements(const KernelLaunch& launch, Access access, const Buffer& buffer) {
  Footprint spans;
  const LaunchFrame frame{.launch = launch};
  launch.kernel->footprint(frame, &spans);
  std::vector<int64_t> result;
  for (const AccessSpan& span : spans) {
    if (span.access != access || span.buffer < buffer.data() ||
        span.buffer >= buffer.data() + buffer.size()) {
      continue;
    }
    const int64_t base = static_cast<const int32_t*>(span.buffer) - buffer.data();
    for (int64_t i = 0; i < span.count; ++i) result.push_back(base + span.first + i);
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<int64_t> changed_by(const KernelLaunch& launch, const Buffer& buffer) {
  const Buffer before = buffer;
  run(launch);
  std::vector<int64_t> changed;
  for (size_t i = 0; i < buffer.size(); ++i) {
    if (buffer[i] != before[i]) changed.push_back(static_cast<int64_t>(i));
  }
  return changed;
}

struct Case {
  KernelLaunch launch;
  std::vector<int64_t> reads, writes;  // elements of the buffer
};

/// One launch of each kernel whose writes are plain, over buffer[i] = 3: values that every write
/// changes.
std::vector<Case> cases(Buffer& a) {
  int32_t* p = a.data();
  return {
      {warp(k::fill, p, 7, 4), {}, {0, 1, 2, 3}},
      {launch_of(k::fill, {1}, {2}, k::args(p, 7, 4)), {}, {0, 1}},
      {launch_of(k::fill, {2}, {2}, k::args(p, 7, 9)), {}, {0, 1, 2, 3}},
      {warp(k::fill, p, 7, 0), {}, {}},
      {warp(k::add, p, 1, 2), {0, 1}, {0, 1}},
      {warp(k::mul, p, p + 8, 2, 2), {8, 9}, {0, 1}},
      {warp(k::len, p, p + 8, 1), {8}, {0, 1, 2}},
      {warp(k::struct4, p, k::S4{{1, 2, 4, 5}}), {}, {0, 1, 2, 3}},
      {warp(k::spin, p, 5, k::kSpinS), {}, {0}},
      {warp(k::spinflag, p + 8, p, 5, k::kSpinT), {8}, {0}},
      {warp(k::rmw, p, 1, k::kSpinS), {0}, {0}},
      {warp(k::sys, p, 5), {}, {0}},
      {warp(k::wild, p, int64_t{9}), {}, {9}},
      {warp(k::cold, p, 5), {}, {0}},
      {warp(k::cold2, p, 5), {}, {0}},
      {warp(k::whilestep, p, ConditionalHandle{1}), {0}, {0}},
      {warp(k::setcond, ConditionalHandle{1}, p), {0}, {}},
  };
}

TEST(Kernels, ABodyWritesWhatItsFootprintSays) {
  Buffer a;
  for (const Case& c : cases(a)) {
    a.fill(3);
    EXPECT_EQ(elements(c.launch, Access::kRead, a), c.reads) << c.launch.kernel->name;
    EXPECT_EQ(elements(c.launch, Access::kWrite, a), c.writes) << c.launch.kernel->name;
    EXPECT_EQ(changed_by(c.launch, a), c.writes) << c.launch.kernel->name;
  }
}

TEST(Kernels, AWriteThatTheFootprintLacksIsSeen) {
  Kernel short_fill = k::fill;
  short_fill.footprint = k::sys.footprint;
  Buffer a;
  a.fill(3);
  const KernelLaunch launch = warp(short_fill, a.data(), 7, 4);
  EXPECT_NE(changed_by(launch, a), elements(launch, Access::kWrite, a));
}

TEST(Kernels, CopyTakesTheValuesAndPtrTheAddress) {
  alignas(void*) Buffer a;
  a.fill(3);
  a[8] = 4;
  const KernelLaunch copy = warp(k::copy, a.data(), a.data() + 8, 1);
  EXPECT_EQ(elements(copy, Access::kRead, a), std::vector<int64_t>({8}));
  EXPECT_EQ(changed_by(copy, a), std::vector<int64_t>({0}));
  EXPECT_EQ(a[0], 4);
  const KernelLaunch ptr = warp(k::ptr, a.data() + 2, a.data() + 8);
  EXPECT_EQ(elements(ptr, Access::kWrite, a), std::vector<int64_t>({2, 3}));
  run(ptr);
  const int32_t* address = nullptr;
  std::memcpy(&address, a.data() + 2, sizeof address);
  EXPECT_EQ(address, a.data() + 8);
}

TEST(Kernels, LenIsBoundedByThirtyTwoWhateverItReads) {
  Buffer a;
  a.fill(3);
  for (const auto& [length, count] : {std::pair(1000, 32u), {-1, 0u}, {0, 0u}, {31, 31u}}) {
    a[64] = length;
    const KernelLaunch launch = launch_of(k::len, {4}, {32}, k::args(a.data(), a.data() + 64, 1));
    EXPECT_EQ(elements(launch, Access::kWrite, a).size(), count) << length;
  }
}

TEST(Kernels, CountSeesTheShapeOfTheLaunch) {
  Buffer a{};
  run(launch_of(k::count, {3}, {64}, k::args(a.data(), 1)));
  EXPECT_EQ(a[0], 3);
  EXPECT_EQ(a[1], 192);
  const KernelLaunch off = launch_of(k::count, {3}, {64}, k::args(a.data(), 0));
  EXPECT_TRUE(changed_by(off, a).empty());
}

TEST(Kernels, AppendCountsAtomicallyAndWritesOnePlace) {
  Buffer a{};
  const KernelLaunch first = warp(k::append, a.data(), 7), second = warp(k::append, a.data(), 8);
  EXPECT_EQ(elements(first, Access::kWrite, a), std::vector<int64_t>({1}));
  run(first);
  EXPECT_EQ(elements(second, Access::kWrite, a), std::vector<int64_t>({2}));
  EXPECT_EQ(elements(second, Access::kRead, a), std::vector<int64_t>({0}));
  run(second);
  EXPECT_EQ((std::array{a[0], a[1], a[2]}), (std::array{2, 7, 8}));
}

TEST(Kernels, RmwWritesBackWhatItReadBeforeItWaited) {
  Buffer a{};
  const KernelLaunch launch = warp(k::rmw, a.data(), 1, k::kSpinS);
  LaunchFrame frame{.launch = launch};
  EXPECT_EQ(launch.kernel->body(frame), Progress::kWaiting);
  a[0] = 50;
  frame.calls = 1;
  EXPECT_EQ(launch.kernel->body(frame), Progress::kDone);
  EXPECT_EQ(a[0], 1);
}

TEST(Kernels, SpinWritesAtItsEndOnly) {
  Buffer a{};
  const KernelLaunch launch = warp(k::spin, a.data(), 5, k::kSpinS);
  LaunchFrame frame{.launch = launch};
  EXPECT_EQ(launch.kernel->body(frame), Progress::kWaiting);
  EXPECT_EQ(a[0], 0);
  frame.stalled = true;
  EXPECT_EQ(launch.kernel->body(frame), Progress::kDone);
  EXPECT_EQ(a[0], 5);
}

TEST(Kernels, SpinflagWaitsForTheFlagOrRunsOutOfItsClocks) {
  Buffer a{};
  const KernelLaunch launch = warp(k::spinflag, a.data(), a.data() + 1, 5, k::kSpinT);
  LaunchFrame frame{.launch = launch, .calls = 1000};
  EXPECT_EQ(launch.kernel->body(frame), Progress::kWaiting);
  frame.stalled = true;
  EXPECT_EQ(launch.kernel->body(frame), Progress::kDone);
  EXPECT_EQ(a[1], -1);
  a[0] = 1;
  EXPECT_EQ(launch.kernel->body(frame), Progress::kDone);
  EXPECT_EQ(a[1], 5);
}

TEST(Kernels, ConditionalsAreSetFromMemory) {
  static uint64_t set_handle;
  static uint32_t set_value;
  Buffer a{};
  a[0] = 2;
  const auto set = [](LaunchFrame&, uint64_t handle, uint32_t value) {
    set_handle = handle;
    set_value = value;
  };
  const auto run_with_handles = [&set](const KernelLaunch& launch) {
    LaunchFrame frame{.launch = launch, .set_conditional = set};
    launch.kernel->body(frame);
    return set_value;
  };
  const KernelLaunch step = warp(k::whilestep, a.data(), ConditionalHandle{9});
  EXPECT_EQ(run_with_handles(step), 1u);
  EXPECT_EQ(run_with_handles(step), 0u);
  EXPECT_EQ(set_handle, 9u);
  a[0] = 6;
  EXPECT_EQ(run_with_handles(warp(k::setcond, ConditionalHandle{4}, a.data())), 6u);
  EXPECT_EQ(set_handle, 4u);
}

TEST(Kernels, ALabelIsAnInt32) {
  Buffer a{};
  for (const Case& c : cases(a)) {
    const int arg = c.launch.kernel->label_arg;
    if (arg < 0) continue;
    EXPECT_EQ(c.launch.args.kind(static_cast<size_t>(arg)), ArgKind::kScalar);
    EXPECT_EQ(c.launch.args.bytes(static_cast<size_t>(arg)).size(), sizeof(int32_t));
  }
}

}  // namespace
}  // namespace shadowgraph::kernels_test
