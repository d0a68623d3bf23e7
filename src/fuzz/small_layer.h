// The layer of small models.
#pragma once

#include "shadowgraph/backend.h"

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

}  // namespace shadowgraph
