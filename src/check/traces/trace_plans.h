// The plans that a line records, beside their arguments: whether each is known, made in time, and
// none is missing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "check/traces/trace_fields.h"
#include "check/traces/traces.h"

namespace shadowgraph {

/// "decode[0]" of "decode[0].kv_indices"; empty: no argument of a plan.
std::string_view plan_of(std::string_view field);

/// What a line says of its plans and nobody judges, and why.
void tell_plans(const TraceLine& line, std::vector<LeftOut>* left_out);

/// An argument that is read, or known as one that is not: "decode[0].num_qo_heads".
bool is_plan_key(const TraceLine& line, const std::string& name);

/// Its plan is recorded: what it does not say has its usual value.
bool is_planned(const TraceLine& line, std::string_view field);

/// plan.first, plan.missing
void judge_plans(const TraceStep& step, Status* findings);

}  // namespace shadowgraph
