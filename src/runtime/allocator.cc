#include "runtime/allocator.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "attn/page_table.h"

namespace shadowgraph {
namespace {

std::vector<Growth> decodes(std::span<const int32_t> seq_lens, std::span<const int32_t> last) {
  assert(seq_lens.size() == last.size());
  std::vector<Growth> growth;
  for (size_t i = 0; i < seq_lens.size(); ++i)
    growth.push_back({seq_lens[i] - 1, seq_lens[i], last[i]});
  return growth;
}

}  // namespace

PageAllocator::PageAllocator(int32_t num_pages, int32_t page_size)
    : page_size_(page_size),
      taken_(static_cast<size_t>(num_pages) + 1),
      takes_(taken_.size()),
      frees_(taken_.size()),
      freed_by_(taken_.size()) {
  assert(page_size > 0 && std::has_single_bit(static_cast<uint32_t>(page_size)));
  for (int32_t page = 1; page <= num_pages; ++page) free_.push_back(page);
}

int32_t PageAllocator::take() {
  const int32_t page = free_.front();
  free_.pop_front();
  taken_[static_cast<size_t>(page)] = true;
  ++takes_[static_cast<size_t>(page)];
  return page;
}

std::optional<Slots> PageAllocator::alloc(int32_t tokens) {
  assert(tokens % page_size_ == 0);
  const Growth g{.kv_len = tokens};
  return alloc_extend({&g, 1});
}

int64_t PageAllocator::pages_to_grow(std::span<const Growth> requests) const {
  int64_t pages = 0;
  for (const Growth& g : requests)
    pages += pages_for(g.kv_len, page_size_) - pages_for(g.prefix_len, page_size_);
  return pages;
}

std::optional<Slots> PageAllocator::alloc_extend(std::span<const Growth> requests) {
  if (pages_to_grow(requests) > free_pages()) return std::nullopt;
  Slots slots;
  for (const Growth& g : requests) extend(g, &slots);
  return slots;
}

void PageAllocator::extend(const Growth& g, Slots* slots) {
  assert((g.last_slot + 1) % page_size_ == g.prefix_len % page_size_);
  int32_t slot = g.last_slot;
  for (int32_t token = g.prefix_len; token < g.kv_len; ++token) {
    slot = token % page_size_ == 0 ? take() * page_size_ : slot + 1;
    slots->push_back(slot);
  }
}

std::optional<Slots> PageAllocator::alloc_decode(std::span<const int32_t> seq_lens,
                                                 std::span<const int32_t> last_slots) {
  return alloc_extend(decodes(seq_lens, last_slots));
}

void PageAllocator::free(std::span<const int32_t> slots) {
  ++calls_;
  for (const int32_t slot : slots) {
    const auto page = static_cast<size_t>(slot / page_size_);
    if (std::exchange(freed_by_[page], calls_) != calls_) ++frees_[page];
    if (!taken_[page]) continue;  // another slot of the page came before
    taken_[page] = false;
    free_.push_back(static_cast<int32_t>(page));
  }
}

SlotAllocator::SlotAllocator(int32_t num_pages, int32_t swa_pages, int32_t page_size)
    : full_(num_pages, page_size) {
  if (swa_pages == 0) return;
  swa_.emplace(swa_pages, page_size);
  full_to_swa_.resize((static_cast<size_t>(num_pages) + 1) * static_cast<size_t>(page_size) + 1);
  full_to_swa_.back() = -1;
}

bool SlotAllocator::room_for(int64_t pages) const {
  return pages <= full_.free_pages() && (!swa_ || pages <= swa_->free_pages());
}

void SlotAllocator::map(const Slots& slots) {
  if (!swa_) return;
  const int32_t page_size = full_.page_size();
  for (const int32_t slot : slots) {
    const int32_t offset = slot % page_size;
    int64_t& to = full_to_swa_[static_cast<size_t>(slot)];
    // The rest of a page follows its first token.
    assert(offset == 0 || full_to_swa_[static_cast<size_t>(slot - 1)] > 0);
    to = offset == 0 ? swa_->alloc(page_size)->front()
                     : full_to_swa_[static_cast<size_t>(slot - 1)] + 1;
  }
}

std::optional<Slots> SlotAllocator::alloc(int32_t tokens) {
  const Growth g{.kv_len = tokens};
  return alloc_extend({&g, 1});
}

std::optional<Slots> SlotAllocator::alloc_extend(std::span<const Growth> requests) {
  if (!room_for(full_.pages_to_grow(requests))) return std::nullopt;
  std::optional<Slots> slots = full_.alloc_extend(requests);
  map(*slots);
  return slots;
}

std::optional<Slots> SlotAllocator::alloc_decode(std::span<const int32_t> seq_lens,
                                                 std::span<const int32_t> last_slots) {
  return alloc_extend(decodes(seq_lens, last_slots));
}

void SlotAllocator::unmap(std::span<const int32_t> slots) {
  if (!swa_) return;
  const int32_t page_size = full_.page_size();
  for (const int32_t slot : slots) {
    const auto page = full_to_swa_.begin() + (slot - slot % page_size);
    const auto first = static_cast<int32_t>(*page);
    if (first > 0) swa_->free({&first, 1});
    std::fill_n(page, page_size, 0);
  }
}

void SlotAllocator::free(std::span<const int32_t> slots) {
  unmap(slots);
  full_.free(slots);
}

void SlotAllocator::free_swa(std::span<const int32_t> slots) { unmap(slots); }

}  // namespace shadowgraph
