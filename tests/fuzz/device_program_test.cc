// The grammar of device programs, and random programs under random schedules.
#include "fuzz/device/device_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/device/device_grid.h"

namespace shadowgraph::device_program_test {
namespace {

/// Appends all programs that go on from this one by so many calls or fewer, each before those that
/// go on from it.
void walk(const DeviceProgram& from, int calls, std::vector<std::string>* texts) {
  const bool named = from.to_string().find(" s") != std::string::npos;
  for (const DeviceCall& call : small_scope()) {
    DeviceProgram program = from;
    program.calls.push_back(call);
    const std::string text = program.to_string();
    // Which of the two streams is the first nobody can tell.
    if (!named && text.find(" s1") != std::string::npos) continue;
    texts->push_back(text);
    if (calls > 1) walk(program, calls - 1, texts);
  }
}

TEST(SmallPrograms, AreAllOfTheScopeInTheOrderOfAWalk) {
  for (int calls = 1; calls <= 4; ++calls) {
    const SmallPrograms programs(calls);
    std::vector<std::string> texts;
    walk({}, calls, &texts);
    ASSERT_EQ(programs.size(), texts.size()) << calls;
    for (size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(programs[i].to_string(), texts[i]);
  }
}

TEST(SmallPrograms, AreAsManyAsTheFormulaSays) {
  // 9 calls on each of 2 streams and one on none. With f(n) sequences of n calls while the streams
  // are still alike: f(n) = 9 * 19^(n-1) + f(n-1) (the call on none first).
  ASSERT_EQ(small_scope().size(), 19);
  uint64_t expected = 0, power = 1, alike = 1;
  for (int calls = 1; calls <= 12; ++calls) {
    alike += 9 * power;
    power *= 19;
    expected += alike;
    EXPECT_EQ(SmallPrograms(calls).size(), expected) << calls;
  }
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

DeviceGridResult run(int max_calls, const CaseRange& range, int threads = 2) {
  const std::atomic<bool> stop = false;
  return run_device_grid(
      max_calls, threads, 10, [](uint64_t done, uint64_t of) { EXPECT_LT(done, of); }, stop, range);
}

TEST(DeviceGrid, RangesOfAnyCutAreTheGrid) {
  const uint64_t size = SmallPrograms(3).size();
  const DeviceGridResult whole = run(3, {});
  EXPECT_EQ(whole.programs, size);
  EXPECT_EQ(whole.findings.to_string(), "ok");
  for (const uint64_t cut : {uint64_t{1}, uint64_t{19}, uint64_t{1000}, size, size + 1}) {
    for (const uint64_t shards : {1, 3}) {
      DeviceGridResult sum;
      for (uint64_t first = 0; first < size; first += cut) {
        for (Shard shard{0, shards}; shard.index < shards; ++shard.index) {
          const DeviceGridResult part = run(3, {first, cut, shard}, first % 2 == 0 ? 1 : 3);
          EXPECT_EQ(part.programs, (CaseRange{first, std::min(cut, size - first), shard}).size());
          sum.programs += part.programs;
          sum.coverage.add(part.coverage), sum.laws.add(part.laws);
        }
      }
      EXPECT_EQ(sum.programs, whole.programs);
      EXPECT_EQ(sum.coverage.codes, whole.coverage.codes);
      EXPECT_EQ(sum.coverage.transitions, whole.coverage.transitions);
      EXPECT_TRUE(std::ranges::equal(sum.laws.all(), whole.laws.all()));
    }
  }
}

TEST(DeviceGrid, RunsTheProgramsOfItsNumbersAlone) {
  // Nobody walks to the end of a grid of 10^15 programs.
  const SmallPrograms programs(12);
  EXPECT_EQ(run(12, {programs.size() - 10, 10}).programs, 10u);
  EXPECT_EQ(run(12, {programs.size() - 10, 1000}).programs, 10u);
  EXPECT_EQ(run(12, {programs.size(), 1000}).programs, 0u);
  EXPECT_EQ(programs[programs.size() - 1].calls.size(), 12u);
  const SmallPrograms few(3);
  DeviceCoverage alone;
  for (const uint64_t number : {100, 101})
    EXPECT_TRUE(check_device_program(few[number], 0, &alone).ok());
  EXPECT_EQ(run(3, {100, 2}).coverage.codes, alone.codes);
}

TEST(DeviceGrid, StopsWhenItIsTold) {
  const std::atomic<bool> stop = true;
  const DeviceGridResult result = run_device_grid(
      4, 2, 10, [](uint64_t, uint64_t) {}, stop);
  EXPECT_EQ(result.programs, 0);
}

}  // namespace
}  // namespace shadowgraph::device_program_test
