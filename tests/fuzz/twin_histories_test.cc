// Histories run on a twin of another device, graphs and all: clean ones find nothing, and planted
// faults have the same numbers there.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "check/twin_device.h"
#include "faults/faults.h"
#include "fuzz/fuzz.h"
#include "fuzz/history/fault_hunt.h"
#include "fuzz/history/history.h"
#include "launch/attention_launch.h"

namespace shadowgraph::twin_histories_test {
namespace {

constexpr uint64_t kSeed = 29;

const SimOptions kUnchecked{.seed = 0, .choose = {}, .checked = false};

/// Histories on twins of one device, whose kernels run there as its own or as host functions.
template <class Other = SimDevice>
class Twins {
 public:
  explicit Twins(TwinDevice::HasKernel has_kernel) {
    options_.make_device = [this, has_kernel](const SimOptions& o) {
      return std::make_unique<TwinDevice>(o, other_, has_kernel);
    };
  }
  explicit Twins(bool has_kernels) : Twins([=](const Kernel&) { return has_kernels; }) {}
  MakeDevice make_device() const { return options_.make_device; }
  HistoryResult run(const Backend* backend, uint64_t number, const MakeTap& tap) {
    options_.backends = {backend};
    Choices choices = history_choices(kSeed, number, options_.backends);
    const History h = generate_history(choices, options_);
    return run_history(h, choices, tap);
  }

 private:
  Other other_{kUnchecked};
  HistoryOptions options_;
};

TEST(TwinHistories, OfEveryBackendFindNothing) {
  int64_t judged = 0;
  for (const bool has_kernels : {true, false}) {
    Twins<> twins(has_kernels);
    for (const Backend* backend : all_backends()) {
      const HistoryResult result = twins.run(backend, 1, nullptr);
      EXPECT_EQ(result.findings.to_string(), "ok") << backend->info().name;
      judged += result.judged;
    }
  }
  EXPECT_GT(judged, 100);
}

/// Leaves out what the second launch of every capture would do.
struct Forgetful : SimDevice {
  using SimDevice::SimDevice;
  int in_capture = 0;
  DeviceError stream_begin_capture(StreamHandle s, CaptureMode mode) override {
    in_capture = 0;
    return SimDevice::stream_begin_capture(s, mode);
  }
  DeviceError launch_host_func(StreamHandle s, HostFn fn, void* data) override {
    return SimDevice::launch_host_func(s, ++in_capture == 2 ? [](void*) {} : fn, data);
  }
};

TEST(TwinHistories, ADeviceThatLeavesALaunchOutIsFoundOfEveryBackend) {
  Twins<Forgetful> twins(false);
  for (const Backend* backend : all_backends()) {
    bool found = false;
    for (uint64_t number = 0; number < 8 && !found; ++number) {
      const HistoryResult result = twins.run(backend, number, nullptr);
      found = std::ranges::any_of(std::as_const(result.findings).findings(),
                                  [](const Finding& f) { return f.id == "device.twin"; });
    }
    EXPECT_TRUE(found) << backend->info().name;
  }
}

/// Knows kernels by their names, as a GPU does.
struct ByName : SimDevice {
  using SimDevice::SimDevice;
  DeviceError launch_kernel(const KernelLaunch& launch, StreamHandle s) override {
    KernelLaunch mine = launch;
    if (launch.kernel->name == kPagedAttention.name) mine.kernel = &kPagedAttention;
    return SimDevice::launch_kernel(mine, s);
  }
};

// K02 is in the attention kernel itself.
TEST(TwinHistories, AFaultInAKernelIsRunAsTheCpusOwn) {
  const Planted tap({find_fault("K02")});
  for (const bool by_name : {false, true}) {
    Twins<ByName> twins([=](const Kernel& k) { return by_name || !k.stands_in; });
    int64_t found = 0, other = 0;
    for (uint64_t number = 0; number < 8; ++number) {
      const HistoryResult result = twins.run(find_backend("trtllm_mha"), number, tap.tap());
      for (const Finding& f : std::as_const(result.findings).findings())
        ++(f.id == "device.twin" ? other : found);
    }
    EXPECT_GT(found, 0);
    EXPECT_EQ(other > 0, by_name);
  }
}

TEST(TwinHistories, AFaultOnAnotherDeviceIsToldApart) {
  const auto run = [](const char* id, bool by_name, uint64_t cases = 60) {
    Twins<ByName> twins([=](const Kernel& k) { return by_name || !k.stands_in; });
    const HuntOptions options{.seed = kSeed, .cases = cases, .threads = 1};
    return run_fault_on(twins.make_device(), Planted({find_fault(id)}), options);
  };
  const FaultTwin stale = run("K12", false);
  EXPECT_EQ(stale.cases, 60U);
  EXPECT_GT(stale.failed, 0U);
  EXPECT_FALSE(stale.laws.empty());
  EXPECT_EQ(stale.differences.to_string(), "ok");
  EXPECT_FALSE(run("K02", true).differences.ok());
  EXPECT_EQ(run("DV2", false, 1).failed, 1U);  // rare: the one history is one that notices it
}

TEST(TwinHistories, APlantedFaultHasTheSameNumbers) {
  Twins<> twins(false);
  const Backend* const backends[] = {find_backend("flashattention"), find_backend("triton"),
                                     find_backend("flashinfer")};
  int64_t planted = 0, found = 0;
  for (const Fault& fault : all_faults()) {
    if (fault.tap == nullptr || !fault.is_memory_safe()) continue;
    ++planted;
    const Planted tap({&fault});
    for (const Backend* backend : backends) {
      for (uint64_t number = 0; number < 2; ++number) {
        const HistoryResult result = twins.run(backend, number, tap.tap());
        const auto findings = std::as_const(result.findings).findings();
        found += findings.empty() ? 0 : 1;
        for (const Finding& f : findings)
          EXPECT_NE(f.id, "device.twin") << fault.id << ": " << f.to_string();
      }
    }
  }
  EXPECT_GT(planted, 10);
  EXPECT_GT(found, 40);
}

}  // namespace
}  // namespace shadowgraph::twin_histories_test
