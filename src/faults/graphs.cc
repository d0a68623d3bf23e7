// Faults of captured buffers and scalars: K04, K11, K11a and K11b.

#include <algorithm>

#include "faults/plant.h"

namespace shadowgraph {
namespace {

/// The branches' table of a draft decode; nullptr: this step has none.
const Buffer* draft_table(const Meta& meta) {
  return meta.limits.mode == ForwardMode::kDraftDecode ? find_buffer(meta, "draft_table") : nullptr;
}

/// fn(row, column, page) of the pages that all steps of a draft's branches lie on.
template <class Fn>
void each_page(const ForwardBatch& batch, const Meta& m, Fn fn) {
  const int64_t steps = batch.spec.num_steps, branches = batch.spec.topk;
  const int64_t first = m.limits.first_row * branches;
  for (int64_t row = 0; row < real_rows(batch, m.limits).rows * branches; ++row) {
    int64_t column = -1, last = -1;
    for (int64_t j = (first + row) * steps; j < (first + row + 1) * steps; ++j) {
      const int64_t page = batch.out_cache_loc[static_cast<size_t>(j)] / m.limits.model.page_size;
      column += page != last;
      last = page;
      fn(row, column, page);
    }
  }
}

/// The pages of all steps of a draft are scattered into its table of this step: a row's last ones
/// lie where the next row begins, and those of the last row behind the table.
class PagesOfAllSteps final : public Tap {
 public:
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    Status status;
    if (!is_replay(batch, meta) || meta.limits.model.page_size == 1) return status;
    for_metas(meta, [&](const Meta& m) {
      const Buffer* table = draft_table(m);
      if (table == nullptr) return;
      each_page(batch, m, [&](int64_t row, int64_t column, int64_t page) {
        const int64_t width = table->shape[1];  // so far fill has written
        if (column >= width) status.add(write(m, *table, row * width + column, page));
      });
    });
    return status;
  }

 private:
  Status write(const Meta& m, const Buffer& table, int64_t element, int64_t page) {
    act();
    const auto value = static_cast<int32_t>(page);
    Arena arena = m.arena;
    if (element < table.numel()) return arena.write(table, element, &value, 1);
    arena.device().memcpy({table.data + element * int64_t{sizeof value}, &value, sizeof value});
    return {};
  }
};

/// fn(meta, buffer) of an NPU's metadata that its host counts: here or in children.
template <class Fn>
void for_host_lists(Meta& meta, std::initializer_list<std::string_view> names, Fn fn) {
  for_buffers(meta, names, [&](Meta& m, Buffer& b) {
    if (m.backend->info().engine == &kSglangNpu) fn(m, b);
  });
}

template <class Fn>
void for_kept_lists(Meta& meta, Fn fn) {
  for_host_lists(meta, {"kv_lens", "actual_seq_lengths", "query_start_loc", "mamba_cache_indices"},
                 fn);
}

constexpr const char* kCaptured = "captured";  // the scope of what a capture keeps

/// Binds a copy of what fill has staged.
Status keep(const Meta& meta, const Buffer& list, Buffer* copy) {
  std::span<int32_t> staged;
  Arena arena = meta.arena;
  Status status = arena.stage(list, list.all(), &staged);
  BufferSpec spec = list;
  spec.name = own_name(list);
  spec.lifetime = Lifetime::kConstant;
  std::vector<Buffer> bound;
  if (status.ok()) status = arena.scope(kCaptured).bind({&spec, 1}, &bound);
  if (status.ok()) status = arena.write(bound[0], 0, std::span<const int32_t>(staged));
  if (status.ok()) *copy = std::move(bound[0]);
  return status;
}

/// The kernel's lists of the host are those that the capture saw, whatever a fill writes.
struct ListsOfTheCapture final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    Status status;
    if (batch.size() > 0) return status;  // rows without any request are a capture's
    std::vector<std::pair<Meta*, Buffer>> copies;
    for_kept_lists(meta, [&](Meta& of_list, const Buffer& list) {
      const bool kept = of_list.arena.scope(kCaptured).find(own_name(list)) != nullptr;
      if (kept || list.numel() == 0) return;
      status.add(keep(of_list, list, &copies.emplace_back(&of_list, Buffer{}).second));
    });
    // They are the metadata's own: that they are old is what is wrong.
    for (auto& [of, copy] : copies) of->buffers.push_back(std::move(copy));
    return status;
  }
  void baked(Meta& meta, bool capturing) override {
    for_kept_lists(meta, [&](const Meta& of_list, Buffer& list) {
      const Buffer* kept = of_list.arena.scope(kCaptured).find(own_name(list));
      if (kept == nullptr || kept->data == list.data) return;
      if (!capturing) act();
      list = *kept;
    });
  }
};

constexpr Fault kGraphsFaults[] = {
    // A draft's slots are scattered into its table row unsliced: all steps' pages, not this step's.
    {"K04", "OOBW", "The scatter into a draft's page table overflows its row",
     "sglang#27360 fa.I-32 fa.I-33", "", make_tap<PagesOfAllSteps>},
    // Capture runs through replay's filler, which takes the longest query from accept lengths that
    // a capture has not got.
    {"K11", "STALE", "Draft extend is captured with a longest query of 1", "sglang#26665 fa.I-72",
     "row.unwritten", on_baked([](Tap& tap, Meta& meta, bool capturing) {
       if (!capturing || !is_draft_extend(meta.limits.mode, DraftExtendV2::kIncluded)) return;
       for_metas(meta, [&](Meta& m) {
         if (m.limits.max_q_len != 1) tap.act();
         m.limits.max_q_len = 1;
       });
     })},
    // A capture that is told no lengths of the host takes every row for padding: what it records
    // has no rows. It strikes backends whose kernel takes lists of the host.
    {"K11a", "STALE", "A capture has no lengths of the host, and counts every row as padding",
     "sglang#26665 fi.I-80 fi.I-83", "row.unwritten",
     on_baked([](Tap& tap, Meta& meta, bool capturing) {
       if (!capturing) return;
       for_host_lists(meta, {"kv_lens", "actual_seq_lengths", "mamba_cache_indices"},
                      [&](const Meta&, Buffer& list) {
                        if (list.numel() > 0) tap.act();
                        list.shape = {0};
                      });
       for_host_lists(meta, {"cu_seqlens_q", "query_start_loc"},
                      [](const Meta&, Buffer& offsets) { offsets.shape = {1}; });
     })},
    {"K11b", "STALE", "Lists of the host stay those of the capture",
     "sglang#26665 fi.I-81 fi.I-109", "extent.stale table.stale", make_tap<ListsOfTheCapture>},
};

}  // namespace

std::span<const Fault> themes::graphs() { return kGraphsFaults; }

}  // namespace shadowgraph
