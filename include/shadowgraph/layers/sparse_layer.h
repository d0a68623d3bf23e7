// A layer of DeepSeek sparse attention: an indexer scores a request's keys, and each query attends
// only to the few latents that it has chosen. This header describes the layer and the tensors that
// a step gives it; indexer.h and sparse.h compute it. Facts: docs/metadata.md "DSA".
#pragma once

#include <cstdint>

#include "shadowgraph/layers/sparse.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

struct SparseLayer {
  int32_t num_heads = 1;
  int32_t head_dim = kDsaCodes + kRopeDim;  // of queries and of latents
  int32_t head_dim_v = kDsaCodes;           // the value is the first elements of a latent
  float sm_scale = 0;
  int32_t topk = 2048;      // keys that a query attends to, at most
  int32_t index_heads = 1;  // each with kIndexDim channels
  // Layout of the pool of latents: kRows of latent_dtype (f32, f16, bf16), or kDsa
  LatentLayout latents = LatentLayout::kDsa;
  DType latent_dtype = DType::kBF16;
  // A prefill attends over the latents of all its requests, gathered one after the other; then the
  // choice names places among the gathered latents instead of slots
  bool ragged_prefill = false;
};

/// The tensors of one sparse layer on the device. LayerIo::q is f32 [tokens, num_heads, head_dim],
/// LayerIo::k holds the new latents [tokens, head_dim], out is [tokens, num_heads, head_dim_v].
struct SparseTensors {
  ConstTensorView index_q;        // e4m3 [tokens, index_heads, 128]
  ConstTensorView index_weights;  // f32 [tokens, index_heads]
  ConstTensorView index_k;        // e4m3 [tokens, 128]
  ConstTensorView index_k_scale;  // f32 [tokens]

  TensorView index_pages;  // u8 [pages, 8448]
  WritableLatentPool latents;

  /// The part of these tokens. Weights and pools are whole.
  SparseTensors rows(int64_t first, int64_t count) const;
};

}  // namespace shadowgraph
