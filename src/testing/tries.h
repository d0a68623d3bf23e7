// Tries: what a property test makes of choices, one after the other; the first that fails is
// shrunk, and its findings name the choices that repeat it. Tested by tests/testing/check_test.cc.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/choices.h"
#include "shadowgraph/testing.h"

namespace shadowgraph::testing {

/// The findings of one try, and the text that names it; empty: nothing ran.
struct Outcome {
  Status findings;
  std::string what;
};

class Tries {
 public:
  using Run = std::function<Outcome(Choices&)>;
  /// noun: "history", for findings. Options must outlive this.
  Tries(const Repetition& options, std::string_view noun, Run run)
      : options_(options), noun_(noun), run_(std::move(run)) {}

  /// Runs the choices that the options or the environment give; nullopt: neither gives any.
  std::optional<Status> given();
  /// Runs the choices. If they fail, shrinks them, and returns the findings of the smallest choices
  /// that break the same law.
  Status attempt(Choices& choices);
  /// "SHADOWGRAPH_CHOICES=3.0.1", of those that were made so far.
  static std::string repeat(const Choices& choices);
  /// The case that runs now is a candidate: nobody will see its findings.
  bool shrinking() const { return shrinking_; }

 private:
  Status run(Choices& choices) const;
  Status shrunk(const Choices& failed, std::string_view law) const;
  Status replay(std::string_view text) const;

  const Repetition& options_;
  std::string_view noun_;
  Run run_;
  mutable bool shrinking_ = false;
};

}  // namespace shadowgraph::testing
