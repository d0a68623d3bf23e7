// The shadow of one block: per granule what it holds, whose it is and who wrote it last; and the
// tables that owners and writers are numbered in. See docs/graphs.md "Shadow".
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "graph/memory/memory.h"
#include "graph/memory/poison_pages.h"

namespace shadowgraph {

enum class GranuleState : uint8_t { kUninit, kInit, kRetired };

/// The first i in [begin, end) with a[i] != value, or end. Looks at 32 bytes at a time.
template <class T>
size_t first_unlike(const T* a, size_t begin, size_t end, T value) {
  constexpr size_t kStep = 32 / sizeof(T);
  T pattern[kStep];
  for (T& p : pattern) p = value;
  uint64_t want[4];
  std::memcpy(want, pattern, sizeof want);
  size_t i = begin;
  for (; i + kStep <= end; i += kStep) {
    uint64_t word[4];
    std::memcpy(word, a + i, sizeof word);
    if (((word[0] ^ want[0]) | (word[1] ^ want[1]) | (word[2] ^ want[2]) | (word[3] ^ want[3])) !=
        0)
      break;
  }
  while (i < end && a[i] == value) ++i;
  return i;
}

/// Memory of so many bytes is address space, of which few pages are ever touched: small ones.
inline constexpr size_t kSparseFrom = size_t{1} << 37;

/// Zeroed memory whose pages cost nothing until they are written: a KV cache takes tens of GB.
class ZeroPages {
 public:
  ZeroPages() = default;
  ~ZeroPages() { reset(0); }
  ZeroPages(const ZeroPages&) = delete;
  ZeroPages& operator=(const ZeroPages&) = delete;

  /// False: out of memory, and empty.
  bool reset(size_t bytes);
  void clear();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Three arrays, one element a granule. The last granule may be cut short by the block's end.
class Shadow {
 public:
  /// False: out of memory, and no granules.
  bool reset(size_t bytes, size_t granule_bytes);
  void clear();  // as if new
  void drop();   // no granules

  size_t granule_bytes() const { return granule_bytes_; }
  size_t size() const { return size_; }
  size_t cost() const { return size_ * kBytesPerGranule; }
  size_t index(size_t offset) const {
    return shift_ >= 0 ? offset >> shift_ : offset / granule_bytes_;
  }
  /// One past the last granule that holds a byte before offset end.
  size_t index_end(size_t end) const { return index(end + granule_bytes_ - 1); }

  /// The granules that lie whole in bytes [begin, end); empty: first == last.
  struct Granules {
    size_t first, last;
  };
  Granules whole(size_t begin, size_t end) const;

  uint8_t* state() const { return reinterpret_cast<uint8_t*>(owner() + size_); }
  uint32_t* owner() const { return writer() + size_; }
  uint32_t* writer() const { return reinterpret_cast<uint32_t*>(pages_.data()); }
  bool owned = false;  // some granule has had an owner

  void mark_written(Granules g, uint32_t by);
  /// Parts of the granules: all that have a writer lie in these; others may be pages that nobody
  /// touched.
  std::vector<Granules> written() const;

 private:
  static constexpr size_t kBytesPerGranule = 2 * sizeof(uint32_t) + sizeof(uint8_t);
  ZeroPages pages_;
  static constexpr size_t kPart = size_t{1} << 12;  // granules
  size_t bytes_ = 0, granule_bytes_ = 1, size_ = 0;
  std::vector<bool> written_;  // by part; as long as the last part that was
  int shift_ = 0;              // of a granule that is a power of two; else -1
};

/// Sets of owners by number; 0 is nobody.
class OwnerSets {
 public:
  uint32_t only(OwnerId owner);
  uint32_t with(uint32_t set, OwnerId owner);
  bool contains(uint32_t set, OwnerId owner) const;
  std::span<const OwnerId> members(uint32_t set) const { return sets_[set]; }

 private:
  uint32_t intern(std::vector<OwnerId> sorted);
  std::vector<std::vector<OwnerId>> sets_{{}};
  std::map<std::vector<OwnerId>, uint32_t> numbers_{{{}, 0}};
};

/// Writers by number; 0 is nobody. What no granule names any more is forgotten in sweeps.
class Origins {
 public:
  uint32_t add(const Origin& origin);
  const Origin& operator[](uint32_t number) const { return origins_[number]; }
  size_t size() const { return origins_.size(); }

  bool is_sweep_due() const { return origins_.size() >= sweep_at_; }
  /// shadows: all that there are. The numbers in them change.
  void sweep(std::span<const Shadow* const> shadows);

 private:
  static constexpr size_t kFirstSweep = 4096;
  std::vector<Origin> origins_{{}};
  size_t sweep_at_ = kFirstSweep;
};

}  // namespace shadowgraph
