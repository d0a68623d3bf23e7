// Tries histories, and shrinks the first that breaks a law.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>

#include "core/laws.h"
#include "core/shrink.h"
#include "testing/generate.h"
#include "testing/steps.h"

namespace shadowgraph::testing {
namespace {

constexpr const char* kVariable = "SHADOWGRAPH_CHOICES";

class Tries {
 public:
  Tries(const Options& options, const Property& property)
      : options_(options), property_(property) {}

  const Counts& counts() const { return counts_; }

  /// All of them, up to the first that fails.
  Status run() {
    Status status = validate(options_);
    if (!status.ok()) return status;
    const char* variable = std::getenv(kVariable);
    if (!options_.choices.empty()) return replay(options_.choices);
    if (variable != nullptr && *variable != 0) return replay(variable);
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
      Status status = history(choices);
      if (!status.ok()) return shrunk(choices, status);
      next = next_choices(choices, 1);
    }
    return {};
  }

  Status random_histories() {
    for (int64_t i = 0; i < options_.histories; ++i) {
      Choices choices(Rng::stream(options_.seed, static_cast<uint64_t>(i)));
      ++counts_.histories;
      Status status = history(choices);
      if (!status.ok()) return shrunk(choices, status);
    }
    return {};
  }

  /// The findings of one history, which name its last step.
  Status history(Choices& choices) {
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
    ChoiceSequence made = choices.made();
    while (!made.empty() && made.back() == 0) made.pop_back();  // which is what none means
    for (Finding& f : state.findings.findings()) {
      if (!state.shown.empty()) f.where.mode = name_of(state.shown.back());
      f.case_id = std::string(kVariable) + "=" + to_text(made);
      f.reproduce = f.case_id + (options_.command.empty() ? "" : " " + options_.command);
      if (!state.shown.empty()) f.case_id += " (" + state.to_string() + ")";
    }
    return std::move(state.findings);
  }

  /// The findings of the smallest history whose first broken law is the same.
  Status shrunk(const Choices& failed, const Status& findings) {
    const std::string law = findings.findings().front().id;
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(options_.shrink_seconds);
    const ShrinkResult small = shrink(
        failed.made(),
        [&](std::span<const uint32_t> choices) -> std::optional<ChoiceSequence> {
          Choices again(choices);
          const Status status = history(again);
          if (status.ok() || status.findings().front().id != law) return std::nullopt;
          return again.made();
        },
        [&] { return Clock::now() >= end; });
    Choices again(small.choices);
    return history(again);
  }

  Status replay(std::string_view text) {
    Status status;
    const std::optional<ChoiceSequence> list = choices_of(text);
    if (!list) {
      status.add(make_finding("test.options", at("choices"), "numbers: 3.0.1", std::string(text)));
      return status;
    }
    Choices choices(*list);
    status = history(choices);
    const ChoicesRead read = compare_choices(*list, choices.made());
    if (!read.out_of_range.empty() || (status.ok() && read.behind > 0))
      status.add(make_finding("test.options", at("choices"),
                              "choices of a history of these options", std::string(text)));
    return status;
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
  Counts counts_;
  std::array<bool, kNumForwardModes> shown_ = {};
};

}  // namespace

Status check(const Options& options, const Property& property, Counts* counts) {
  Tries tries(options, property);
  Status status = tries.run();
  if (counts != nullptr) *counts = tries.counts();
  return status;
}

}  // namespace shadowgraph::testing
