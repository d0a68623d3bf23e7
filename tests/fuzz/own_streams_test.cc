// Histories whose uploads, pools and forwards are on streams of their own: with all waits they find
// nothing, and each wait that is left out is found by the order that is missing, on a device that
// runs all work in the plain order, too.
#include <gtest/gtest.h>

#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check/runner_streams.h"
#include "fuzz/fuzz.h"
#include "fuzz/history/history.h"

namespace shadowgraph::own_streams_test {
namespace {

constexpr uint64_t kSeed = 17;

struct OwnStreams {
  std::vector<const Backend*> backends;
  uint64_t device_seed = 0;

  HistoryResult run(uint64_t number, const MakeTap& tap = {}) const {
    Choices choices = history_choices(kSeed, number, backends);
    History h = generate_history(choices, backends);
    h.runner.own_streams = true;
    h.runner.device.seed = device_seed;
    return run_history(h, choices, tap);
  }
};

TEST(OwnStreams, HistoriesOfEveryBackendFindNothing) {
  int64_t judged = 0;
  for (const Backend* backend : all_backends()) {
    for (uint64_t number = 0; number < 3; ++number) {
      const HistoryResult result = OwnStreams{{backend}, number}.run(number);
      EXPECT_EQ(result.findings.to_string(), "ok") << backend->info().name << ' ' << number;
      judged += result.judged;
    }
  }
  EXPECT_GT(judged, 500);
}

template <StreamWait left_out>
struct Without final : Tap {
  bool waits(StreamWait wait) override {
    act(wait == left_out);
    return wait != left_out;
  }
};

struct LeftOut {
  const char* name;
  MakeTap tap;
  const char* backend;
};
void PrintTo(const LeftOut& l, std::ostream* out) { *out << l.name; }

class WaitLeftOut : public ::testing::TestWithParam<LeftOut> {};

TEST_P(WaitLeftOut, IsFoundByTheMissingOrderAlone) {
  std::set<std::string> laws;
  for (uint64_t number = 0; number < 400 && laws.empty(); ++number) {
    const HistoryResult result =
        OwnStreams{{find_backend(GetParam().backend)}}.run(number, GetParam().tap);
    for (const Finding& f : result.findings.findings()) laws.insert(f.id);
  }
  EXPECT_FALSE(laws.empty());
  for (const std::string& law : laws)
    EXPECT_TRUE(law == "mem.race" || law == "mem.unordered_access") << law;
}

TEST_P(WaitLeftOut, IsNothingWhereAllWorkIsOnOneStream) {
  const Backend* backend[] = {find_backend(GetParam().backend)};
  for (uint64_t number = 0; number < 10; ++number) {
    Choices choices = history_choices(kSeed, number, backend);
    History h = generate_history(choices, backend);
    h.runner.own_streams = false;
    const HistoryResult result = run_history(h, choices, GetParam().tap);
    EXPECT_EQ(result.findings.to_string(), "ok");
    EXPECT_EQ(result.acted, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    OwnStreams, WaitLeftOut,
    ::testing::Values(
        LeftOut{"uploads", tap_of<Without<StreamWait::kUploadsOnForward>>(), "flashattention"},
        LeftOut{"uploads_of_lists", tap_of<Without<StreamWait::kUploadsOnForward>>(), "flashinfer"},
        LeftOut{"forward", tap_of<Without<StreamWait::kForwardOnUploads>>(), "flashmla"},
        LeftOut{"pools", tap_of<Without<StreamWait::kPoolsOnForward>>(), "flashattention"},
        LeftOut{"states", tap_of<Without<StreamWait::kPoolsOnForward>>(), "gdn"},
        LeftOut{"forward_on_pools", tap_of<Without<StreamWait::kForwardOnPools>>(), "triton"}),
    [](const auto& left_out) { return std::string(left_out.param.name); });

/// The host does not wait until the copies of the last upload have read their staging.
struct WithoutFence final : Tap {
  struct Device final : SimDevice {
    using SimDevice::SimDevice;
    DeviceError event_synchronize(EventHandle) override { return DeviceError::kSuccess; }
  };
  std::unique_ptr<SimDevice> device(const SimOptions& options) override {
    return std::make_unique<Device>(options);
  }
};

TEST(OwnStreams, StagingThatIsWrittenTooEarlyIsFoundThoughItsCopyHasRun) {
  const HistoryResult result =
      OwnStreams{{find_backend("flashattention")}}.run(0, tap_of<WithoutFence>());
  ASSERT_FALSE(result.findings.ok());
  EXPECT_EQ(std::as_const(result.findings).findings()[0].id, "mem.host_lifetime");
}

}  // namespace
}  // namespace shadowgraph::own_streams_test
