// How far a call's results are from the oracle's, measured in the derived bound of its form.
#pragma once

#include <string>
#include <string_view>

#include "check/bounds/recurrent_compare.h"
#include "kernels/small_linear.h"

namespace shadowgraph {

/// The arithmetic of the form that a call takes.
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

/// The largest error over its bound, from the oracle's steps over the states before the call.
inline double worst(const LinearAttention& truth, const LinearAttention& result, double* states) {
  const GateTruth gates;
  LinearBounds bounds(truth, *find_recurrent_arithmetic(arithmetic_of(result)), gates, {});
  RecurrentJudges judges("num.bound", "");
  compare_recurrence(truth, gates, &bounds, {result.out, result.states, {}, {}}, {}, &judges);
  *states = judges.states.worst();
  return judges.out.worst();
}

}  // namespace shadowgraph
