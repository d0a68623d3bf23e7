// A kernel whose footprint lies is found in every build, if the lie has an effect: by the element
// that it leaves out, or says in vain.
#include "graph/memory/footprint_trial.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/kernels.h"
#include "graph/memory/asan_guard.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::footprint_trial_test {
namespace {

/// Elements of one access: what the body does, and what its footprint says.
struct Walk {
  int32_t first = 0, count = 0, said = 0;  // said: how many
};

/// out[i] is the sum of what is read, in int32. Both walks begin at their buffer's first element
/// plus `first`.
struct SumCall {
  Walk read, write;
  Access access = Access::kRead;  // of what is read
  bool adds = false;              // to what out held
  bool ignores = false;           // out is 0
};

Progress sum(LaunchFrame& f) {
  const auto c = f.scalar<SumCall>(2);
  const auto* in = f.pointer<int32_t>(0) + c.read.first;
  auto* out = f.pointer<int32_t>(1) + c.write.first;
  int32_t all = 0;
  for (int32_t i = 0; i < c.read.count; ++i) all += in[i];
  for (int32_t i = 0; i < c.write.count; ++i)
    out[i] = (c.ignores ? 0 : all) + (c.adds ? out[i] : 0);
  return Progress::kDone;
}

void say(const LaunchFrame& f, Footprint* spans) {
  const auto c = f.scalar<SumCall>(2);
  spans->push_back({f.pointer<void>(0), c.read.first, c.read.said, sizeof(int32_t), c.access});
  spans->push_back(
      {f.pointer<void>(1), c.write.first, c.write.said, sizeof(int32_t), Access::kWrite});
}

const Kernel kSum{"sum", sum, say};

constexpr int32_t kElements = 64, kMany = 1 << 16;

/// In the build of AddressSanitizer the first run already ends the test.
class FootprintTrialTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const BufferSpec specs[] = {{"in", DType::kI32, {kElements}, Lifetime::kPersistent},
                                {"out", DType::kI32, {kElements}, Lifetime::kPersistent},
                                {"large", DType::kI32, {kMany}, Lifetime::kPersistent}};
    ASSERT_TRUE(arena_.bind(specs, &buffers_).ok());
    for (const Buffer& b : buffers_) {
      std::vector<int32_t> values;
      for (int64_t i = 0; i < b.numel(); ++i) values.push_back(static_cast<int32_t>(3 * i + 1));
      stream_.copy(b.data, values.data(), b.bytes());
      stream_.synchronize();
    }
  }

  /// Eager, or recorded and replayed. What is found, "" if nothing is.
  std::string found(const SumCall& call, size_t in = 0) {
    KernelLaunch launch;
    launch.kernel = &kSum;
    launch.args.pointer(buffers_[in].data).pointer(buffers_[1].data).scalar(call);
    const auto run = [&](Stream& s) { s.launch(launch); };
    if (GetParam()) {
      Graph graph;
      GraphExec exec;
      EXPECT_TRUE(Graph::record(stream_, run, &graph).ok());
      EXPECT_TRUE(GraphExec::instantiate(graph, &exec).ok());
      exec.replay(stream_);
      stream_.synchronize();
    } else {
      run(stream_);
      stream_.synchronize();
    }
    Status status = device_.take_findings();
    EXPECT_LE(status.findings().size(), 1u) << status.to_string();
    if (status.ok()) return "";
    const Finding& f = status.findings()[0];
    EXPECT_NE(f.got.find("kernel sum"), std::string::npos) << f.got;
    EXPECT_EQ(f.where.phase, GetParam() ? "replay" : "eager");
    return f.id + " " + f.where.field + "[" + std::to_string(f.where.row.value_or(-999)) +
           "]: " + f.expected.substr(0, f.expected.find(':')) + "; " +
           f.got.substr(0, f.got.find(','));
  }
  int32_t out(int32_t i) const { return reinterpret_cast<int32_t*>(buffers_[1].data)[i]; }

  SimDevice device_{{.choose = {}, .proves_footprints = true}};
  Stream stream_{device_};
  Arena arena_{device_, 1 << 20};
  std::vector<Buffer> buffers_;
};

TEST_P(FootprintTrialTest, AnHonestKernelRunsAndItsResultStays) {
  for (int32_t first = 0; first < kElements; ++first) {
    EXPECT_EQ(found({{first, 1, 1}, {first, 1, 1}}), "");
    EXPECT_EQ(out(first), 3 * first + 1);
  }
  EXPECT_EQ(found({{0, kElements, kElements}, {0, kElements, kElements}}), "");
  EXPECT_EQ(out(0), out(kElements - 1));
  EXPECT_EQ(found({{kMany - 9, 9, 9}, {3, 2, 2}}, 2), "");
}

TEST_P(FootprintTrialTest, ARunOfTheSameBytesIsNoOtherResult) {
  const SumCall call{{5, 9, 9}, {3, 4, 4}};
  EXPECT_EQ(found(call), "");
  EXPECT_EQ(found(call), "");
}

#ifndef SG_ASAN

TEST_P(FootprintTrialTest, AReadBehindTheFootprintIsNamed) {
  const std::string got = "; another value there changes out[";
  EXPECT_EQ(found({{3, 5, 4}, {0, 2, 2}}), "mem.footprint in[7]: no influence" + got + "0]");
  EXPECT_EQ(found({{3, 5, 3}, {0, 2, 2}}).substr(0, 19), "mem.footprint in[6]") << "the first";
  EXPECT_EQ(found({{kElements - 4, 5, 4}, {9, 2, 2}}),
            "mem.footprint in[" + std::to_string(kElements) + "]: no influence" + got + "9]")
      << "the red zone";
  EXPECT_EQ(found({{-1, 1, 0}, {9, 2, 2}}), "mem.footprint in[-1]: no influence" + got + "9]");
  EXPECT_EQ(
      found({{kMany / 2, 5, 4}, {9, 2, 2}}, 2),
      "mem.footprint large[" + std::to_string(kMany / 2 + 4) + "]: no influence" + got + "9]");
}

TEST_P(FootprintTrialTest, WhatIsTouchedHasNoInfluence) {
  SumCall call{{3, 5, 5}, {0, 2, 2}, Access::kTouch};
  EXPECT_EQ(found(call).substr(0, 21), "mem.footprint in[3]: ");
  call.ignores = true;
  EXPECT_EQ(found(call), "");
  call.read.said = 0;
  EXPECT_EQ(found(call), "") << "a read that nothing depends on is no GPU's fault";
}

TEST_P(FootprintTrialTest, AResultDoesNotDependOnWhatItsPlaceHeld) {
  EXPECT_EQ(found({{3, 5, 5}, {7, 2, 2}, Access::kRead, true}),
            "mem.footprint out[7]: no influence; another value there changes out[7]");
}

TEST_P(FootprintTrialTest, AWriteBesideTheFootprintIsNamed) {
  EXPECT_EQ(found({{3, 5, 5}, {7, 4, 3}}), "mem.footprint out[10]: as before; other bytes");
  EXPECT_EQ(found({{3, 5, 5}, {kElements - 1, 2, 1}}),
            "mem.footprint out[" + std::to_string(kElements) + "]: as before; other bytes");
}

TEST_P(FootprintTrialTest, WhatTheFootprintWritesIsWritten) {
  EXPECT_EQ(found({{3, 5, 5}, {7, 3, 5}}), "mem.footprint out[10]: written; as before");
}

#endif

INSTANTIATE_TEST_SUITE_P(Runs, FootprintTrialTest, ::testing::Bool(),
                         [](const auto& run) { return run.param ? "Replayed" : "Eager"; });

}  // namespace
}  // namespace shadowgraph::footprint_trial_test
