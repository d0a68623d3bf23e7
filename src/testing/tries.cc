#include "testing/tries.h"

#include <cstdlib>

#include "core/laws.h"
#include "core/shrink.h"

namespace shadowgraph::testing {
namespace {

constexpr const char* kVariable = "SHADOWGRAPH_CHOICES";

}  // namespace

std::optional<Status> Tries::given() {
  const char* variable = std::getenv(kVariable);
  if (!options_.choices.empty()) return replay(options_.choices);
  if (variable != nullptr && *variable != 0) return replay(variable);
  return std::nullopt;
}

Status Tries::attempt(Choices& choices) {
  Status status = run(choices);
  if (status.ok()) return status;
  Status small = shrunk(choices, std::string(status.findings().front().id));
  keep_diagnosis(status, &small);
  return small;
}

std::string Tries::repeat(const Choices& choices) {
  ChoiceSequence made = choices.made();
  while (!made.empty() && made.back() == 0) made.pop_back();  // which is what none means
  return std::string(kVariable) + "=" + to_text(made);
}

Status Tries::run(Choices& choices) const {
  Outcome outcome = run_(choices);
  for (Finding& f : outcome.findings.findings()) {
    f.case_id = repeat(choices);
    f.reproduce = f.case_id + (options_.command.empty() ? "" : " " + options_.command);
    if (!outcome.what.empty()) f.case_id += " (" + outcome.what + ")";
  }
  return std::move(outcome.findings);
}

Status Tries::shrunk(const Choices& failed, std::string_view law) const {
  shrinking_ = true;
  const ShrinkResult small =
      shrink(failed.made(),
             [&](std::span<const uint32_t> choices) -> std::optional<MadeCase> {
               Choices again(choices);
               const Status status = run(again);
               if (status.ok() || status.findings().front().id != law) return std::nullopt;
               return MadeCase{again.made()};
             },
             {.seconds = options_.shrink_seconds});
  shrinking_ = false;
  Choices again(small.choices);
  return run(again);
}

Status Tries::replay(std::string_view text) const {
  const auto bad = [&](std::string expected) {
    return make_finding("test.options", at("choices"), std::move(expected), std::string(text));
  };
  Status status;
  const std::optional<ChoiceSequence> list = choices_of(text);
  if (!list) {
    status.add(bad("numbers: 3.0.1"));
    return status;
  }
  Choices choices(*list);
  status = run(choices);
  const ChoicesRead read = compare_choices(*list, choices.made());
  if (!read.out_of_range.empty() || (status.ok() && read.behind > 0))
    status.add(bad("choices of a " + std::string(noun_) + " of these options"));
  return status;
}

}  // namespace shadowgraph::testing
