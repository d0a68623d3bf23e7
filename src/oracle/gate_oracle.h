// The oracle of decay_gate and of Lightning's slopes: their formulas, in double, by the standard
// library. It shares nothing with the kernel but the vocabulary. Tested by
// tests/kernels/decay_gate_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

struct GateTruth {
  int64_t channels = 1;           // numbers of a head: 1, or head_dim_k
  std::vector<double> log_decay;  // [tokens, num_v_heads, channels]
  std::vector<double> beta;       // [tokens, num_v_heads]; empty: none
};

/// Requires a gate that decay_gate accepts.
GateTruth gate_truth(const DecayGate& gate);

/// [num_heads], by the rule as models' code states it: powers of one ratio.
std::vector<double> slope_truth(int32_t layer, int32_t num_layers, int64_t num_heads);

}  // namespace shadowgraph
