#include "launch/slot_list.h"

#include "launch/launch_args.h"

namespace shadowgraph {

bool SlotList::load(int64_t first, int64_t count, int32_t request, PartKeys* keys) {
  narrow_.clear();
  keys->cache = cache_;
  if (spans_ != nullptr && count > 0)
    spans_->push_back({slots_.data(), first, count, sizeof(int64_t), Access::kRead, request});
  if (first < 0 || count < 0 || first > std::ssize(slots_) - count) return false;
  bool known = true;
  for (const int64_t slot :
       slots_.subspan(static_cast<size_t>(first), static_cast<size_t>(count))) {
    narrow_.push_back(static_cast<int32_t>(slot));
    if (slot >= 0 && slot < cache_.num_pages) continue;
    if (spans_ != nullptr) add_beyond_pool(spans_, cache_, slot, Access::kRead, request);
    known = false;
  }
  keys->slots = narrow_;
  return known;
}

void SlotList::add_footprint(const AttentionPart& part, int32_t request) const {
  Footprint all;
  add_part_footprint(part, request, &all);
  for (const AccessSpan& span : all)
    if (span.buffer != narrow_.data()) spans_->push_back(span);
}

}  // namespace shadowgraph
