// Faults of slots: units of pages, and the window's pool.

#include <algorithm>
#include <string>

#include "attn/page_table.h"
#include "faults/plant.h"

namespace shadowgraph {
namespace {

/// How many elements of a list are live.
int64_t live(const Meta& meta, const Buffer& list) {
  const std::string_view name = own_name(list);
  const std::string stem(name.substr(0, name.size() - std::string_view("indices").size()));
  const Buffer* indptr = find_buffer(meta, stem + "indptr");
  if (indptr == nullptr) return 0;
  const std::span<const int32_t> last = staged<int32_t>(meta, *indptr, {indptr->numel() - 1, 1});
  return last.empty() ? 0 : last[0];
}

/// How many of them change.
template <class T>
int64_t divide(std::span<T> slots, int32_t page_size) {
  int64_t changed = 0;
  for (T& slot : slots) {
    changed += slot != 0;
    slot /= page_size;
  }
  return changed;
}

/// A slot's place in the window's pool is remembered, also when its page has got another.
struct RememberedTranslation final : Tap {
  void batch(ForwardBatch& batch) override {
    if (batch.full_to_swa.empty()) return;
    memo_.resize(batch.full_to_swa.size());
    for (size_t slot = 0; slot < memo_.size(); ++slot) {
      if (memo_[slot] == 0) memo_[slot] = batch.full_to_swa[slot];
      if (memo_[slot] != batch.full_to_swa[slot]) act();
    }
    batch.full_to_swa = memo_;
  }

 private:
  std::vector<int64_t> memo_;
};

constexpr Fault kSlotsFaults[] = {
    // A draft's lists have the pages of the allocator, and its kernel takes them for its own
    // smaller ones: slots.
    {"K50", "PAGESZ",
     "A draft's lists are in the allocator's pages, and its kernel reads smaller ones",
     "tokenspeed#958 fa.I-34 fi.I-15", "table.other_unit",
     on_filled([](Tap& tap, const ForwardBatch&, Meta& meta) {
       const int32_t page_size = meta.limits.model.page_size;
       if (meta.limits.mode != ForwardMode::kDraftDecode || page_size == 1) return;
       for_endings(meta, {"kv_indices"}, [&](const Meta& m, const Buffer& b) {
         const Elements range{0, live(m, b)};
         const int64_t changed = b.dtype == DType::kI64
                                     ? divide(staged<int64_t>(m, b, range), page_size)
                                     : divide(staged<int32_t>(m, b, range), page_size);
         if (changed > 0) tap.act();
       });
     })},
    // The map of slots to the window's pool is looked up at numbers of pages.
    {"K75", "SWAIDX", "Numbers of pages are looked up in the map of slots to the window's pool",
     "sglang#16267 fa.I-35 fi.I-38", "table.padding",
     on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       const int32_t page_size = meta.limits.model.page_size;
       if (page_size == 1 || batch.full_to_swa.empty()) return;
       for_buffers(meta, {"swa_page_table"}, [&](const Meta& m, const Buffer& b) {
         const Buffer* pages = find_buffer(m, "page_table");
         if (b.lifetime != Lifetime::kPerStep || pages == nullptr) return;
         const int64_t first = m.limits.first_row, width = b.shape[1];
         for (int64_t i = 0; i < real_rows(batch, m.limits).rows; ++i) {
           const int64_t columns = pages_for(batch.extent(first + i).kv_len, page_size);
           const Elements range{i * width, std::min(columns, width)};
           const std::span<const int32_t> from = staged<int32_t>(m, *pages, range);
           const std::span<int32_t> to = staged<int32_t>(m, b, range);
           for (size_t j = 0; j < std::min(from.size(), to.size()); ++j) {
             if (from[j] < 0) continue;  // behind what a half has of a request that is cut
             const auto id = static_cast<int32_t>(batch.full_to_swa[static_cast<size_t>(from[j])]);
             if (id != to[j]) tap.act();
             to[j] = id;
           }
         }
       });
     })},
    {"K76", "SWAIDX", "A translation to the window's pool is remembered when the map has changed",
     "sglang#25889 fa.I-14 fa.I-36", "table.stale table.padding table.one_foreign",
     make_tap<RememberedTranslation>},
};

}  // namespace

std::span<const Fault> themes::slots() { return kSlotsFaults; }

}  // namespace shadowgraph
