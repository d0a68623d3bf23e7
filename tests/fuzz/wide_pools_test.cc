// Histories whose pools lie beyond 2^31 elements: they find nothing, and an offset that is computed
// in 32 bits is found there and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/fuzz.h"
#include "fuzz/history/history.h"
#include "graph/memory/memory.h"

namespace shadowgraph::wide_pools_test {
namespace {

constexpr uint64_t kSeed = 23;

HistoryResult run(const Backend* backend, uint64_t number, bool wide, const MakeTap& tap = {}) {
  Choices choices = history_choices(kSeed, number, {&backend, 1});
  History h = generate_history(choices, {&backend, 1});
  h.runner.wide_pools = wide;
  return run_history(h, choices, tap);
}

std::vector<const Backend*> dense_backends() {
  std::vector<const Backend*> dense(all_backends().begin(), all_backends().end());
  std::erase_if(dense, [](const Backend* b) { return !b->info().dense; });
  return dense;
}

TEST(WidePools, HistoriesOfEveryDenseBackendFindNothing) {
  int64_t judged = 0;
  for (const Backend* backend : dense_backends()) {
    for (uint64_t number = 0; number < 4; ++number) {
      const HistoryResult result = run(backend, number, true);
      EXPECT_EQ(result.findings.to_string(), "ok") << backend->info().name << ' ' << number;
      judged += result.judged;
    }
  }
  EXPECT_GT(judged, 500);
}

/// Each kernel with a footprint whose offsets are computed in 32 bits.
struct NarrowFootprints final : Tap {
  static void narrow(const LaunchFrame& frame, Footprint* spans) {
    KernelLaunch clean = frame.launch;
    clean.kernel = clean_of().at(frame.launch.kernel);
    clean.kernel->footprint(LaunchFrame{clean}, spans);
    for (AccessSpan& span : *spans) span.first = static_cast<int32_t>(span.first);
  }
  static std::map<const Kernel*, const Kernel*>& clean_of() {
    static std::map<const Kernel*, const Kernel*> all;
    return all;
  }
  static const Kernel* narrow_of(const Kernel* clean) {
    static std::deque<Kernel> made;
    for (const auto& [kernel, of] : clean_of())
      if (of == clean) return kernel;
    Kernel& kernel = made.emplace_back(*clean);
    kernel.footprint = narrow, kernel.stands_in = true;
    clean_of()[&kernel] = clean;
    return &kernel;
  }
  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    for (TappedLaunch& one : all)
      if (one.launch.kernel->footprint != nullptr)
        one.launch.kernel = narrow_of(one.launch.kernel), act();
  }
};

TEST(WidePools, AnOffsetOf32BitsIsFoundThereAlone) {
  if (!kHasWideMemory) GTEST_SKIP() << "a sanitizer's memory is too small for these";
  for (const char* name : {"flashattention", "triton", "flashmla"}) {
    std::map<std::string, int> laws;
    for (uint64_t number = 0; number < 20; ++number) {
      const HistoryResult narrow =
          run(find_backend(name), number, false, tap_of<NarrowFootprints>());
      EXPECT_EQ(narrow.findings.to_string(), "ok") << name << ' ' << number;
      const HistoryResult wide = run(find_backend(name), number, true, tap_of<NarrowFootprints>());
      for (const Finding& f : wide.findings.findings()) ++laws[f.id];
    }
    EXPECT_TRUE(laws.contains("mem.out_of_bounds") || laws.contains("mem.red_zone")) << name;
  }
}

}  // namespace
}  // namespace shadowgraph::wide_pools_test
