#include "faults/graphs.h"

#include <algorithm>

#include "backends/ascend.h"
#include "core/laws.h"
#include "faults/buffers.h"

namespace shadowgraph {
namespace {

/// The branches' table of a draft decode; nullptr: this step has none.
const Buffer* draft_table(const Meta& meta) {
  const auto it = std::ranges::find_if(meta.buffers, [](const Buffer& b) {
    return b.data != nullptr && b.name.ends_with("draft_table");
  });
  return meta.limits.mode != ForwardMode::kDraftDecode || it == meta.buffers.end() ? nullptr : &*it;
}

/// fn(meta, list) for what an NPU's kernel takes as lists of the host: here or in children.
template <class Fn>
void for_host_lists(Meta& meta, Fn fn) {
  for_metas_of<Ascend>(meta, [&](Meta& m) {
    for (const size_t list : {size_t{Ascend::kKvLens}, size_t{Ascend::kActualSeqLengths}})
      if (m.has(list)) fn(m, m.buffers[list]);
  });
}

constexpr const char* kCaptured = "captured";  // the scope of what a capture keeps

/// Binds a copy of what fill has staged.
Status keep(const Meta& meta, const Buffer& list) {
  std::span<int32_t> staged;
  Arena arena = meta.arena;
  Status status = arena.stage(list, list.all(), &staged);
  BufferSpec spec = list;
  spec.name = own_name(list);
  spec.lifetime = Lifetime::kConstant;
  std::vector<Buffer> bound;
  if (status.ok()) status = arena.scope(kCaptured).bind({&spec, 1}, &bound);
  if (status.ok()) status = arena.write(bound[0], 0, std::span<const int32_t>(staged));
  return status;
}

}  // namespace

Status UnslicedScatter::filled(const ForwardBatch& batch, Meta& meta) {
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
      status.add(meta.arena.write(*table, row * width + column, &value, 1));
    }
  }
  return status;
}

void CaptureBakesOneQuery::baked(Meta& meta, bool capturing) {
  if (!capturing || !is_draft_extend(meta.limits.mode, DraftExtendV2::kIncluded)) return;
  if (meta.limits.max_q_len != 1) act();
  meta.limits.max_q_len = 1;
}

void CaptureCountsNoRows::baked(Meta& meta, bool capturing) {
  if (!capturing) return;
  for_host_lists(meta, [&](Meta& of_list, Buffer& list) {
    if (list.numel() > 0) act();
    list.shape = {0};
    of_list.buffers[Ascend::kCuSeqlensQ].shape = {1};
  });
}

Status ListsOfTheCapture::filled(const ForwardBatch& batch, Meta& meta) {
  Status status;
  if (batch.size() > 0) return status;  // rows without any request are a capture's
  for_host_lists(meta, [&](const Meta& of_list, const Buffer& list) {
    const bool kept = of_list.arena.scope(kCaptured).find(own_name(list)) != nullptr;
    if (!kept && list.numel() > 0) status.add(keep(of_list, list));
  });
  return status;
}

void ListsOfTheCapture::baked(Meta& meta, bool capturing) {
  for_host_lists(meta, [&](const Meta& of_list, Buffer& list) {
    const Buffer* kept = of_list.arena.scope(kCaptured).find(own_name(list));
    if (kept == nullptr) return;
    if (!capturing) act();
    list = *kept;
  });
}

}  // namespace shadowgraph
