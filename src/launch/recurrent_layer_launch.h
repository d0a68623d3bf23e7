// The launches of one recurrent layer: convolution, gate, recurrence, snapshots.
#pragma once

#include <span>

#include "launch/launch_args.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/layers/recurrent.h"
#include "shadowgraph/layers/recurrent_layer.h"

namespace shadowgraph {

/// What a layer computes in a step: its tensors, and the room between its launches.
struct RecurrentCall {
  const RecurrentLayer& layer;
  const RecurrentTensors& tensors;
  StateRows rows;
  RequestRows requests;
  ConstTensorView q = {}, k = {}, v = {};  // of a layer without a convolution
  TensorView out = {};
  TensorView conv_out = {}, log_decay = {}, beta = {}, chunk_states = {};
  std::span<const int32_t> parents = {};
  bool verify = false, keeps_padding = true;
  TensorView draft_conv_states = {}, draft_states = {};  // of the call's rows
  ChunkGrid chunk_grid = ChunkGrid::kRow;
};

CausalConv1d conv_of(const RecurrentCall& call);
/// Without a gate: not of Lightning.
DecayGate gate_of(const RecurrentCall& call);
LinearAttention linear_of(const RecurrentCall& call);

/// Nothing where the layer has none.
void launch_conv(Stream& stream, const RecurrentCall& call);
void launch_gate_of(Stream& stream, const RecurrentCall& call);

/// By row, as RecurrentBackend's buffers of those names.
struct StateTracks {
  std::span<const int32_t> slots, windows, final_from, chunk_from;
};
void launch_tracks(Stream& stream, const RecurrentCall& call, const StateTracks& tracks);

}  // namespace shadowgraph
