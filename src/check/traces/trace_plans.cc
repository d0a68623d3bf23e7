#include "check/traces/trace_plans.h"

#include <algorithm>

#include "check/traces/trace_names.h"
#include "core/laws.h"
#include "core/nearest.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kKinds[] = {"plan", "begin_forward", "fast_decode_plan",
                                       "fast_prefill_plan"};

bool is_bound(const TraceStep& step, const BufferInfo& field) {
  return field.buffer >= 0 && step.twin.has(static_cast<size_t>(field.buffer));
}

/// A step makes one of the plans that share a list: a decode's plan, or the plan of everything
/// else.
bool is_of_step(const TraceStep& step, std::string_view plan) {
  return !plan.empty() && plan.starts_with("decode") == is_decode_or_idle(step.rebuilt.batch.mode);
}

/// What a kernel has from nowhere else. A host's copy of it is not the kernel's.
bool is_needed(const TraceStep& step, const BufferInfo& field) {
  const std::string_view name = field.recorded;
  const bool host = name.ends_with("_host") || name.ends_with("_cpu");
  const bool array = field.shape == FieldShape::kList || field.shape == FieldShape::kIndptr ||
                     field.shape == FieldShape::kRows ||
                     (field.shape == FieldShape::kMask && !field.unsaid);
  return array && !host && is_bound(step, field);
}

/// A step runs its own wrappers, whichever were planned; the ragged one is everybody's.
void judge_wrapper(const TraceStep& step, const TraceCall& call, Status* findings) {
  judged("plan.missing");
  const int64_t rows = step.rebuilt.graph ? step.rebuilt.rows : 0;
  if (call.name.empty() || call.name.starts_with("ragged") || call.bucket == rows) return;
  std::string of = "eager steps";
  if (rows > 0) of = "graphs of " + std::to_string(rows) + " rows";
  findings->add(make_finding("plan.missing", at(call.name + ".wrapper"), "the wrapper of " + of,
                             call.wrapper));
}

/// A null beside lists that were made says that the builder made none. Of an engine of which
/// nothing is known it says nothing.
bool nulls_are_none(const TraceStep& step) {
  const auto is_list = [](const BufferInfo& f) { return f.shape == FieldShape::kList; };
  return step.backend.engine != &kAnyEngine && std::ranges::any_of(step.backend.buffers, is_list);
}

/// A plan's arguments are all that it was given. Of other fields nobody must record any.
void judge_arguments(const TraceStep& step, Status* findings) {
  const std::vector<std::string>& nulls = step.line.null_fields;
  const bool none = nulls_are_none(step);
  for (const BufferInfo& field : step.backend.buffers) {
    const bool told = is_planned(step.line, field.recorded) ||
                      (none && std::ranges::find(nulls, field.recorded) != nulls.end());
    if (told && is_needed(step, field)) judged("plan.missing");
    if (told && is_needed(step, field) && step.recorded(field.recorded) == nullptr)
      findings->add(make_finding("plan.missing", at(std::string(field.recorded)),
                                 "what its kernel reads", "missing"));
  }
}

}  // namespace

std::string_view plan_of(std::string_view field) {
  const size_t dot = field.find('.');
  return dot == std::string_view::npos ? std::string_view() : field.substr(0, dot);
}

bool is_planned(const TraceLine& line, std::string_view field) {
  const std::string_view plan = plan_of(field);
  return !plan.empty() && std::ranges::find(line.calls, plan, &TraceCall::name) != line.calls.end();
}

bool is_plan_key(const TraceLine& line, const std::string& name) {
  return is_planned(line, name) &&
         is_trace_key("call", std::string_view(name).substr(name.find('.') + 1));
}

void tell_plans(const TraceLine& line, std::vector<LeftOut>* left_out) {
  for (const TraceCall& call : line.calls) {
    if (call.name.empty()) {
      const bool again = std::ranges::any_of(line.calls, [&](const TraceCall& other) {
        return &other != &call && other.wrapper == call.wrapper && !other.name.empty();
      });
      const LawId law = again ? LawId("left_out.planned_again") : LawId("left_out.unknown_name");
      left_out->push_back({law.law().id, call.wrapper, again ? "planned again" : "not known"});
    } else if (std::ranges::find(kKinds, call.kind) == std::end(kKinds)) {
      const std::vector<std::string> kinds(std::begin(kKinds), std::end(kKinds));
      left_out->push_back({LawId("left_out.unknown_name").law().id, call.name + ".call",
                           "not known: " + call.kind + did_you_mean(call.kind, kinds)});
    }
  }
}

void judge_plans(const TraceStep& step, Status* findings) {
  const TraceLine& line = step.line;
  judge_arguments(step, findings);
  if (line.calls.empty() && !line.no_calls) return;
  const auto missing = [&](std::string_view plan) {
    findings->add(make_finding("plan.missing", at(std::string(plan)), "planned", "not planned"));
  };
  for (const TraceCall& call : line.calls) {
    if (step.rebuilt.capture) judged("plan.first");
    if (step.rebuilt.capture && call.kind.starts_with("fast"))
      findings->add(make_finding("plan.first", at(call.name + ".call"), "plan", call.kind));
    judge_wrapper(step, call, findings);
  }
  if (step.rebuilt.rows == 0) return;
  for (const BufferInfo& field : step.backend.buffers) {
    const std::string_view plan = plan_of(field.recorded);
    if (field.shape == FieldShape::kList && is_bound(step, field) && is_of_step(step, plan) &&
        !is_planned(line, field.recorded))
      missing(plan);
  }
  if (step.rebuilt.model.ragged_prefill && !is_planned(line, "ragged[0].")) missing("ragged[0]");
}

}  // namespace shadowgraph
