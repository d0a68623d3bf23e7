#include "fuzz/state_call.h"

#include "kernels/causal_conv1d.h"
#include "kernels/linear_attention.h"

namespace shadowgraph {

Status execute(const StateCall& call) {
  if (const auto* conv = std::get_if<CausalConv1d>(&call)) return causal_conv1d(*conv);
  return linear_attention(std::get<LinearAttention>(call));
}

Footprint footprint_of(const StateCall& call) {
  if (const auto* conv = std::get_if<CausalConv1d>(&call)) return causal_conv1d_footprint(*conv);
  return linear_attention_footprint(std::get<LinearAttention>(call));
}

}  // namespace shadowgraph
