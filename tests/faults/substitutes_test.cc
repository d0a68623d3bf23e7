// Launches are made of calls, and kernels that stand in for others do nothing more than their slip.
#include "faults/substitutes.h"

#include <gtest/gtest.h>

#include <string>

#include "faults/faults.h"
#include "faults/lists.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::substitutes_test {
namespace {

/// Ordinary histories with a tap.
FuzzResult run_with(const MakeTap& tap, uint64_t cases) {
  FuzzOptions options;
  options.cases = cases;
  options.kernels = false;
  options.histories.backends.assign(all_backends().begin(), all_backends().end());
  options.histories.tap = tap;
  return run_fuzz(options, {}, false);
}

struct MadeAgain final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override {
    for (TappedLaunch& one : all) {
      const KernelLaunch before = one.launch;
      const auto any = [](auto&) { return true; };
      if (!change_attention(&one.launch, any) && !change_merge(&one.launch, any)) continue;
      act();
      EXPECT_TRUE(one.launch == before) << before.kernel->name;
    }
  }
};

TEST(Substitutes, ALaunchIsThatOfItsCall) {
  const FuzzResult result = run_with(tap_of<MadeAgain>(), 150);
  EXPECT_EQ(result.findings.to_string(), "ok");
}

void no_slip(const KernelLaunch& clean, SlippedRun& run) { run.launch(clean); }

struct NoSlip final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override {
    const auto any = [](const KernelLaunch& l) { return is_attention(l) || is_merge(l); };
    const int64_t before = substitute<no_slip>(all, any);
    EXPECT_EQ(before, std::ranges::count_if(all, [](const TappedLaunch& one) {
                const std::string_view name = one.launch.kernel->name;
                // Kernels of states, and of chosen keys
                if (name == "linear_attention" || name == "sparse_attention") return false;
                return name.find("attention") != name.npos || name.find("triton") != name.npos ||
                       name.find("merge") != name.npos;
              }));
    EXPECT_EQ(substitute<no_slip>(all, any), 0);  // who stands in is no clean kernel
  }
};

TEST(Substitutes, WithoutASlipNothingIsFound) {
  EXPECT_EQ(run_with(tap_of<NoSlip>(), 150).findings.to_string(), "ok");
}

void same_ids(const KernelLaunch& clean, SlippedRun& run) {
  KernelLaunch launch = clean;
  change_attention(&launch, [&](auto& c) {
    if constexpr (requires { ids_of(c); }) change_ids(c, run, [](int64_t id) { return id; });
    return true;
  });
  run.launch(launch);
}

struct SameIds final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override {
    substitute<same_ids>(all, [](const KernelLaunch& l) { return is_attention(l); });
  }
};

TEST(Substitutes, WithIdsThatAreTakenForWhatTheyAreNothingIsFound) {
  EXPECT_EQ(run_with(tap_of<SameIds>(), 150).findings.to_string(), "ok");
}

Progress nothing(LaunchFrame&) { return Progress::kDone; }
/// Reads all of its first argument, and one element before and behind it.
void read_around(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<const int32_t>(0), -1, 6, sizeof(int32_t), Access::kRead, 3});
}
const Kernel kReadAround{.name = "read_around", .body = nothing, .footprint = read_around};

Footprint spans_of(std::vector<int64_t> from, std::span<const int32_t> array, size_t first = 0) {
  Footprint spans;
  SlippedRun run(&spans);
  KernelLaunch launch;
  launch.kernel = &kReadAround;
  const auto taken = run.take(array, std::vector<int32_t>{1, 2, 3, 4}, std::move(from));
  EXPECT_EQ(taken[2], 3);
  launch.args.pointer(taken.data() + first);
  run.launch(launch);
  return spans;
}

TEST(Substitutes, WhatIsReadOfAnArrayIsReadOfTheDevices) {
  const std::vector<int32_t> array(9);
  const AccessSpan whole{array.data(), 0, 9, sizeof(int32_t), Access::kTouch};
  const auto read = [&](int64_t first, int64_t count) {
    return AccessSpan{array.data(), first, count, sizeof(int32_t), Access::kRead, 3};
  };
  EXPECT_EQ(spans_of({}, array), (Footprint{whole, read(-1, 6)}));
  EXPECT_EQ(spans_of({5, 6, 7, 2}, array), (Footprint{whole, read(-1, 1), read(5, 3), read(2, 2)}));
  EXPECT_EQ(spans_of({-3, -2, 9, 10}, array),
            (Footprint{whole, read(-1, 1), read(-3, 2), read(9, 3)}));
}

TEST(Substitutes, APartOfAnArrayIsOneOfTheDevices) {
  const std::vector<int32_t> array(9);
  const Footprint all = spans_of({5, 6, 7, 2}, array, 2);
  ASSERT_EQ(all.size(), 3u);
  const auto is = [&](size_t i, int64_t first, int64_t count) {
    return all[i] == AccessSpan{array.data(), first, count, sizeof(int32_t), Access::kRead, 3};
  };
  EXPECT_TRUE(is(1, 6, 2)) << all[1].first;
  EXPECT_TRUE(is(2, 2, 4)) << all[2].first;
}

TEST(Substitutes, WhatOnlyTheKernelHasIsNotTheDevices) {
  Footprint spans;
  SlippedRun run(&spans);
  KernelLaunch launch;
  launch.kernel = &kReadAround;
  launch.args.pointer(run.make(std::vector<int32_t>{1, 2, 3, 4}).data());
  run.launch(launch);
  EXPECT_EQ(spans, Footprint{});
}

}  // namespace
}  // namespace shadowgraph::substitutes_test
