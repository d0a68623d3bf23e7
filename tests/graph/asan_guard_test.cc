// A kernel whose footprint lies does not get away with it under AddressSanitizer. That the other
// kernels are honest is what every test that runs them shows in such a build.
#include "graph/memory/asan_guard.h"

#include <gtest/gtest.h>

#include <vector>

#include "conformance/kernels.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::asan_guard_test {
namespace {

// Reads or writes elements [first, first + count) of p one by one, and declares [said, said +
// count): (p, first, said, count, writes), all int32.
Progress walk(LaunchFrame& f) {
  volatile int32_t* p = f.pointer<int32_t>(0) + f.scalar<int32_t>(1);
  for (int32_t i = 0; i < f.scalar<int32_t>(3); ++i) {
    if (f.scalar<int32_t>(4) != 0) {
      p[i] = i;
    } else {
      (void)p[i];
    }
  }
  return Progress::kDone;
}
void say(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<void>(0), f.scalar<int32_t>(2), f.scalar<int32_t>(3), sizeof(int32_t),
                    f.scalar<int32_t>(4) != 0 ? Access::kWrite : Access::kRead});
}
const Kernel kWalk{"walk", walk, say};
const Kernel kSilentWalk{"silent walk", walk};

constexpr int32_t kElements = 64;

class AsanGuardTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const BufferSpec specs[] = {{"before", DType::kI32, {kElements}, Lifetime::kPersistent},
                                {"walked", DType::kI32, {kElements}, Lifetime::kPersistent},
                                {"behind", DType::kI32, {kElements}, Lifetime::kPersistent}};
    ASSERT_TRUE(arena_.bind(specs, &buffers_).ok());
    for (const Buffer& b : buffers_) stream_.fill(b.data, 0, b.bytes());
    stream_.synchronize();
  }

  /// Eager, or recorded and replayed.
  void run(const Kernel& kernel, int32_t first, int32_t said, int32_t count, bool writes) {
    KernelLaunch launch;
    launch.kernel = &kernel;
    launch.args = k::args(reinterpret_cast<int32_t*>(buffers_[1].data), first, said, count,
                          static_cast<int32_t>(writes));
    if (!GetParam()) return stream_.launch(launch);
    Graph graph;
    GraphExec exec;
    Status status = Graph::record(
        stream_, [&](Stream& s) { s.launch(launch); }, &graph);
    if (status.ok()) status = GraphExec::instantiate(graph, &exec);
    ASSERT_TRUE(status.ok()) << status.to_string();
    exec.replay(stream_);
    stream_.synchronize();
  }

  SimDevice device_;
  Stream stream_{device_};
  Arena arena_{device_, 1 << 14};
  std::vector<Buffer> buffers_;
};

TEST_P(AsanGuardTest, AnHonestKernelRuns) {
  for (int32_t first = 0; first < 8; ++first) {
    for (int32_t count : {0, 1, 2, 3, 7, 8, kElements - first}) {
      for (const bool writes : {false, true}) run(kWalk, first, first, count, writes);
    }
  }
  EXPECT_TRUE(device_.take_findings().ok());
}

TEST_P(AsanGuardTest, EverythingIsOpenAgainAfterTheKernel) {
  run(kWalk, 8, 8, 4, true);
  for (const Buffer& b : buffers_) {
    for (size_t i = 0; i < b.bytes(); ++i)
      b.data[i] = static_cast<std::byte>(i);  // a report here is the test's failure
  }
  EXPECT_TRUE(device_.take_findings().ok());
}

TEST_P(AsanGuardTest, AKernelWithoutAFootprintSeesEverything) {
  run(kSilentWalk, -kElements, 0, 2 * kElements, false);
  EXPECT_TRUE(device_.take_findings().ok());
}

class AsanGuardDeathTest : public AsanGuardTest {
 protected:
  void SetUp() override {
    if (!kHasAsan) GTEST_SKIP() << "the guard is AddressSanitizer's: run in the asan preset";
    AsanGuardTest::SetUp();
  }
};

TEST_P(AsanGuardDeathTest, OneElementBehindTheFootprint) {
  for (int32_t first = 0; first < 4; ++first) {
    for (const bool writes : {false, true})
      EXPECT_DEATH(run(kWalk, first + 1, first, 3, writes), "use-after-poison");
  }
}

TEST_P(AsanGuardDeathTest, OneElementBeforeTheFootprint) {
  for (int32_t first = 2; first < 8; first += 2) {  // where 8 bytes begin
    for (const bool writes : {false, true})
      EXPECT_DEATH(run(kWalk, first - 1, first, 3, writes), "use-after-poison");
  }
}

TEST_P(AsanGuardDeathTest, TheEndsOfTheBufferAndItsNeighbours) {
  EXPECT_DEATH(run(kWalk, -1, 0, 1, false), "use-after-poison");
  EXPECT_DEATH(run(kWalk, kElements, kElements - 1, 1, true), "use-after-poison");
  const auto elements = static_cast<int32_t>((buffers_[1].data - buffers_[0].data) / 4);
  EXPECT_DEATH(run(kWalk, -elements, 0, 1, false), "use-after-poison");
  EXPECT_DEATH(run(kWalk, elements, 0, 1, false), "use-after-poison");
}

TEST_P(AsanGuardDeathTest, NothingWasDeclared) {
  EXPECT_DEATH(run(kWalk, 8, 8 + kElements, 1, false), "use-after-poison");
}

constexpr auto kName = [](const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Replayed" : "Eager";
};
INSTANTIATE_TEST_SUITE_P(Modes, AsanGuardTest, ::testing::Bool(), kName);
INSTANTIATE_TEST_SUITE_P(Modes, AsanGuardDeathTest, ::testing::Bool(), kName);

}  // namespace
}  // namespace shadowgraph::asan_guard_test
