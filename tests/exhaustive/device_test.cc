// All programs of the small scope: 2 streams, 1 event, 3 modes x {kernel, event record and wait,
// begin and end, memset, alloc}. SHADOWGRAPH_DEVICE_CALLS says up to how many calls (default 4;
// the long test runs 5).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "fuzz/device/device_grid.h"

namespace shadowgraph::device_test {
namespace {

int max_calls() {
  const char* text = std::getenv("SHADOWGRAPH_DEVICE_CALLS");
  return text == nullptr ? 4 : std::atoi(text);
}

TEST(DeviceExhaustive, EveryProgramKeepsTheLaws) {
  const std::atomic<bool> stop = false;
  const DeviceGridResult all = run_device_grid(
      max_calls(), static_cast<int>(std::thread::hardware_concurrency()), 10, [](size_t, size_t) {},
      stop);
  std::printf("%llu programs of up to %d calls\n", static_cast<unsigned long long>(all.programs),
              max_calls());
  for (const auto& [code, calls] : all.coverage.codes)
    std::printf("  %-36s %10lld calls\n", std::string(name_of(code)).c_str(),
                static_cast<long long>(calls));
  EXPECT_EQ(all.findings.to_string(), "ok");

  // Every code of the scope, and every transition of a capture's status.
  using enum DeviceError;
  std::vector<DeviceError> expected = {kSuccess, kIllegalState, kStreamCaptureUnsupported,
                                       kStreamCaptureInvalidated, kStreamCaptureIsolation};
  if (max_calls() >= 4)
    expected.insert(expected.end(), {kInvalidValue, kStreamCaptureMerge, kStreamCaptureUnmatched});
  if (max_calls() >= 5) expected.push_back(kStreamCaptureUnjoined);
  for (const DeviceError code : expected)
    EXPECT_TRUE(all.coverage.codes.contains(code)) << name_of(code);
  using enum CaptureStatus;
  for (const auto& step : {std::pair{kNone, kActive},
                           {kActive, kNone},
                           {kActive, kInvalidated},
                           {kInvalidated, kNone}})
    EXPECT_TRUE(all.coverage.transitions.contains(step));
}

}  // namespace
}  // namespace shadowgraph::device_test
