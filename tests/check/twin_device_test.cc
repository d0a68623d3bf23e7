// A twin of a device that goes wrong in one place says so, by the buffer or the call; a twin of a
// sound one says nothing, whichever of its kernels it has bodies for.
#include "check/twin_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"

namespace shadowgraph::twin_device_test {
namespace {

/// to[i] = from[i] + 1, four of them.
void adds_one_touches(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<int32_t>(0), 0, 4, 4, Access::kRead});
  spans->push_back({f.pointer<int32_t>(1), 0, 4, 4, Access::kWrite});
}
Progress adds_one(LaunchFrame& f) {
  for (int i = 0; i < 4; ++i) f.pointer<int32_t>(1)[i] = f.pointer<int32_t>(0)[i] + 1;
  return Progress::kDone;
}
constinit const Kernel kAddOne{.name = "adds_one", .body = adds_one, .footprint = adds_one_touches};

const SimOptions kUnchecked{.seed = 0, .choose = {}, .checked = false};

/// A device that does something else in one place.
struct Slip : SimDevice {
  Slip() : SimDevice(kUnchecked) {}
  int64_t bodies = 0, host_functions = 0;
  bool forgets_replays = false, refuses_copies = false;
  Progress (*body)(LaunchFrame& f) = nullptr;  // in the place of the kernel's

  DeviceError launch_kernel(const KernelLaunch& launch, StreamHandle s) override {
    ++bodies;
    KernelLaunch mine = launch;
    if (body != nullptr) {
      kernel_ = *launch.kernel;
      kernel_.body = body;
      mine.kernel = &kernel_;
    }
    return SimDevice::launch_kernel(mine, s);
  }
  DeviceError launch_host_func(StreamHandle s, HostFn fn, void* data) override {
    ++host_functions;
    return SimDevice::launch_host_func(s, fn, data);
  }
  DeviceError graph_launch(ExecHandle exec, StreamHandle s) override {
    return forgets_replays ? DeviceError::kSuccess : SimDevice::graph_launch(exec, s);
  }
  DeviceError memcpy_async(const MemcpyParams& copy, StreamHandle s) override {
    return refuses_copies ? DeviceError::kInvalidValue : SimDevice::memcpy_async(copy, s);
  }

 private:
  Kernel kernel_;
};

/// Two numbers beside each other, added to eagerly and as a replay.
class Program {
 public:
  Program(DeviceApi& other, bool has_kernels, const Kernel& kernel = kAddOne)
      : device({}, other, [=](const Kernel&) { return has_kernels; }),
        arena_(device, 1 << 16),
        stream_(device) {
    bind();
    launch_.kernel = &kernel;
    launch_.args.pointer(buffers_[0].data).pointer(buffers_[1].data);
  }

  void bind_anew() {
    arena_.unbind();
    bind();
  }
  void retire() { EXPECT_TRUE(arena_.retire(buffers_[1], {0, 4}).ok()); }
  void write(std::vector<int32_t> values) {
    EXPECT_TRUE(arena_.write(buffers_[0], 0, std::span<const int32_t>(values)).ok());
    EXPECT_TRUE(arena_.upload(stream_.handle()).ok());
  }
  std::string run_eagerly() {
    write({1, 2, 3, 4});
    stream_.launch(launch_);
    return found();
  }
  std::string run_replay() {
    Graph graph;
    GraphExec exec;
    Status status = Graph::record(
        stream_, [&](Stream& s) { s.launch(launch_); }, &graph);
    if (status.ok()) status = GraphExec::instantiate(graph, &exec);
    EXPECT_TRUE(status.ok()) << status.to_string();
    write({5, 6, 7, 8});
    exec.replay(stream_);
    return found();
  }
  /// "law field" of what was found, or "".
  std::string found() {
    stream_.synchronize();
    Status status = stream_.take_status();
    status.add(device.take_findings());
    std::string s;
    for (const Finding& f : status.findings()) s += f.id + ' ' + f.where.field;
    return s;
  }
  int32_t first_result() const { return reinterpret_cast<const int32_t*>(buffers_[1].data)[0]; }

  TwinDevice device;

 private:
  void bind() {
    const BufferSpec specs[] = {{"from", DType::kI32, {4}, Lifetime::kPersistent, 1},
                                {"to", DType::kI32, {4}, Lifetime::kPersistent, 1}};
    EXPECT_TRUE(arena_.bind(specs, &buffers_).ok());
  }

  Arena arena_;
  Stream stream_;
  std::vector<Buffer> buffers_;
  KernelLaunch launch_;
};

TEST(TwinDevice, OfASoundDeviceFindsNothingWhicheverKernelsThatHas) {
  for (const bool has_kernels : {true, false}) {
    Slip sound;
    Program program(sound, has_kernels);
    EXPECT_EQ(program.run_eagerly(), "");
    EXPECT_EQ(program.first_result(), 2);
    EXPECT_EQ(program.run_replay(), "");
    EXPECT_EQ(program.first_result(), 6);
    EXPECT_EQ(sound.bodies, has_kernels ? 2 : 0);
    EXPECT_EQ(sound.host_functions, has_kernels ? 0 : 2);
  }
}

TEST(TwinDevice, FindsOtherNumbersByTheirBuffer) {
  Slip slip;
  slip.body = [](LaunchFrame& f) {
    (void)adds_one(f);
    f.pointer<int32_t>(1)[2] ^= 1;
    return Progress::kDone;
  };
  Program program(slip, true);
  EXPECT_EQ(program.run_eagerly(), "device.twin to");
  // It is told once; what this device does has its own numbers.
  EXPECT_EQ(program.run_replay(), "");
  EXPECT_EQ(program.first_result(), 6);
}

TEST(TwinDevice, FindsAWriteBesideTheBuffers) {
  Slip slip;
  slip.body = [](LaunchFrame& f) {
    (void)adds_one(f);
    f.pointer<int32_t>(1)[4] = 0;
    return Progress::kDone;
  };
  Program program(slip, true);
  EXPECT_EQ(program.run_eagerly(), "device.twin red zone behind to");
}

TEST(TwinDevice, FindsAReplayThatDoesNothing) {
  Slip slip;
  slip.forgets_replays = true;
  Program program(slip, false);
  EXPECT_EQ(program.run_eagerly(), "");
  EXPECT_EQ(program.run_replay(), "device.twin to");
}

TEST(TwinDevice, FindsAnotherAnswer) {
  Slip slip;
  slip.refuses_copies = true;
  Program program(slip, true);
  EXPECT_EQ(program.run_eagerly(), "device.twin cudaMemcpyAsync");
}

/// Any NaN, so that which one is chance.
template <uint32_t nan>
Progress gives_nan(LaunchFrame& f) {
  (void)adds_one(f);
  const uint32_t bits = nan;
  std::memcpy(f.pointer<int32_t>(1), &bits, sizeof bits);
  return Progress::kDone;
}

TEST(TwinDevice, TakesANaNForAnotherAndForNothingElse) {
  static constinit const Kernel kNaN{
      .name = "nan", .body = gives_nan<0xffc00000u>, .footprint = adds_one_touches};
  for (const auto body : {gives_nan<0x7fffffffu>, gives_nan<0x7fc07fc1u>, adds_one}) {
    Slip slip;
    slip.body = body;
    Program program(slip, true, kNaN);
    EXPECT_EQ(program.run_eagerly(), body == adds_one ? "device.twin to" : "");
  }
}

TEST(TwinDevice, MemoryThatIsRetiredOrBoundAnewIsTheSameOnBoth) {
  Slip sound;
  Program program(sound, true);
  EXPECT_EQ(program.run_eagerly(), "");
  program.retire();
  EXPECT_EQ(program.found(), "");
  EXPECT_EQ(program.first_result(), -1);
  program.bind_anew();
  EXPECT_EQ(program.found(), "");
  EXPECT_EQ(program.run_eagerly(), "");
}

TEST(TwinDevice, LeavesTheOtherAloneOnceWorkHereHasFaulted) {
  int32_t values[4] = {};  // outlives what runs there
  Slip slip;
  Program program(slip, true);
  KernelLaunch far;
  far.kernel = &kAddOne;
  far.args.pointer(values).pointer(values);  // no device's memory
  Stream stream(program.device);
  stream.launch(far);
  stream.synchronize();
  const Status status = stream.take_status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, "graph.device_error");
  const Status seen = program.device.take_findings();
  EXPECT_FALSE(seen.ok());
  for (const Finding& f : seen.findings()) EXPECT_NE(f.id, "device.twin");
}

}  // namespace
}  // namespace shadowgraph::twin_device_test
