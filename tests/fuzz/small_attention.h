// A small call of dense attention, and a scene in which it is laid.
#pragma once

#include "fuzz/call/attention_scene.h"

namespace shadowgraph {

inline AttentionCase small_attention() {
  AttentionCase x;
  x.kernel = CaseKernel::kPrefillPaged;
  x.requests = {{38, 2, 40}, {17, 3, 20}};
  x.num_qo_heads = 4;
  x.num_kv_heads = 2;
  x.page_size = 4;
  x.causal = true;
  x.window_left = 9;
  return x;
}

inline Case exact_case(CaseData data, const AttentionCase& x = small_attention()) {
  return {data, 5, x};
}

/// A scene whose call is laid.
struct Laid {
  explicit Laid(const Case& c) : Laid(c, AttentionArrangement::of(c)) {}
  Laid(const Case& c, const AttentionArrangement& how)
      : x(c), data(make_attention_data(x)), scene(x, data, how) {
    scene.lay(0);
  }
  const PagedAttention& paged() const { return std::get<PagedAttention>(scene.call()); }

  Case x;
  AttentionData data;
  AttentionScene scene;
};

}  // namespace shadowgraph
