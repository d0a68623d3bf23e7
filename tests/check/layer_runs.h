// Runs of layers whose launches may slip.
#pragma once

#include <utility>
#include <vector>

#include "check/runs.h"

namespace shadowgraph {

/// What an engine gets wrong, from when it is set on.
struct Slipped : Tap {
  void (*slip)(KernelLaunch& launch) = nullptr;

  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    for (TappedLaunch& one : all)
      if (slip != nullptr) slip(one.launch);
  }
};
struct HasTap {
  Slipped tap;
};

/// A base first: the runner ends before its tap.
struct LayerRuns : HasTap, Runs {
  LayerRuns(const char* backend, const ModelConfig& m, RunnerOptions options)
      : Runs(*find_backend(backend), m, tapped(std::move(options))) {}
  LayerRuns(const char* backend, const ModelConfig& m, std::vector<int32_t> buckets)
      : LayerRuns(backend, m, options_of(m, std::move(buckets))) {}

  /// Laws that a slip in the launches of the second of two steps breaks.
  Laws laws_of(const StepShape& clean, const StepShape& slipped, void (*slip)(KernelLaunch&)) {
    EXPECT_EQ(step(clean).to_string(), "ok");
    tap.slip = slip;
    return laws(step(slipped));
  }

 private:
  RunnerOptions tapped(RunnerOptions options) {
    options.tap = &tap;
    return options;
  }
};

}  // namespace shadowgraph
