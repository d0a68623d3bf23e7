// A recorded sliding-window merge as a step of FlashInfer's twin: a prefill in two parts, the own
// tokens ragged and the prefix over the cache, through bind, fill and forward. Tested by
// tests/check/vector_step_test.cc.
#pragma once

#include <vector>

#include "attn/cases/recorded_case.h"
#include "check/runner.h"

namespace shadowgraph {

struct StepResult {
  std::vector<std::byte> out_bytes;
  std::vector<float> lse_values;
  TensorView out;              // [tokens, num_qo_heads, head_dim_vo], of q's type
  NaturalLse lse;              // [tokens, num_qo_heads]
  std::vector<int32_t> parts;  // [tokens] partial results that were merged

  StepResult() = default;
  StepResult(StepResult&&) = default;
  StepResult& operator=(StepResult&&) = default;
};

/// The case is such a merge, over slots: calls[0] is its one pass, calls[1] its ragged part.
bool is_two_part_prefill(const RecordedCase& c);

/// tap: a planted fault, or nullptr. Findings of the device included.
Status run_as_step(const RecordedCase& c, Tap* tap, StepResult* result);

}  // namespace shadowgraph
