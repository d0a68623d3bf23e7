#include "runtime/batch_laws.h"

#include <algorithm>
#include <string>

#include "attn/tree_mask.h"
#include "core/laws.h"

namespace shadowgraph {

void check_columns(const LiveColumns& columns, int64_t page_size, const Engine& engine,
                   const std::function<bool(int64_t)>& is_allocated, Status* status) {
  std::string right = "a slot that is allocated";
  if (engine.reserved_page) right += ", not of page " + std::to_string(*engine.reserved_page);
  judged("pool.slot", std::ssize(columns.slots) - columns.first);
  judged("pool.page", std::max<int64_t>(0, columns.paged - columns.first));
  // Most slots follow their neighbour's, which is right: then nothing is divided.
  bool right_before = false;
  int64_t place = columns.first % page_size;  // in the page
  for (int64_t c = columns.first; c < std::ssize(columns.slots); ++c, ++place) {
    if (place == page_size) place = 0;
    const auto i = static_cast<size_t>(c);
    const int64_t slot = columns.slots[i];
    const auto where = [&] { return at("req_to_token", columns.row, c); };
    const bool next = place > 0 && right_before && columns.slots[i - 1] == slot - 1;
    const bool nobodys = !next && (slot < 0 || engine.is_reserved(slot, page_size));
    right_before = !nobodys && is_allocated(slot);
    if (!right_before) {
      status->add(make_finding("pool.slot", where(), right, std::to_string(slot)));
      continue;
    }
    if (next || c >= columns.paged || page_size == 1) continue;
    const bool follows = place == 0 || c == columns.first || columns.slots[i - 1] == slot - 1;
    right_before = slot % page_size == place && follows;
    if (!right_before)
      status->add(make_finding("pool.page", where(), "the slot after its neighbour's in the page",
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
