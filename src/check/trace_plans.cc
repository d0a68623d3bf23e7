#include "check/trace_plans.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "check/trace_names.h"
#include "core/laws.h"
#include "core/nearest.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kKinds[] = {"plan", "begin_forward", "fast_decode_plan",
                                       "fast_prefill_plan"};

/// "decode[0]" of "decode[0].kv_indices"; empty: no argument of a plan.
std::string_view plan_of(std::string_view field) {
  const size_t dot = field.find('.');
  return dot == std::string_view::npos ? std::string_view() : field.substr(0, dot);
}

/// A step plans its decodes or its prefills: of those that share a list, the one that was meant.
std::string_view missing_plan(const TraceStep& step, int list) {
  std::string_view name;
  for (const Field& field : step.backend.fields) {
    const std::string_view plan = plan_of(field.recorded);
    if (field.buffer != list || field.shape != FieldShape::kList || plan.empty()) continue;
    const std::string_view stem = plan.substr(0, plan.find('['));
    const auto alike = [&](const TraceCall& call) { return call.name.starts_with(stem); };
    if (is_planned(step.line, field.recorded)) return {};
    if (name.empty() || std::ranges::any_of(step.line.calls, alike)) name = plan;
  }
  return name;
}

}  // namespace

bool is_planned(const TraceLine& line, std::string_view field) {
  const std::string_view plan = plan_of(field);
  return !plan.empty() && std::ranges::find(line.calls, plan, &TraceCall::name) != line.calls.end();
}

bool is_plan_key(const TraceLine& line, const std::string& name) {
  return is_planned(line, name) && is_trace_key("call", name.substr(name.find('.') + 1));
}

void tell_plans(const TraceLine& line, std::vector<std::string>* left_out) {
  for (const TraceCall& call : line.calls) {
    if (call.name.empty()) {
      const bool again = std::ranges::any_of(line.calls, [&](const TraceCall& other) {
        return &other != &call && other.wrapper == call.wrapper && !other.name.empty();
      });
      left_out->push_back(call.wrapper + (again ? ": planned again" : ": not known"));
    } else if (std::ranges::find(kKinds, call.kind) == std::end(kKinds)) {
      const std::vector<std::string> kinds(std::begin(kKinds), std::end(kKinds));
      left_out->push_back(call.name + ".call: not known: " + call.kind +
                          did_you_mean(call.kind, kinds));
    }
  }
}

void judge_plans(const TraceStep& step, Status* findings) {
  const TraceLine& line = step.line;
  if (line.calls.empty()) return;
  const auto missing = [&](std::string_view plan) {
    findings->add(make_finding("plan.missing", at(std::string(plan)), "planned", "not planned"));
  };
  for (const TraceCall& call : line.calls) {
    if (step.rebuilt.capture && call.kind.starts_with("fast"))
      findings->add(make_finding("plan.first", at(call.name + ".call"), "plan", call.kind));
  }
  std::set<int> lists;
  for (const Field& field : step.backend.fields) {
    if (field.shape != FieldShape::kList || field.buffer < 0 ||
        !step.twin.has(static_cast<size_t>(field.buffer)) || !lists.insert(field.buffer).second)
      continue;
    const std::string_view plan = missing_plan(step, field.buffer);
    if (!plan.empty()) missing(plan);
  }
  if (step.rebuilt.model.ragged_prefill && !is_planned(line, "ragged[0].")) missing("ragged[0]");
}

}  // namespace shadowgraph
