#include "kernels/dense/panel_spans.h"

#include <algorithm>

namespace shadowgraph {
namespace {

/// Both orders are rows of [columns][P]: keys have a row for P dims and a column a token, values a
/// row for P tokens and a column a dim of the block. Of one row: columns [begin, end), of each
/// elements [low, high) of the P.
void add_row(Footprint* spans, AccessSpan row, int64_t pair, int64_t begin, int64_t end,
             int64_t low, int64_t high) {
  const int64_t first = row.first;
  if (high - low == pair) {
    row.first = first + begin * pair;
    row.count = (end - begin) * pair;
    return append(spans, row);
  }
  row.count = high - low;
  for (int64_t column = begin; column < end; ++column) {
    row.first = first + column * pair + low;
    append(spans, row);
  }
}

}  // namespace

void add_panel_tokens(Footprint* spans, const AccessSpan& panel, const PanelShape& shape,
                      int64_t begin, int64_t end) {
  const int64_t pair = panel_pair(shape.dtype), dims = shape.head_dim;
  AccessSpan row = panel;
  if (shape.order == KvOrder::kKeyPanels) {
    for (int64_t d = 0; d < dims; d += pair) {
      row.first = panel.first + d * kPanelTokens;
      add_row(spans, row, pair, begin, end, 0, std::min(pair, dims - d));
    }
    return;
  }
  for (int64_t d = 0; d < dims; d += kValueBlockDims) {
    const int64_t used = std::min<int64_t>(kValueBlockDims, dims - d);
    for (int64_t t = begin / pair * pair; t < end; t += pair) {
      row.first = panel.first + value_panel_offset(shape.dtype, shape.head_dim, t, d);
      add_row(spans, row, pair, 0, used, std::max<int64_t>(begin - t, 0), std::min(pair, end - t));
    }
  }
}

}  // namespace shadowgraph
