// Faults of captured buffers and scalars: K04, K11, K11a and K11b.

#include <algorithm>

#include "backends/paged/ascend.h"
#include "core/laws.h"
#include "faults/plant.h"

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

/// The kernel's lists of the host are those that the capture saw, whatever a fill writes.
struct ListsOfTheCapture final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    Status status;
    if (batch.size() > 0) return status;  // rows without any request are a capture's
    for_host_lists(meta, [&](const Meta& of_list, const Buffer& list) {
      const bool kept = of_list.arena.scope(kCaptured).find(own_name(list)) != nullptr;
      if (!kept && list.numel() > 0) status.add(keep(of_list, list));
    });
    return status;
  }
  void baked(Meta& meta, bool capturing) override {
    for_host_lists(meta, [&](const Meta& of_list, Buffer& list) {
      const Buffer* kept = of_list.arena.scope(kCaptured).find(own_name(list));
      if (kept == nullptr) return;
      if (!capturing) act();
      list = *kept;
    });
  }
};

constexpr Fault kGraphsFaults[] = {
    // A draft's slots are scattered into its table row unsliced: all steps' pages, not this step's.
    {"K04", "OOBW", "The scatter into a draft's page table overflows its row",
     "sglang#27360 fa.I-32 fa.I-33", "",
     on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       Status status;
       const Buffer* table = draft_table(meta);
       const int32_t page_size = meta.limits.model.page_size;
       if (table == nullptr || page_size == 1) return status;
       const int64_t width = table->shape[1], steps = batch.spec.num_steps;
       for (int64_t row = 0; row < batch.size() * batch.spec.topk; ++row) {
         int64_t column = 0, page = -1;
         for (int64_t j = 0; j < steps; ++j) {
           const int64_t next =
               batch.out_cache_loc[static_cast<size_t>(row * steps + j)] / page_size;
           column += j > 0 && next != page;
           page = next;
           if (column < width) continue;  // there fill has written
           tap.act();
           const auto value = static_cast<int32_t>(page);
           status.add(meta.arena.write(*table, row * width + column, &value, 1));
         }
       }
       return status;
     })},
    // Capture runs through replay's filler, which takes the longest query from accept lengths that
    // a capture has not got.
    {"K11", "STALE", "Draft extend is captured with a longest query of 1", "sglang#26665 fa.I-72",
     "row.unwritten", on_baked([](Tap& tap, Meta& meta, bool capturing) {
       if (!capturing || !is_draft_extend(meta.limits.mode, DraftExtendV2::kIncluded)) return;
       if (meta.limits.max_q_len != 1) tap.act();
       meta.limits.max_q_len = 1;
     })},
    // A capture that is told no lengths of the host takes every row for padding: what it records
    // has no rows. It strikes backends whose kernel takes lists of the host.
    {"K11a", "STALE", "A capture has no lengths of the host, and counts every row as padding",
     "sglang#26665 fi.I-80 fi.I-83", "row.unwritten",
     on_baked([](Tap& tap, Meta& meta, bool capturing) {
       if (!capturing) return;
       for_host_lists(meta, [&](Meta& of_list, Buffer& list) {
         if (list.numel() > 0) tap.act();
         list.shape = {0};
         of_list.buffers[Ascend::kCuSeqlensQ].shape = {1};
       });
     })},
    {"K11b", "STALE", "Lists of the host stay those of the capture",
     "sglang#26665 fi.I-81 fi.I-109", "extent.stale table.stale", make_tap<ListsOfTheCapture>},
};

}  // namespace

std::span<const Fault> themes::graphs() { return kGraphsFaults; }

}  // namespace shadowgraph
