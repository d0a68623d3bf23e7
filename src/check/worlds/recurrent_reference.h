// What one request of a step gives, alone: of its layer's inputs and pools in host memory, or a
// device's that the host can read, by the kernels themselves, without metadata of any backend.
// Tested by tests/check/recurrent_world_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shadowgraph/layers/recurrent.h"
#include "shadowgraph/layers/recurrent_layer.h"

namespace shadowgraph {

/// Pools in host memory, f32: [slots, ...] as RecurrentTensors'; no conv where there is none.
struct HostStates {
  std::vector<float> conv, states;

  bool operator==(const HostStates&) const = default;
};

/// One request of a step.
struct RequestAlone {
  int64_t first = 0, tokens = 0;  // its rows of the step's inputs
  int32_t slot = 0;
  bool has_prefix = false;
  bool verify = false;
  std::span<const int32_t> parents = {};  // of a verify with a tree
  int32_t draft_row = 0;                  // of a verify
};

struct LayerInputs {
  RecurrentTensors tensors;
  ConstTensorView q, k, v;  // of a layer without a convolution
};

/// Goes on from pools, writes them, and of a verify the row of drafts; returns [tokens,
/// num_v_heads, head_dim_v].
std::vector<float> run_alone(const RecurrentLayer& layer, const LayerInputs& inputs,
                             const RequestAlone& request, HostStates* pools, HostStates* drafts);

}  // namespace shadowgraph
