// Who hands out slots: pages first in, first out, as SGLang's allocators do. Nothing is taken, and
// nothing written, where there is not enough. See docs/metadata.md "Pools".
// Tested by tests/runtime/allocator_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace shadowgraph {

/// slot = page * page_size + offset.
using Slots = std::vector<int32_t>;

/// A request grows from prefix_len to kv_len tokens.
struct Growth {
  int32_t prefix_len = 0, kv_len = 0;
  int32_t last_slot = -1;  // of token prefix_len - 1; -1 if there is none
};

/// One pool: pages 1 .. num_pages, page 0 is the sink.
class PageAllocator {
 public:
  /// page_size: a power of two.
  PageAllocator(int32_t num_pages, int32_t page_size);

  /// Whole pages; tokens is a multiple of the page size.
  std::optional<Slots> alloc(int32_t tokens);
  /// The slots of all new tokens, request by request: first the rest of the last page, then new
  /// ones. Requires last_slot at offset (prefix_len - 1) mod page_size.
  std::optional<Slots> alloc_extend(std::span<const Growth> requests);
  /// One token each; seq_lens count it.
  std::optional<Slots> alloc_decode(std::span<const int32_t> seq_lens,
                                    std::span<const int32_t> last_slots);
  /// The whole page of every slot: who frees a part of a page frees all of it.
  void free(std::span<const int32_t> slots);

  int32_t page_size() const { return page_size_; }
  int32_t num_pages() const { return static_cast<int32_t>(taken_.size()) - 1; }
  int32_t free_pages() const { return static_cast<int32_t>(free_.size()); }
  /// By page, page 0 first.
  const std::vector<bool>& taken() const { return taken_; }
  /// How many times each page was handed out: its contents are not those of the time before.
  const std::vector<uint32_t>& takes() const { return takes_; }
  /// How many calls gave each page back, whether or not it was taken.
  const std::vector<uint32_t>& frees() const { return frees_; }
  /// Pages that the requests would take.
  int64_t pages_to_grow(std::span<const Growth> requests) const;

 private:
  int32_t take();
  void extend(const Growth& g, Slots* slots);

  int32_t page_size_;
  std::deque<int32_t> free_;
  std::vector<bool> taken_;  // page 0 never is
  std::vector<uint32_t> takes_, frees_;
  int64_t calls_ = 0;
  std::vector<int64_t> freed_by_;  // the last call that gave the page back
};

/// The slots of a model: one pool, or a second one for its sliding-window layers, of which a token
/// has a slot as long as it may be seen.
class SlotAllocator {
 public:
  /// swa_pages 0: one pool.
  SlotAllocator(int32_t num_pages, int32_t swa_pages, int32_t page_size);
  virtual ~SlotAllocator() = default;
  SlotAllocator(const SlotAllocator&) = delete;
  SlotAllocator& operator=(const SlotAllocator&) = delete;

  // As PageAllocator, in both pools or in none.
  virtual std::optional<Slots> alloc(int32_t tokens);
  virtual std::optional<Slots> alloc_extend(std::span<const Growth> requests);
  virtual std::optional<Slots> alloc_decode(std::span<const int32_t> seq_lens,
                                            std::span<const int32_t> last_slots);
  virtual void free(std::span<const int32_t> slots);
  /// The window pool's pages of these slots only. Requires whole pages.
  virtual void free_swa(std::span<const int32_t> slots);

  /// Slot of the full pool -> of the window pool, same offset; 0 where there is none, and -1 for
  /// index -1, which is the last entry: [(num_pages + 1) * page_size + 1]. Empty: one pool.
  virtual std::span<const int64_t> full_to_swa() const { return full_to_swa_; }
  const PageAllocator& full() const { return full_; }
  /// nullptr: one pool.
  const PageAllocator* swa() const { return swa_ ? &*swa_ : nullptr; }

 private:
  bool room_for(int64_t pages) const;
  void map(const Slots& slots);
  /// Ends the mapping of the pages of these slots, and gives their window pages back.
  void unmap(std::span<const int32_t> slots);

  PageAllocator full_;
  std::optional<PageAllocator> swa_;
  std::vector<int64_t> full_to_swa_;
};

}  // namespace shadowgraph
