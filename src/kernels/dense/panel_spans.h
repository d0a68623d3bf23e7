// Footprints inside a panel of 16 tokens (KvOrder), exact to the element. Tested by
// tests/kernels/footprint_test.cc and store_kv_test.cc.
#pragma once

#include <cstdint>

#include "kernels/spans.h"
#include "shadowgraph/attention/kv_cache.h"

namespace shadowgraph {

struct PanelShape {
  KvOrder order;  // kKeyPanels or kValuePanels
  DType dtype;
  int32_t head_dim;

  int64_t elements() const { return contiguous_elements(order, dtype, head_dim); }
  bool padded() const { return elements() != int64_t{kPanelTokens} * head_dim; }
};

/// The dims of tokens [begin, end), 0 <= begin < end <= 16, of the panel that starts at
/// panel.first; without its padding.
void add_panel_tokens(Footprint* spans, const AccessSpan& panel, const PanelShape& shape,
                      int64_t begin, int64_t end);

}  // namespace shadowgraph
