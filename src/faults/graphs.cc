#include "faults/graphs.h"

#include <algorithm>

#include "core/laws.h"

namespace shadowgraph {
namespace {

/// The branches' table of a draft decode; nullptr: this step has none.
const Buffer* draft_table(const Meta& meta) {
  const auto it = std::ranges::find_if(meta.buffers, [](const Buffer& b) {
    return b.data != nullptr && b.name.ends_with("draft_table");
  });
  return meta.limits.mode != ForwardMode::kDraftDecode || it == meta.buffers.end() ? nullptr : &*it;
}

}  // namespace

Status UnslicedScatter::filled(const ForwardBatch& batch, Meta& meta) const {
  Status status;
  const Buffer* table = draft_table(meta);
  const int32_t page_size = meta.limits.model.page_size;
  if (table == nullptr || page_size == 1) return status;
  const int64_t width = table->shape[1], steps = batch.spec.num_steps;
  for (int64_t row = 0; row < batch.size() * batch.spec.topk; ++row) {
    int64_t column = 0, page = -1;
    for (int64_t j = 0; j < steps; ++j) {
      const int64_t next = batch.out_cache_loc[static_cast<size_t>(row * steps + j)] / page_size;
      column += j > 0 && next != page;
      page = next;
      if (column < width) continue;  // there fill has written
      act();
      const auto value = static_cast<int32_t>(page);
      if (!meta.arena.write(*table, row * width + column, &value, 1).ok())
        status.add(make_finding("table.capacity", at(table->name, row, column),
                                "< " + std::to_string(width) + " columns", "another page"));
    }
  }
  return status;
}

void CaptureBakesOneQuery::baked(Meta& meta, bool capture) const {
  if (!capture || !is_draft_extend(meta.limits.mode, DraftExtendV2::kIncluded)) return;
  if (meta.limits.max_q_len != 1) act();
  meta.limits.max_q_len = 1;
}

}  // namespace shadowgraph
