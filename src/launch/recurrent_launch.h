// Recurrent layers as launches: the convolution, the gate, the recurrence, and the parents of draft
// trees. Tested by tests/launch/recurrent_launch_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "attn/visit/visit_recurrent.h"
#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// linear_attention, its memory (lists of rows too) being the device's, on what that memory holds
/// when it runs. Tokens past cu_seqlens_q's last entry are padding, and places of chunk_states past
/// the last chunk are room: neither read nor written. Where the call would be refused then, its
/// outputs are filled with 0xff, and the footprint holds the slots that a GPU would have read and
/// written, those outside of the pool too.
///
/// rows: which of them are which request of the step.
KernelLaunch recurrent_launch(const LinearAttention& call, const RequestRows& rows = {});

/// causal_conv1d, likewise.
KernelLaunch conv_launch(const CausalConv1d& call, const RequestRows& rows = {});

/// decay_gate, over padding too.
KernelLaunch gate_launch(const DecayGate& gate);

/// tree_parents row by row: [rows, steps] each. What is no tree gets the chain's parents.
struct DraftParents {
  std::span<const int32_t> next_token, next_sibling;
  std::span<int32_t> parents;
  int64_t steps = 1;
};
template <class V>
void visit_args(V& v, DraftParents& c) {
  v("next_token", c.next_token);
  v("next_sibling", c.next_sibling);
  v("parents", c.parents);
  v("steps", c.steps);
}
KernelLaunch parents_launch(const DraftParents& call, const RequestRows& rows = {});

extern const Kernel kLinearAttention, kCausalConv1d, kDecayGate, kDraftParents;

}  // namespace shadowgraph
