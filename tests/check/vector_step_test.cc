// The two parts of a prefill as a backend's step: what a tap makes of it is judged, and what cannot
// run says why.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "check/recorded/judge.h"
#include "check/recorded/two_part_step.h"
#include "io/curated_vectors.h"

namespace shadowgraph::vector_step_test {
namespace {

const RecordedCase& two_parts() {
  static const std::vector<RecordedCase> kCases = parse(curated("flashinfer.safetensors")).cases;
  const auto it = std::ranges::find_if(kCases, is_planted);
  EXPECT_NE(it, kCases.end());
  return *it;
}

/// A tap of one change each.
struct OneChange : Tap {
  std::function<void(Limits&)> of_limits = [](Limits&) {};
  Status of_fill;
  std::function<void(std::vector<TappedLaunch>&)> of_launches = [](auto&) {};
  void limits(Limits& limits) override { of_limits(limits), act(); }
  Status filled(const ForwardBatch&, Meta&) override { return of_fill; }
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override { of_launches(all); }
};

RecordedVerdict judged(const std::function<void(OneChange&)>& change) {
  RecordedOptions options;
  options.tap = [&]() -> std::unique_ptr<Tap> {
    auto tap = std::make_unique<OneChange>();
    change(*tap);
    return tap;
  };
  return judge_recorded(two_parts(), options);
}

TEST(VectorStep, AStepThatCannotRunSaysWhy) {
  const std::pair<std::function<void(OneChange&)>, const char*> kBroken[] = {
      {[](OneChange& tap) { tap.of_limits = [](Limits& l) { l.model.dcp_size = 2; }; },
       "backend.limits"},
      {[](OneChange& tap) { tap.of_limits = [](Limits& l) { l.rows = 0; }; }, "batch.capacity"},
      {[](OneChange& tap) { tap.of_fill.add(make_finding("plan.work", at("x"), "a", "b")); },
       "plan.work"},
  };
  for (const auto& [change, law] : kBroken) {
    const RecordedVerdict v = judged(change);
    ASSERT_FALSE(v.findings.ok()) << law;
    EXPECT_EQ(v.findings.findings()[0].id, law) << v.findings.to_string();
    EXPECT_EQ(v.findings.findings()[0].case_id, two_parts().id);
    EXPECT_EQ(v.rows, 0);
    EXPECT_TRUE(v.acted);
  }
}

TEST(VectorStep, WhatItsLaunchesLeaveIsJudged) {
  // The right step is not what the fault computes.
  const RecordedVerdict right = judged([](OneChange&) {});
  EXPECT_GT(right.rows, 0);
  EXPECT_TRUE(right.twin.out.has_value());
  // Nothing is launched: the results are what memory held.
  const RecordedVerdict none = judged([](OneChange& tap) {
    tap.of_launches = [](std::vector<TappedLaunch>& all) { all.clear(); };
  });
  ASSERT_FALSE(none.findings.ok());
  EXPECT_EQ(none.rows, right.rows);
  EXPECT_GT(*none.twin.out, 1);
}

TEST(VectorStep, WithoutATapItIsTheWholeCall) {
  StepResult result;
  ASSERT_EQ(run_as_step(two_parts(), nullptr, &result).to_string(), "ok");
  EXPECT_EQ(result.out.shape[0],
            std::get<PagedAttention>(two_parts().attention().calls[0]).q.shape[0]);
  const RecordedVerdict v = judge_recorded(two_parts());
  EXPECT_EQ(v.findings.to_string(), "ok");
}

}  // namespace
}  // namespace shadowgraph::vector_step_test
