// A history in the making: the steps of a scheduler, or one small batch, and the arrays that are
// written for them. A function of choices.
#pragma once

#include <optional>
#include <vector>

#include "core/choices.h"
#include "runtime/scheduler.h"
#include "shadowgraph/testing.h"

namespace shadowgraph::testing {

struct Steps::State {
  /// Whether the history is a small batch is the first choice, 0 if it is; without small batches
  /// there is no such choice.
  State(const Options& options, Choices& choices);

  const Case* next();
  /// The step that next gave last, with what its views show.
  const Step& step() const { return step_; }
  /// "decode, page_size 2, prefix_lens [3, 0], q_lens [1, 1]": the step that next gave last.
  std::string to_string() const;

  Status findings;
  std::vector<ShadowedMemory*> arrays;
  std::vector<ForwardMode> shown;  // of each step

 private:
  bool make_next();

  const Options& options_;
  Choices& choices_;
  std::optional<Scheduler> scheduler_;  // none: a small batch
  int32_t left_ = 1;                    // steps to be made
  Step step_;
  Case case_;
};

}  // namespace shadowgraph::testing
