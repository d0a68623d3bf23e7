// A layer that keeps a recurrent state in a slot instead of keys in a cache: Mamba2, Gated
// DeltaNet, Kimi Delta Attention, Lightning. What it is, and the tensors that a step brings to it.
// What it computes: linear.h. Source: spec backends-flashinfer-triton-linear-sparse 7.
#pragma once

#include <cstdint>

#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

enum class RecurrentFamily : uint8_t { kMamba2, kGdn, kKda, kLightning };

/// Mamba2 says B, C and dstate where this says k, q and head_dim_k, and groups for key heads.
struct RecurrentLayer {
  RecurrentFamily family = RecurrentFamily::kGdn;
  int32_t num_k_heads = 1, num_v_heads = 1;  // the former divides the latter
  int32_t head_dim_k = 0, head_dim_v = 0;
  int32_t conv_width = 0;   // of the convolution before it; Lightning has none: 0
  int32_t chunk_size = 64;  // of a prefill: snapshots are taken at its multiples; > conv_width
  float scale = 1;          // of out

  bool has_conv() const { return conv_width > 0; }
  /// Channels of the convolution: q | k | v of the delta rules, x | B | C of Mamba2.
  int64_t conv_dim() const {
    return 2 * int64_t{num_k_heads} * head_dim_k + int64_t{num_v_heads} * head_dim_v;
  }
  /// A prefill reads the slot of every row: a fresh request relies on one of zeros (GDN, KDA).
  bool reads_fresh_slots() const {
    return family == RecurrentFamily::kGdn || family == RecurrentFamily::kKda;
  }
};

/// One recurrent layer's tensors on the device, f32. LayerIo::out is [tokens, num_v_heads,
/// head_dim_v]. A layer without a convolution has its q, k and v in LayerIo.
struct RecurrentTensors {
  ConstTensorView x;                  // [tokens, conv_dim]
  ConstTensorView weight, conv_bias;  // [conv_dim, conv_width], [conv_dim]
  // Of DecayGate: [tokens, num_v_heads], of KDA [tokens, num_v_heads, head_dim_k]; Lightning: none
  ConstTensorView gate;
  ConstTensorView a_log, dt_bias;  // DecayGate's
  ConstTensorView b;               // [tokens, num_v_heads]; of the delta rules
  ConstTensorView skip, z;         // [num_v_heads], [tokens, num_v_heads, head_dim_v]; of Mamba2
  ConstTensorView log_decay;       // [num_v_heads]; of Lightning

  TensorView conv_states;  // [slots, conv_dim, conv_width - 1]
  TensorView states;       // [slots, num_v_heads, ...]: LinearAttention::StateOrder
  // What a verify step leaves behind each draft token: [rows, steps, ...] of the same
  TensorView draft_conv_states, draft_states;
};

}  // namespace shadowgraph
