// Every violation of a call over recurrent states at once: shapes, dtypes, offsets that fall, slots
// out of range or named twice where they are written, parents that are not earlier tokens, memory
// that overlaps. Tested by tests/attn/validate_recurrent_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

Status validate(const LinearAttention& call);
Status validate(const DecayGate& gate);
Status validate(const CausalConv1d& call);
Status validate_slopes(int32_t layer, int32_t num_layers, std::span<float> out);

}  // namespace shadowgraph
