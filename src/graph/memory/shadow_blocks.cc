#include "graph/memory/shadow_blocks.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/huge_pages.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

constexpr size_t kHuge = size_t{64} << 20;  // from here on pages go back to the system when freed

}  // namespace

std::optional<size_t> AddressSpace::take_free(size_t extent) {
  auto fit = std::find_if(free_.rbegin(), free_.rend(),
                          [&](const Range& r) { return r.extent == extent; });
  if (fit == free_.rend()) {
    fit = std::find_if(free_.rbegin(), free_.rend(),
                       [&](const Range& r) { return r.extent > extent; });
  }
  if (fit == free_.rend()) return {};
  const size_t offset = fit->offset;
  if (fit->extent == extent) {
    free_.erase(std::next(fit).base());
  } else {
    *fit = {offset + extent, fit->extent - extent};
  }
  return offset;
}

std::optional<size_t> AddressSpace::take(size_t extent) {
  if (const auto offset = take_free(extent)) return offset;
  if (extent > end_ - top_) {
    merge_neighbours();
    if (const auto offset = take_free(extent)) return offset;
    if (extent > end_ - top_) return {};
  }
  const size_t offset = top_;
  top_ += extent;
  return offset;
}

void AddressSpace::give_back(size_t offset, size_t extent) {
  held_.push_back({offset, extent});
  held_bytes_ += extent;
  while (held_bytes_ > quarantine_) {
    held_bytes_ -= held_.front().extent;
    free_.push_back(held_.front());
    held_.pop_front();
  }
}

/// The last resort: no block is handed out from quarantine even then.
void AddressSpace::merge_neighbours() {
  std::ranges::sort(free_, {}, &Range::offset);
  std::vector<Range> merged;
  for (const Range& r : free_) {
    if (!merged.empty() && merged.back().offset + merged.back().extent == r.offset) {
      merged.back().extent += r.extent;
    } else {
      merged.push_back(r);
    }
  }
  if (!merged.empty() && merged.back().offset + merged.back().extent == top_) {
    top_ = merged.back().offset;
    merged.pop_back();
  }
  free_ = std::move(merged);
}

Blocks::Blocks(const MemoryOptions& options)
    : options_(options), space_(options.red_zone, options.capacity, options.quarantine) {
  void* p = mmap(nullptr, options.capacity, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    space_ = AddressSpace(0, 0, 0);
    return;
  }
  base_ = static_cast<std::byte*>(p);
  capacity_ = options.capacity;
}

Blocks::~Blocks() {
  if (base_ != nullptr) munmap(base_, capacity_);
}

std::optional<size_t> Blocks::offset_of(const void* p) const {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(base_);
  if (offset >= capacity_) return {};
  return offset;
}

std::optional<Blocks::Extent> Blocks::extent_of_span(const AccessSpan& span) const {
  const int64_t from_base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(span.buffer) -
                                                 reinterpret_cast<uintptr_t>(base_));
  const int64_t size = span.element_bytes;
  int64_t begin = 0, bytes = 0, end = 0;
  if (__builtin_mul_overflow(span.first, size, &begin) ||
      __builtin_add_overflow(begin, from_base, &begin) ||
      __builtin_mul_overflow(span.count, size, &bytes) ||
      __builtin_add_overflow(begin, bytes, &end) || begin < 0 || end < begin ||
      end > static_cast<int64_t>(capacity_)) {
    return {};
  }
  return Extent{static_cast<size_t>(begin), static_cast<size_t>(end)};
}

void Blocks::forget(Block& block) {
  block.live = block.backed = false;
  block.shadow.drop();
  for (const auto& [offset, part] : block.parts) forget(*part);
  block.parts.clear();
}

Block& Blocks::renew(std::map<size_t, Block*>& places, size_t offset, size_t bytes, size_t extent) {
  uint32_t generation = 0;
  Block* same = nullptr;
  auto it = places.upper_bound(offset);
  if (it != places.begin()) --it;
  while (it != places.end() && it->first < offset + extent) {
    Block* old = it->second;
    if (old->offset + old->extent <= offset) {
      ++it;
      continue;
    }
    generation = std::max(generation, old->generation);
    if (old->offset == offset && old->bytes == bytes) same = old;
    forget(*old);
    it = places.erase(it);
  }
  Block& b = same != nullptr ? *same : blocks_.emplace_back();
  if (same == nullptr) b.id = static_cast<uint32_t>(blocks_.size());
  b.generation = generation + 1;
  b.offset = offset, b.bytes = bytes, b.extent = extent;
  b.live = true, b.begun = true;
  b.lifetime = Lifetime::kPersistent;
  b.former_name = std::move(b.name);
  b.name.clear();
  places[offset] = &b;
  return b;
}

Block* Blocks::allocate(size_t bytes, AllocKind kind) {
  if (bytes == 0 || bytes > capacity_) return nullptr;
  const size_t extent = extent_of(bytes, options_.red_zone);
  const std::optional<size_t> offset = space_.take(extent);
  if (!offset) return nullptr;
  Block& b = renew(allocations_, *offset, bytes, extent);
  b.allocation = {address(*offset), bytes, kind};
  b.ordinal = ++ordinal_;
  b.begun = kind != AllocKind::kGraph;
  b.disowned = false;
  b.changed_by = {};
  if (options_.checked && !b.shadow.reset(bytes, BufferDecl().granule_bytes)) {
    release(b);
    return nullptr;
  }
  if (bytes >= kSparseFrom)
    madvise(address(*offset), bytes, MADV_NOHUGEPAGE);
  else
    ask_for_huge_pages(address(*offset), bytes);  // a KV cache is read faster in them
  return &b;
}

void Blocks::release(Block& block) {
  block.live = false;
  for (const auto& [offset, part] : block.parts) part->live = false;
  if (block.bytes >= kHuge) madvise(address(block.offset), block.bytes, MADV_DONTNEED);
  space_.give_back(block.offset, block.extent);
}

Block* Blocks::declare(size_t offset, const BufferDecl& buffer) {
  Block* parent = allocation_at(offset);
  if (parent == nullptr || !parent->live || buffer.bytes == 0 || buffer.granule_bytes == 0 ||
      offset + buffer.bytes > parent->end() || offset + buffer.bytes < offset) {
    return nullptr;
  }
  Block& b = renew(parent->parts, offset, buffer.bytes, buffer.bytes);
  b.allocation = parent->allocation;
  b.ordinal = parent->ordinal;
  b.parent = parent;
  b.begun = parent->begun, b.changed_by = parent->changed_by;
  b.lifetime = buffer.lifetime;
  b.name = buffer.name;
  b.shadow.reset(buffer.bytes, buffer.granule_bytes);
  parent->shadow.drop();  // all of it is red zone now, or a part's
  return &b;
}

Block* Blocks::allocation_at(size_t offset) {
  auto it = allocations_.upper_bound(offset);
  if (it == allocations_.begin()) return nullptr;
  Block* b = std::prev(it)->second;
  return offset - b->offset < b->extent ? b : nullptr;
}

Block* Blocks::block_at(size_t offset) {
  Block* b = allocation_at(offset);
  if (b == nullptr || b->parts.empty()) return b;
  auto it = b->parts.upper_bound(offset);
  if (it == b->parts.begin()) return b;
  Block* part = std::prev(it)->second;
  return offset < part->end() ? part : b;
}

Block* Blocks::first_usable(size_t begin, size_t end) {
  const auto first_in = [&](const std::map<size_t, Block*>& places) -> Block* {
    auto it = places.upper_bound(begin);
    if (it != places.begin()) --it;
    for (; it != places.end() && it->first < end; ++it) {
      Block* b = it->second;
      if (b->end() <= begin || !b->usable()) continue;
      if (b->parts.empty()) return b;
      auto part = b->parts.upper_bound(begin);
      if (part != b->parts.begin()) --part;
      for (; part != b->parts.end() && part->first < end; ++part) {
        Block* p = part->second;
        if (p->end() > begin && p->usable()) return p;
      }
    }
    return nullptr;
  };
  return first_in(allocations_);
}

Block* MemoryState::allocation_starting_at(const void* p) {
  const auto offset = blocks.offset_of(p);
  Block* b = offset ? blocks.allocation_at(*offset) : nullptr;
  return b != nullptr && b->live && b->offset == *offset ? b : nullptr;
}

void MemoryState::set_begun(Block& block, bool begun, const Origin& by) {
  block.begun = begun, block.changed_by = by;
  for (const auto& [offset, part] : block.parts) part->begun = begun, part->changed_by = by;
}

std::string MemoryState::writer_of(const Block& block, size_t offset) const {
  if (block.shadow.size() == 0) return "";
  const uint32_t writer = block.shadow.writer()[block.shadow.index(offset)];
  return writer == 0 ? "" : origins[writer].to_string();
}

std::string label_of(const Block& block) {
  return block.name.empty() ? "allocation " + std::to_string(block.ordinal) : block.name;
}

Where where_in(const Block& block, int64_t offset) {
  if (block.name.empty()) {
    return at(label_of(block) + (offset < 0 ? " - " : " + ") +
              std::to_string(offset < 0 ? -offset : offset) + " B");
  }
  const int64_t granule = static_cast<int64_t>(block.shadow.granule_bytes());
  const int64_t index = offset / granule - (offset % granule < 0 ? 1 : 0);
  return at(block.name, index);
}

}  // namespace shadowgraph
