// The grammar of device programs, and random programs under random schedules.
#include "fuzz/device/device_program.h"

#include <gtest/gtest.h>

#include "fuzz/device/device_grid.h"

namespace shadowgraph {
namespace {

uint64_t count(int max_calls) {
  uint64_t programs = 0;
  for (size_t first = 0; first < small_scope().size(); ++first)
    programs += for_each_small_program(first, max_calls, [](const DeviceProgram&) { return true; });
  return programs;
}

TEST(DeviceProgram, TheSmallScopeIsWalkedWhole) {
  // 9 calls on each of 2 streams and one on none. With f(n) sequences of n calls while the streams
  // are still alike: f(n) = 9 * 19^(n-1) + f(n-1) (the call on none first).
  ASSERT_EQ(small_scope().size(), 19);
  uint64_t expected = 0, power = 1, alike = 1;
  for (int calls = 1; calls <= 4; ++calls) {
    alike += 9 * power;
    power *= 19;
    expected += alike;
    EXPECT_EQ(count(calls), expected) << calls;
    EXPECT_EQ(small_program_count(calls), expected) << calls;
  }
}

TEST(DeviceProgram, TheWalkEndsWhereItIsTold) {
  uint64_t visited = 0;
  for_each_small_program(0, 4, [&](const DeviceProgram&) { return ++visited < 10; });
  EXPECT_EQ(visited, 10);
}

TEST(DeviceProgram, TheSameChoicesAreTheSameProgram) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Choices random{Rng(seed)};
    const std::string text = generate_device_program(random).to_string();
    Choices again{std::span<const uint32_t>(random.made())};
    EXPECT_EQ(generate_device_program(again).to_string(), text);
  }
}

TEST(DeviceProgram, RandomProgramsKeepTheLawsUnderRandomSchedules) {
  DeviceCoverage coverage;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    Choices choices{Rng::stream(1, seed)};
    const DeviceProgram program = generate_device_program(choices);
    const Status status = check_device_program(program, seed % 4, &coverage);
    ASSERT_EQ(status.to_string(), "ok") << "seed " << seed << ": " << program.to_string();
  }
  using enum DeviceError;
  for (const DeviceError code :
       {kStreamCaptureUnsupported, kStreamCaptureInvalidated, kStreamCaptureMerge,
        kStreamCaptureUnmatched, kStreamCaptureIsolation, kStreamCaptureImplicit, kCapturedEvent,
        kStreamCaptureWrongThread}) {
    EXPECT_TRUE(coverage.codes.contains(code)) << name_of(code);
  }
}

TEST(DeviceProgram, ShardsTogetherAreTheGrid) {
  const std::atomic<bool> stop = false;
  uint64_t programs = 0;
  DeviceCoverage coverage;
  for (Shard shard{0, 3}; shard.index < 3; ++shard.index) {
    const DeviceGridResult part = run_device_grid(
        3, 2, 10, [](size_t, size_t) {}, stop, shard);
    EXPECT_LT(part.programs, small_program_count(3) / 2);
    programs += part.programs;
    coverage.add(part.coverage);
  }
  const DeviceGridResult whole = run_device_grid(
      3, 2, 10, [](size_t, size_t) {}, stop);
  EXPECT_EQ(programs, small_program_count(3));
  EXPECT_EQ(whole.programs, programs);
  EXPECT_EQ(whole.coverage.codes, coverage.codes);
}

TEST(DeviceProgram, AGridStopsWhenItIsTold) {
  const std::atomic<bool> stop = true;
  const DeviceGridResult result = run_device_grid(
      4, 2, 10, [](size_t, size_t) {}, stop);
  EXPECT_EQ(result.programs, 0);
}

}  // namespace
}  // namespace shadowgraph
