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

/// The cut of a prefill's tokens, as Mamba2's kernels find it: a run ends where the next one
/// begins, the last one with cu_seqlens_q's last token, and is the row's that seq_idx says.
struct TokenChunks {
  std::span<const int32_t> seq_idx;           // [tokens] the row of each
  std::span<const int32_t> indices, offsets;  // [runs] a ChunkList
  std::span<const int32_t> count;             // [1] runs; empty: cu_seqlens_q is the cut
};
template <class V>
void visit_args(V& v, TokenChunks& c) {
  v("seq_idx", c.seq_idx);
  v("chunk_indices", c.indices);
  v("chunk_offsets", c.offsets);
  v("num_chunks", c.count);
}
struct LinearCall : LinearAttention {
  TokenChunks chunks = {};
};
template <class V>
void visit_args(V& v, LinearCall& c) {
  visit_args(v, static_cast<LinearAttention&>(c));
  v("chunks", c.chunks);
}

/// linear_attention, its memory (lists of rows too) being the device's, on what that memory holds
/// when it runs. Tokens past cu_seqlens_q's last entry are padding, and places of chunk_states past
/// the last chunk are room: neither read nor written. Where the call would be refused then, or runs
/// are no cut of all tokens, leave their chunk or have tokens of two rows, its outputs are filled
/// with 0xff, and the footprint holds the slots that a GPU would have read and written, those
/// outside of the pool too.
///
/// rows: which of them are which request of the step.
KernelLaunch recurrent_launch(const LinearCall& call, const RequestRows& rows = {});

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
