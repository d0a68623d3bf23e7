// Annotations and work that is still pending when they are made.
#include <gtest/gtest.h>

#include "conformance/kernels.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::annotations_test {
namespace {

class Annotated : public ::testing::TestWithParam<uint64_t> {
 protected:
  Annotated() : device_({.seed = GetParam(), .choose = {}}), stream_(device_) {
    void* p = nullptr;
    device_.malloc(8 * sizeof(int32_t), &p);
    x_ = static_cast<int32_t*>(p);
    device_.declare_buffer({.address = x_, .bytes = 16, .name = "x"});
    device_.declare_buffer({.address = x_ + 4, .bytes = 16, .name = "y"});
    stream_.fill(x_, 1, 16);
    stream_.fill(x_ + 4, 1, 16);
    stream_.synchronize();
  }
  void copy_x_to_y() {
    KernelLaunch launch;
    launch.kernel = &k::copy;
    launch.args.pointer(x_ + 4).pointer(x_).scalar(int32_t{4});
    stream_.launch(launch);
  }
  std::string found() {
    stream_.synchronize();
    EXPECT_EQ(stream_.take_status().to_string(), "ok");
    const Status status = device_.take_findings();
    return status.ok() ? "" : status.findings()[0].id;
  }

  SimDevice device_;
  Stream stream_;
  int32_t* x_ = nullptr;
};

TEST_P(Annotated, WorkEnqueuedBeforeARetireReadsWhatWasThere) {
  copy_x_to_y();
  device_.retire(x_, 16);
  EXPECT_EQ(found(), "");
  copy_x_to_y();
  EXPECT_EQ(found(), "mem.stale_input");
}

TEST_P(Annotated, WorkEnqueuedBeforeABufferEndsReadsIt) {
  copy_x_to_y();
  device_.undeclare_buffer(x_);
  EXPECT_EQ(found(), "");
  copy_x_to_y();
  EXPECT_EQ(found(), "mem.use_after_free");
}

TEST_P(Annotated, AStepBeginsWithoutAnEffectOnOlderWork) {
  device_.declare_buffer({.address = x_, .bytes = 16, .lifetime = Lifetime::kPerStep, .name = "x"});
  stream_.fill(x_, 1, 16);
  copy_x_to_y();
  device_.begin_step();
  EXPECT_EQ(found(), "");
  copy_x_to_y();
  EXPECT_EQ(found(), "mem.stale_input");
}

INSTANTIATE_TEST_SUITE_P(Seeds, Annotated, ::testing::Range<uint64_t>(0, 16));

}  // namespace
}  // namespace shadowgraph::annotations_test
