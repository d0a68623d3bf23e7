#include "kernels/cache/slot_spans.h"

#include "kernels/dense/panel_spans.h"
#include "kernels/spans.h"

namespace shadowgraph {

void add_slot(Footprint* spans, const KvCache& cache, const KvPlane& plane, int64_t slot,
              Access access, int32_t row) {
  const int64_t page = slot / cache.page_size, in_page = slot % cache.page_size;
  for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
    AccessSpan span{plane.data, 0, plane.head_dim, element_bytes(plane.dtype), access, row};
    if (plane.order == KvOrder::kStrided) {
      span.first = plane.offset(page, in_page, head, 0);
      append(spans, span);
      continue;
    }
    const int64_t lane = in_page % kPanelTokens;
    span.first = plane.offset(page, in_page - lane, head, 0);
    add_panel_tokens(spans, span, {plane.order, plane.dtype, plane.head_dim}, lane, lane + 1);
  }
  if (plane.scales == nullptr) return;
  add_block(spans,
            {plane.scales, plane.scale_offset(page, in_page, 0), 1, sizeof(float), access, row}, {},
            {cache.num_kv_heads, plane.scale_head_stride});
}

}  // namespace shadowgraph
