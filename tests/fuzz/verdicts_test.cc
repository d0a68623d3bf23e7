// A fault is found, missed, inert or never acted: told apart by what launches read and by outputs.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "faults/faults.h"
#include "fuzz/history/effects.h"
#include "fuzz/planted_histories.h"

namespace shadowgraph::verdicts_test {
namespace {

/// It says that it acts, and changes nothing.
struct ActsOnly final : Tap {
  void batch(ForwardBatch& batch) override {
    lens_.assign(batch.seq_lens.begin(), batch.seq_lens.end());
    batch.seq_lens = lens_;
    act();
  }

 private:
  std::vector<int32_t> lens_;
};

/// Every launch has a block more, in which no kernel here has anything to do.
struct LargerGrids final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override {
    for (TappedLaunch& one : all) ++one.launch.grid.x;
    act();
  }
};

struct NeverActs final : Tap {};

FuzzResult run(const MakeTap& tap, uint64_t cases = 60, const char* backend = "flashattention") {
  return planted_histories(tap, {find_backend(backend)}, cases);
}

TEST(PlantVerdict, AFaultThatChangesNothingThatIsReadIsInert) {
  const FuzzResult result = run(tap_of<ActsOnly>());
  EXPECT_EQ(verdict_of(result), PlantVerdict::kInert);
  EXPECT_GT(result.acted, 0u);
  EXPECT_FALSE(result.unnoticed);
}

TEST(PlantVerdict, AFaultThatChangesSomethingUnnoticedIsMissed) {
  const FuzzResult result = run(tap_of<LargerGrids>());
  EXPECT_EQ(verdict_of(result), PlantVerdict::kMissed);
  ASSERT_TRUE(result.unnoticed);
  EXPECT_FALSE(result.unnoticed->what.empty());
  HistoryOptions options;
  options.backends = {find_backend("flashattention")};
  options.tap = tap_of<LargerGrids>();
  EXPECT_EQ(changed_by_plant(result.unnoticed->choices, options), result.unnoticed->what);
}

TEST(PlantVerdict, AFaultThatNoStepConcernsNeverActed) {
  EXPECT_EQ(verdict_of(run(tap_of<NeverActs>())), PlantVerdict::kNeverActed);
  EXPECT_EQ(verdict_of(run([] { return find_fault("K31")->tap(); }, 30, "gdn")),
            PlantVerdict::kNeverActed);
}

TEST(PlantVerdict, AFaultThatIsNoticedIsFoundHoweverOftenItWasNot) {
  const FuzzResult result = run([] { return find_fault("K31")->tap(); }, 2000);
  EXPECT_EQ(verdict_of(result), PlantVerdict::kFound);
  EXPECT_GE(result.acted, 1u);
}

/// Histories that fail run again and again, to be shrunk.
TEST(PlantVerdict, APlantIsCountedInHistoriesAsGenerated) {
  const Fault* fault = find_fault("K31");
  const Planted counted({fault}), again({fault});
  FuzzOptions options;
  options.cases = 60, options.kernels = false;
  options.histories.backends = {find_backend("flashattention")};
  options.counted_tap = counted.tap(), options.histories.tap = again.tap();
  EXPECT_FALSE(run_fuzz(options, {}, false).findings.ok());
  int64_t acted = 0;
  for (uint64_t number = 0; number < options.cases; ++number) {
    Choices choices = history_choices(options.seed, number, options.histories.backends);
    const History h = generate_history(choices, options.histories);
    acted += run_history(h, choices, fault->tap).acted;
  }
  EXPECT_GT(acted, 0);
  EXPECT_EQ(counted.acted(0), acted);
}

TEST(PlantVerdict, HasAName) {
  EXPECT_EQ(name_of(PlantVerdict::kFound), "found");
  EXPECT_EQ(name_of(PlantVerdict::kMissed), "missed");
  EXPECT_EQ(name_of(PlantVerdict::kInert), "inert");
  EXPECT_EQ(name_of(PlantVerdict::kNeverActed), "never acted");
}

TEST(Effects, ARunHasTheSameAsAnotherOfTheSameHistoryOnEveryBackend) {
  for (const Backend* backend : all_backends()) {
    HistoryOptions options;
    options.backends = {backend};
    options.tap = tap_of<ActsOnly>();
    for (uint64_t number = 0; number < 4; ++number) {
      Choices choices = history_choices(1, number, options.backends);
      const History h = generate_history(choices, options);
      run_history(h, choices, {});
      EXPECT_EQ(changed_by_plant(choices.made(), options), "") << backend->info().name;
    }
  }
}

Progress add_one(LaunchFrame& f) {
  f.pointer<int32_t>(1)[0] = f.pointer<int32_t>(0)[0] + f.scalar<int32_t>(2);
  return Progress::kDone;
}
void one_each(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<void>(0), 0, 1, sizeof(int32_t), Access::kRead});
  spans->push_back({f.pointer<void>(1), 0, 1, sizeof(int32_t), Access::kWrite});
}
const Kernel kAddOne{.name = "add_one", .body = add_one, .footprint = one_each};

/// One launch over memory of its own.
Effects effects_of(int32_t read, int32_t scalar, int32_t launches = 1) {
  Effects effects;
  RunnerOptions options;
  effects.watch(&options);
  SimDevice device(options.device);
  void* p = nullptr;
  EXPECT_EQ(device.malloc(2 * sizeof(int32_t), &p), DeviceError::kSuccess);
  auto* values = static_cast<int32_t*>(p);
  device.memcpy({values, &read, sizeof read});
  for (int32_t i = 0; i < launches; ++i) {
    KernelLaunch launch;
    launch.kernel = &kAddOne;
    launch.args.pointer(values).pointer(values + 1).scalar(scalar);
    device.launch_kernel(launch, kLegacyStream);
  }
  device.device_synchronize();
  return effects;
}

TEST(Effects, AreWhatLaunchesReadAndTheirScalars) {
  const Effects one = effects_of(5, 1);
  EXPECT_EQ(one.first_difference(effects_of(5, 1)), "");
  for (const Effects& other : {effects_of(6, 1), effects_of(5, 2), effects_of(5, 1, 2)}) {
    EXPECT_EQ(one.first_difference(other), "add_one reads something else");
    EXPECT_EQ(other.first_difference(one), "add_one reads something else");
  }
}

TEST(Effects, AreNotTheOrderInWhichAStepsLaunchesRan) {
  const int32_t values[] = {5, 6};
  const auto of_steps = [&](const std::vector<std::vector<int>>& steps) {
    Effects effects;
    for (const std::vector<int>& step : steps) {
      for (const int i : step) {
        KernelLaunch launch;
        launch.kernel = &kAddOne;
        launch.args.pointer(&values[i]).scalar(1);
        effects.add(launch, {{&values[i], 0, 1, sizeof(int32_t), Access::kRead}});
      }
      effects.add(std::span<const LayerIo>());
    }
    return effects;
  };
  const Effects one = of_steps({{0, 1}, {0, 1}});
  EXPECT_EQ(one.first_difference(of_steps({{1, 0}, {0, 1}})), "");
  EXPECT_NE(one.first_difference(of_steps({{0, 1, 0}, {1}})), "");
  EXPECT_NE(one.first_difference(of_steps({{0, 0}, {1, 1}})), "");
}

TEST(Effects, AreNotWhatAKernelReadsThatStandsInForAnother) {
  Kernel other = kAddOne;
  other.stands_in = true;
  const int32_t values[] = {5, 6};
  const auto effects = [&](const Kernel& kernel, const int32_t* read, int32_t scalar) {
    KernelLaunch launch;
    launch.kernel = &kernel;
    launch.args.pointer(read).scalar(scalar);
    Effects of_launch;
    of_launch.add(launch, {{read, 0, 1, sizeof(int32_t), Access::kRead}});
    return of_launch;
  };
  const Effects clean = effects(kAddOne, &values[0], 1);
  EXPECT_EQ(clean.first_difference(effects(other, &values[1], 1)), "");
  EXPECT_EQ(effects(other, &values[1], 1).first_difference(clean), "");
  EXPECT_NE(clean.first_difference(effects(other, &values[0], 2)), "");
}

TEST(Effects, AreTheOutputsAndNotWhatLiesBehindThem) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto of_two_rows = [&] {
    LayerIo io;
    io.out = TensorView(values.data(), DType::kF32, {2, 2});
    Effects effects;
    effects.add(std::span(&io, 1));
    return effects;
  };
  const Effects before = of_two_rows();
  values[4] = 0;
  EXPECT_EQ(before.first_difference(of_two_rows()), "");
  values[3] = 0;
  EXPECT_EQ(before.first_difference(of_two_rows()), "an output is another");
}

}  // namespace
}  // namespace shadowgraph::verdicts_test
