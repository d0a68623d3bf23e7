// A layer of DeepSeek sparse attention: an indexer scores a request's keys, and each query attends
// to the few latents that it has chosen. What it is, and the tensors that a step brings to it. What
// it computes: indexer.h, sparse.h. Source: spec backends-flashinfer-triton-linear-sparse 9, 11.8,
// 11.9.
#pragma once

#include <cstdint>

#include "shadowgraph/sparse.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

struct SparseLayer {
  int32_t num_heads = 1;
  int32_t head_dim = kDsaCodes + kRopeDim;  // of queries and latents
  int32_t head_dim_v = kDsaCodes;           // a latent's first elements
  float sm_scale = 0;
  int32_t topk = 2048;      // keys of a query
  int32_t index_heads = 1;  // of kIndexDim channels each
  // How the pool keeps latents: kRows of latent_dtype (f32, f16, bf16), or kDsa
  LatentLayout latents = LatentLayout::kDsa;
  DType latent_dtype = DType::kBF16;
  // Prefills attend over the latents of all their requests, gathered one after the other: what is
  // chosen are places among them, and not slots
  bool ragged_prefill = false;
};

/// One sparse layer's own tensors on the device. LayerIo::q is f32 [tokens, num_heads, head_dim],
/// LayerIo::k the new latents [tokens, head_dim], out [tokens, num_heads, head_dim_v].
struct SparseTensors {
  ConstTensorView index_q;        // e4m3 [tokens, index_heads, 128]
  ConstTensorView index_weights;  // f32 [tokens, index_heads]
  ConstTensorView index_k;        // e4m3 [tokens, 128]
  ConstTensorView index_k_scale;  // f32 [tokens]

  TensorView index_pages;  // u8 [pages, 8448]
  WritableLatentPool latents;
};

}  // namespace shadowgraph
