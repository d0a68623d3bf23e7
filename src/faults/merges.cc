#include "faults/merges.h"

namespace shadowgraph {

void PrefixWithoutWindow::limits(Limits& limits) {
  const ForwardMode m = limits.mode;
  const bool two_parts = limits.model.ragged_prefill && is_extend_or_draft_extend_or_mixed(m);
  for (LayerKind& kind : limits.model.layers) {
    int32_t& window = kind.params.window_left;
    if (!two_parts || kind.cross || window < 0 || window >= limits.max_kv_len) continue;
    window = limits.max_kv_len;  // the layer keeps its wrapper, and sees all
    act();
  }
}

}  // namespace shadowgraph
