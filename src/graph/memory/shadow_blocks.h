// Which block an address belongs to: allocations in one address space, and the buffers declared
// inside them. Offsets count from the start of the address space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/memory/memory.h"
#include "graph/memory/shadow.h"

namespace shadowgraph {

/// An allocation, or a buffer declared inside one.
struct Block {
  uint32_t id = 0;
  uint32_t generation = 0;  // how often its place was handed out
  size_t offset = 0, bytes = 0;
  size_t extent = 0;                    // bytes, and of an allocation the red zone behind it
  DeviceMemory::Allocation allocation;  // of a buffer: the one that it lies in
  uint32_t ordinal = 0;                 // of that allocation, in the order of the calls; from 1
  Block* parent = nullptr;              // of a buffer
  bool live = false;
  bool begun = true;  // false: a graph allocation before its allocation node or after its free node
  int32_t reservations = 0;  // of the address of a graph allocation
  bool disowned = false;     // all of them were given up
  bool backed = false;       // a graph allocation that was begun since the last trim
  Origin changed_by;         // who began or ended a graph allocation
  Lifetime lifetime = Lifetime::kPersistent;
  std::string name, former_name;   // former: of the generation before
  std::map<size_t, Block*> parts;  // declared in it, by offset; ended ones too
  Shadow shadow;

  bool usable() const { return live && begun; }
  size_t end() const { return offset + bytes; }
  /// The host writes it without a call: nobody knows what it holds.
  bool host_writes() const {
    return allocation.kind == AllocKind::kManaged || allocation.kind == AllocKind::kPinned;
  }
};

/// Ranges of the address space, first fit, most recently freed first, an exact fit before all.
class AddressSpace {
 public:
  AddressSpace(size_t begin, size_t end, size_t quarantine)
      : top_(begin), end_(end), quarantine_(quarantine) {}
  std::optional<size_t> take(size_t extent);
  void give_back(size_t offset, size_t extent);

 private:
  struct Range {
    size_t offset, extent;
  };
  std::optional<size_t> take_free(size_t extent);
  void merge_neighbours();

  size_t top_, end_, quarantine_;
  size_t held_bytes_ = 0;
  std::deque<Range> held_;   // in quarantine, oldest first
  std::vector<Range> free_;  // most recent last
};

class Blocks {
 public:
  explicit Blocks(const MemoryOptions& options);
  ~Blocks();
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  std::byte* address(size_t offset) const { return base_ + offset; }
  size_t capacity() const { return capacity_; }
  size_t red_zone() const { return options_.red_zone; }
  /// The offset of an address; nothing if it is outside the address space.
  std::optional<size_t> offset_of(const void* p) const;
  /// The bytes of a span as offsets; none if any lies outside the address space or count is
  /// negative. Safe for any first and count.
  struct Extent {
    size_t begin, end;
  };
  std::optional<Extent> extent_of_span(const AccessSpan& span) const;

  Block* allocate(size_t bytes, AllocKind kind);
  void release(Block& block);
  /// A buffer inside a live allocation; nullptr if it does not fit into one.
  Block* declare(size_t offset, const BufferDecl& buffer);

  Block& operator[](uint32_t id) { return blocks_[id - 1]; }
  /// The allocation whose bytes or red zone hold the offset, live or not, or nullptr.
  Block* allocation_at(size_t offset);
  /// The declared buffer there, live or not; else the allocation.
  Block* block_at(size_t offset);
  /// The first usable block that holds a byte of [begin, end), or nullptr.
  Block* first_usable(size_t begin, size_t end);

  /// fn(Block&, begin, end) for the bytes of [begin, end) that each usable block with a shadow
  /// holds.
  template <class Fn>
  void for_each_shadow(size_t begin, size_t end, Fn fn) {
    Block* b = last_;
    if (b == nullptr || !b->usable() || !b->parts.empty() || begin < b->offset || end > b->end())
      b = first_usable(begin, end);
    while (b != nullptr) {
      last_ = b;
      const size_t stop = end < b->end() ? end : b->end();
      if (b->shadow.size() > 0) fn(*b, begin > b->offset ? begin : b->offset, stop);
      b = stop < end ? first_usable(stop, end) : nullptr;
    }
  }

  std::deque<Block>& all() { return blocks_; }

 private:
  /// Nobody asks about it any more: its place is another block's.
  static void forget(Block& block);
  /// The record for a place: of the block that was there, a generation up, or a new one. Whatever
  /// overlaps it ends.
  Block& renew(std::map<size_t, Block*>& places, size_t offset, size_t bytes, size_t extent);

  MemoryOptions options_;
  std::byte* base_ = nullptr;
  size_t capacity_ = 0;
  AddressSpace space_;
  std::deque<Block> blocks_;  // by id - 1; addresses stay
  std::map<size_t, Block*> allocations_;
  Block* last_ = nullptr;
  uint32_t ordinal_ = 0;
};

/// Which layer has an address for its own.
class LayerPlaces {
 public:
  void set(std::span<const LayerBytes> tensors);
  bool empty() const { return places_.empty(); }
  /// -1: no layer, or several.
  int32_t layer_at(const void* p) const;

 private:
  struct Place {
    uintptr_t begin, end;
    int32_t layer;
  };
  std::vector<Place> places_;  // by address, disjoint
};

/// All that a DeviceMemory knows.
struct MemoryState {
  explicit MemoryState(const MemoryOptions& options) : blocks(options) {}
  Blocks blocks;
  OwnerSets owner_sets;
  Origins origins;
  /// The live allocation that starts at p, or nullptr.
  Block* allocation_starting_at(const void* p);
  /// A graph allocation, with the buffers declared in it, begins or ends.
  static void set_begun(Block& block, bool begun, const Origin& by);
  /// Who wrote the granule that holds the offset from the block's start; "" if nobody.
  std::string writer_of(const Block& block, size_t offset) const;

  /// Whose work these accesses are, by the tensors that they name or the scratch that they read.
  int32_t layer_of(const Footprint& spans);

  std::vector<OwnerId> row_owners;
  LayerPlaces layers;
  uint64_t step = 0;
};

struct DeviceMemory::Impl : MemoryState {
  using MemoryState::MemoryState;
};

/// "A", "allocation 2".
std::string label_of(const Block& block);
/// A[3], or allocation 2 + 12 B; offset from the block's start, in or out of it.
Where where_in(const Block& block, int64_t offset);

}  // namespace shadowgraph
