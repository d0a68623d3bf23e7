// Tries histories of a builder.
#include <array>
#include <exception>
#include <optional>

#include "core/laws.h"
#include "core/shrink.h"
#include "testing/generate.h"
#include "testing/steps.h"
#include "testing/tries.h"

namespace shadowgraph::testing {
namespace {

/// All small batches, then the random histories.
class Histories {
 public:
  Histories(const Options& options, const Property& property)
      : options_(options),
        property_(property),
        tries_(options, "history", [this](Choices& choices) { return history(choices); }) {}

  const Counts& counts() const { return counts_; }

  /// Up to the first that fails.
  Status run() {
    Status status = validate(options_);
    if (!status.ok()) return status;
    if (std::optional<Status> given = tries_.given()) return *std::move(given);
    status = small_batches();
    if (status.ok()) status = random_histories();
    if (status.ok()) status = nothing();
    return status;
  }

 private:
  Status small_batches() {
    const bool any = !small_modes(options_).empty();
    std::optional<ChoiceSequence> next;
    if (any) next = ChoiceSequence{0};
    for (; next;) {
      Choices choices(*next);
      ++counts_.small;
      Status status = tries_.attempt(choices);
      if (!status.ok()) return status;
      next = next_choices(choices, 1);
    }
    return {};
  }

  Status random_histories() {
    for (int64_t i = 0; i < options_.histories; ++i) {
      Choices choices(Rng::stream(options_.seed, static_cast<uint64_t>(i)));
      ++counts_.histories;
      Status status = tries_.attempt(choices);
      if (!status.ok()) return status;
    }
    return {};
  }

  /// The findings of one history, which name its last step.
  Outcome history(Choices& choices) {
    Steps::State state(options_, choices);
    Steps steps(state);
    const auto thrown = [&](const char* what) {
      state.findings.add(make_finding("trace.exception", at("builder"), "metadata", what));
    };
    try {
      property_(steps);
    } catch (const std::exception& e) {
      thrown(e.what());
    } catch (...) {
      thrown("an exception");
    }
    counts_.steps += std::ssize(state.shown);
    for (const ForwardMode mode : state.shown) shown_[static_cast<size_t>(mode)] = true;
    // A history that is over has no last step any more.
    if (state.shown.empty() || state.findings.ok()) return {std::move(state.findings), ""};
    for (Finding& f : state.findings.findings()) f.where.mode = name_of(state.shown.back());
    return {std::move(state.findings), state.to_string()};
  }

  Status nothing() const {
    Status status;
    for (const ForwardMode mode : options_.modes) {
      if (!shown_[static_cast<size_t>(mode)])
        status.add(make_finding("test.nothing", at("modes"),
                                "a step of " + std::string(name_of(mode)), "none"));
    }
    return status;
  }

  const Options& options_;
  const Property& property_;
  Tries tries_;
  Counts counts_;
  std::array<bool, kNumForwardModes> shown_ = {};
};

}  // namespace

Status check(const Options& options, const Property& property, Counts* counts) {
  Histories histories(options, property);
  Status status = histories.run();
  if (counts != nullptr) *counts = histories.counts();
  return status;
}

}  // namespace shadowgraph::testing
