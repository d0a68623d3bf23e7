// A layer that keeps a recurrent state in a slot instead of keys in a cache: Mamba2, Gated
// DeltaNet, Kimi Delta Attention, Lightning. This header describes the layer and the tensors that a
// step gives it; linear.h computes it. Facts: docs/metadata.md "Recurrent layers".
#pragma once

#include <cstdint>

#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

enum class RecurrentFamily : uint8_t { kMamba2, kGdn, kKda, kLightning };

/// For Mamba2 read B, C, dstate and groups for k, q, head_dim_k and key heads.
struct RecurrentLayer {
  RecurrentFamily family = RecurrentFamily::kGdn;
  int32_t num_k_heads = 1, num_v_heads = 1;  // num_k_heads divides num_v_heads
  int32_t head_dim_k = 0, head_dim_v = 0;
  int32_t conv_width = 0;   // width of the convolution before it; 0: none (Lightning)
  int32_t chunk_size = 64;  // a prefill takes snapshots at multiples of it; > conv_width
  float scale = 1;          // factor of out

  bool has_conv() const { return conv_width > 0; }
  /// Channels of the convolution: q | k | v for the delta rules, x | B | C for Mamba2.
  int64_t conv_dim() const {
    return 2 * int64_t{num_k_heads} * head_dim_k + int64_t{num_v_heads} * head_dim_v;
  }
  /// True if a prefill reads the slot of every row, so a fresh request needs a slot of zeros (GDN,
  /// KDA).
  bool reads_fresh_slots() const {
    return family == RecurrentFamily::kGdn || family == RecurrentFamily::kKda;
  }
};

/// The tensors of one recurrent layer on the device, f32. LayerIo::out is [tokens, num_v_heads,
/// head_dim_v]. A layer without a convolution has its q, k and v in LayerIo.
struct RecurrentTensors {
  ConstTensorView x;                  // [tokens, conv_dim]
  ConstTensorView weight, conv_bias;  // [conv_dim, conv_width], [conv_dim]
  // DecayGate::x: [tokens, num_v_heads], for KDA [tokens, num_v_heads, head_dim_k]; Lightning has
  // none
  ConstTensorView gate;
  ConstTensorView a_log, dt_bias;  // DecayGate's
  ConstTensorView b;               // [tokens, num_v_heads]; delta rules only
  ConstTensorView skip, z;         // [num_v_heads], [tokens, num_v_heads, head_dim_v]; Mamba2 only
  ConstTensorView log_decay;       // [num_v_heads]; Lightning only

  TensorView conv_states;  // [slots, conv_dim, conv_width - 1]
  TensorView states;       // [slots, num_v_heads, ...]: LinearAttention::StateOrder
  // What a verify step leaves behind each draft token: [rows, steps, ...] of the same shapes
  TensorView draft_conv_states, draft_states;

  /// The part of these tokens. Weights and pools are whole.
  RecurrentTensors rows(int64_t first, int64_t count) const;
};

}  // namespace shadowgraph
