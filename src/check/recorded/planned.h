// FlashInfer's two steps on a simulated device: a call is planned, and run by its plan. So a real
// kernel's recorded results are held against what the twin's launches make of the same arrays.
// Tested by tests/check/planned_test.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/visit/any_call.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// What a plan's run leaves; out as wide as q's type.
struct PlannedResult {
  std::vector<std::byte> out_bytes;
  std::vector<float> lse_values;
  TensorView out;              // [tokens, num_qo_heads, head_dim_vo]
  Log2Lse lse;                 // [tokens, num_qo_heads]
  std::vector<int32_t> parts;  // [tokens] partial results that were merged

  PlannedResult() = default;
  PlannedResult(PlannedResult&&) = default;
  PlannedResult& operator=(PlannedResult&&) = default;
};

/// Over slots that follow each other where there are pages, and without terms, which the twin has
/// not.
bool can_be_planned(const AnyCall& call);
/// A call without cu_seqlens_q is planned as a decode, others as a prefill. Pages become slots, as
/// SGLang hands them over. Requires calls that the engine accepts, with f32, f16 or bf16 caches, in
/// NHD or HND. Not ok: what the planner refuses.
Status run_planned(const PagedAttention& call, const SplitConfig& split, PlannedResult* result);
Status run_planned(const RaggedAttention& call, const SplitConfig& split, PlannedResult* result);
/// All states of a row by one launch.
Status run_planned(const MergeStates<LseBase::kLog2>& call, const SplitConfig& split,
                   PlannedResult* result);
/// Any of these; not of chosen keys, which has no plan.
Status run_planned(const AnyCall& call, const SplitConfig& split, PlannedResult* result);

}  // namespace shadowgraph
