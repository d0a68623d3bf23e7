// LayerKind: what stays the same of a layer from step to step. Most layers are softmax attention
// over a dense set of keys; what else there is, is an alternative of LayerMath, each in a header of
// its own.
#pragma once

#include <variant>

#include "shadowgraph/attention/params.h"
#include "shadowgraph/layers/recurrent_layer.h"
#include "shadowgraph/layers/sparse_layer.h"
#include "shadowgraph/layers/v4_layer.h"

namespace shadowgraph {

/// Softmax attention over all the keys that causal, window and mask let a query see; LayerKind's
/// other members say the rest.
struct DenseAttention {};

using LayerMath = std::variant<DenseAttention, RecurrentLayer, SparseLayer, V4Layer>;
/// What a layer that is not dense brings to a step, beside LayerIo; lives as long as the LayerIo.
using LayerTensors =
    std::variant<std::monostate, const RecurrentTensors*, const SparseTensors*, const V4Tensors*>;

/// One kind of layer. params.window_left >= 0 makes it a sliding-window layer; params.causal is
/// what the layer is where all its keys are in one table.
struct LayerKind {
  AttentionParams params;
  bool cross = false;  // attends to the encoder's tokens, all of them
  bool local = false;  // attends within its chunk of attention_chunk tokens only
  bool mla = false;    // K and V of its pool are one latent (KvCache::mla_latent)
  // Three queries a token, by how many chunks of ModelConfig::dual_chunk before it a key stands
  bool dual_chunk = false;
  // What the layer computes. The members above describe only dense attention; other layers ignore
  // them
  LayerMath math = {};
};

inline bool is_dense_attention(const LayerKind& kind) {
  return std::holds_alternative<DenseAttention>(kind.math);
}
/// nullptr: it is another.
inline const RecurrentLayer* recurrent_of(const LayerKind& kind) {
  return std::get_if<RecurrentLayer>(&kind.math);
}
inline const SparseLayer* sparse_of(const LayerKind& kind) {
  return std::get_if<SparseLayer>(&kind.math);
}
inline const V4Layer* v4_of(const LayerKind& kind) { return std::get_if<V4Layer>(&kind.math); }

}  // namespace shadowgraph
