#include "runtime/batch_laws.h"

#include <string>

#include "attn/tree_mask.h"
#include "core/laws.h"

namespace shadowgraph {

void check_columns(std::span<const int32_t> columns, int64_t row, int64_t page_size, int64_t paged,
                   const std::function<bool(int64_t)>& is_allocated, Status* status) {
  for (size_t c = 0; c < columns.size(); ++c) {
    const int64_t slot = columns[c], offset = slot % page_size;
    const Where where = at("req_to_token", row, static_cast<int64_t>(c));
    if (slot < page_size || !is_allocated(slot))
      status->add(make_finding("pool.slot", where, "a slot that is allocated, not of page 0",
                               std::to_string(slot)));
    else if (static_cast<int64_t>(c) < paged && (offset != static_cast<int64_t>(c) % page_size ||
                                                 (offset != 0 && columns[c - 1] != slot - 1)))
      status->add(make_finding("pool.page", where, "the slot after its neighbour's in the page",
                               std::to_string(slot)));
  }
}

int64_t position_of(const ForwardBatch& one, int64_t token) {
  const RequestExtent e = one.extent(0);
  if (one.mode == ForwardMode::kDraftDecode) return e.prefix_len;
  if (!is_target_verify(one.mode) || one.spec.topk == 1) return e.prefix_len + token;
  return e.prefix_len + TreeMask(one.spec.custom_mask, e).visible(static_cast<int32_t>(token)) - 1;
}

}  // namespace shadowgraph
