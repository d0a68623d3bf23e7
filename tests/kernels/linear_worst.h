// How far a call's results are from the oracle's, measured in the derived bound of its form.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "check/linear_bound.h"
#include "kernels/small_linear.h"

namespace shadowgraph {

/// Of the form that a call takes.
inline std::string_view arithmetic_of(const LinearAttention& call) {
  if (call.form == LinearAttention::Form::kRecurrent) return "ours";
  return call.log_decay.rank == 3 ? "ours_chunked_channels" : "ours_chunked";
}

inline std::string name_of(const LinearShape& s) {
  return std::string(s.rule == LinearAttention::Rule::kDelta ? "delta" : "add") +
         (s.order == LinearAttention::StateOrder::kValueKey ? " [V, K] " : " [K, V] ") +
         std::to_string(s.dim_v) + " by " + std::to_string(s.dim_k) + " decay rank " +
         std::to_string(s.decay_rank);
}

/// Of the oracle's steps over the states before the call: the largest error over its bound.
inline double worst(const LinearAttention& truth, const LinearAttention& result, double* states) {
  const GateTruth gates;
  LinearBounds bounds(truth, *find_linear_arithmetic(arithmetic_of(result)), gates, {});
  double largest = 0;
  *states = 0;
  for_each_step(truth, gates, [&](const LinearStep& step) {
    const StepBound& bound = bounds.of(step);
    const bool last = step.in_row + 1 == truth.rows.tokens(step.row);
    const int64_t slot = truth.rows.state_indices[static_cast<size_t>(step.row)];
    for (int64_t i = 0; i < step.v.size(); ++i) {
      const double got = load_float(result.out.at(step.token, step.head, i), result.out.dtype, 0);
      const double allowed = with_rounding(step.out[i], bound.out[i], result.out.dtype);
      largest = std::max(largest, std::abs(got - step.out[i]) / allowed);
      for (int64_t c = 0; last && c < step.k.size(); ++c) {
        const bool by_value = result.order == LinearAttention::StateOrder::kValueKey;
        const double kept =
            load_float(result.states.at(slot, step.head, by_value ? i : c, by_value ? c : i),
                       result.states.dtype, 0);
        const double right = (*step.after)(i, c);
        *states = std::max(*states, std::abs(kept - right) /
                                        with_rounding(right, bound.state[i], result.states.dtype));
      }
    }
  });
  return largest;
}

}  // namespace shadowgraph
