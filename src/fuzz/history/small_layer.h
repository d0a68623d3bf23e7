// The layers of small models.
#pragma once

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Two query heads over one KV head, of four elements each; causal.
inline LayerKind small_layer(int32_t window_left = -1) {
  LayerKind kind;
  kind.params = {.num_qo_heads = 2,
                 .num_kv_heads = 1,
                 .head_dim_qk = 4,
                 .head_dim_vo = 4,
                 .sm_scale = 0.5f,
                 .causal = true,
                 .window_left = window_left};
  return kind;
}

/// Two heads over latents of six elements, kept as rows, of which a query sees topk.
inline LayerKind small_sparse_layer(int32_t topk, bool ragged_prefill = false) {
  LayerKind kind;
  kind.math = SparseLayer{.num_heads = 2,
                          .head_dim = 6,
                          .head_dim_v = 4,
                          .sm_scale = 0.5f,
                          .topk = topk,
                          .latents = LatentLayout::kRows,
                          .latent_dtype = DType::kF32,
                          .ragged_prefill = ragged_prefill};
  return kind;
}

/// A small layer of DeepSeek-V4: two heads over rows of eight elements, a window of four tokens,
/// two chosen blocks of four tokens; or, with all blocks chosen, a unified pool for unified_rows
/// rows of req_to_token.
inline LayerKind small_v4_layer(int32_t ratio, int32_t unified_rows = 0) {
  LayerKind kind;
  kind.params.causal = true;
  kind.math = V4Layer{.num_heads = 2,
                      .window = 4,
                      .ratio = ratio,
                      .index_topk = unified_rows > 0 ? 64 : 2,
                      .head_dim = 8,
                      .rope_dim = 4,
                      .layout = LatentLayout::kRows,
                      .pools = unified_rows > 0 ? V4Pools::kUnified : V4Pools::kPaged,
                      .rows = unified_rows,
                      .sm_scale = 0.5f};
  return kind;
}

}  // namespace shadowgraph
