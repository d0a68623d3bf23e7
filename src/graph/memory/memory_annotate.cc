// What a program says about its memory, and what its writes leave there.
#include <algorithm>
#include <utility>

#include "graph/memory/memory.h"
#include "graph/memory/shadow_blocks.h"

namespace shadowgraph {
namespace {

/// fn(number) for the owner sets of the granules that hold some of these bytes.
template <class Fn>
void change_owners(MemoryState& memory, const void* p, size_t bytes, Fn fn) {
  const auto offset = memory.blocks.offset_of(p);
  if (!offset) return;
  const size_t end = *offset + std::min(bytes, memory.blocks.capacity() - *offset);
  memory.blocks.for_each_shadow(*offset, end, [&](Block& b, size_t from, size_t to) {
    b.shadow.owned = true;
    uint32_t* owner = b.shadow.owner();
    const size_t last = b.shadow.index_end(to - b.offset);
    for (size_t i = b.shadow.index(from - b.offset); i < last;) {
      const size_t run = first_unlike(owner, i, last, owner[i]);
      std::fill(owner + i, owner + run, fn(owner[i]));
      i = run;
    }
  });
}

using Granules = Shadow::Granules;

void sweep_origins(MemoryState& memory) {
  if (!memory.origins.is_sweep_due()) return;
  std::vector<const Shadow*> shadows;
  for (const Block& b : memory.blocks.all())
    if (b.shadow.size() > 0) shadows.push_back(&b.shadow);
  memory.origins.sweep(shadows);
}

}  // namespace

void LayerPlaces::set(std::span<const LayerBytes> tensors) {
  places_.clear();
  std::vector<Place> all;
  for (const LayerBytes& t : tensors) {
    const auto begin = reinterpret_cast<uintptr_t>(t.address);
    if (t.bytes > 0) all.push_back({begin, begin + t.bytes, t.layer});
  }
  std::ranges::sort(all, {}, &Place::begin);
  for (const Place& p : all) {
    if (places_.empty() || p.begin >= places_.back().end) {
      places_.push_back(p);
      continue;
    }
    Place& before = places_.back();
    if (before.layer != p.layer) before.layer = -1;
    before.end = std::max(before.end, p.end);
  }
}

int32_t LayerPlaces::layer_at(const void* p) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto behind = std::ranges::upper_bound(places_, address, {}, &Place::begin);
  if (behind == places_.begin() || address >= std::prev(behind)->end) return -1;
  return std::prev(behind)->layer;
}

int32_t MemoryState::layer_of(const Footprint& spans) {
  if (layers.empty()) return -1;
  int32_t layer = -1;
  const void* last = nullptr;
  for (const AccessSpan& s : spans) {
    if (s.buffer == std::exchange(last, s.buffer)) continue;
    layer = layers.layer_at(s.buffer);
    if (layer >= 0) return layer;
  }
  for (const AccessSpan& s : spans) {
    const auto bytes = blocks.extent_of_span(s);
    if (s.access != Access::kRead || !bytes) continue;
    blocks.for_each_shadow(bytes->begin, bytes->end, [&](Block& b, size_t from, size_t to) {
      const uint32_t* writer = b.shadow.writer();
      const size_t end = b.shadow.index_end(to - b.offset);
      for (size_t i = b.shadow.index(from - b.offset); b.lifetime == Lifetime::kScratch && i < end;
           i = first_unlike(writer, i, end, writer[i]))
        layer = std::max(layer, origins[writer[i]].layer);
    });
  }
  return layer;
}

void DeviceMemory::declare(const BufferDecl& buffer) {
  const auto offset = impl_->blocks.offset_of(buffer.address);
  if (checked() && offset) impl_->blocks.declare(*offset, buffer);
}

void DeviceMemory::undeclare(const void* p) {
  const auto offset = impl_->blocks.offset_of(p);
  Block* b = offset ? impl_->blocks.block_at(*offset) : nullptr;
  if (b != nullptr && b->parent != nullptr && b->offset == *offset) b->live = false;
}

void DeviceMemory::name(const void* p, std::string_view name) {
  const auto offset = impl_->blocks.offset_of(p);
  Block* b = offset ? impl_->blocks.block_at(*offset) : nullptr;
  if (b != nullptr && b->live) b->name = name;
}

void DeviceMemory::retire(const void* p, size_t bytes) {
  const auto offset = impl_->blocks.offset_of(p);
  if (!checked() || !offset) return;
  const size_t end = *offset + std::min(bytes, impl_->blocks.capacity() - *offset);
  impl_->blocks.for_each_shadow(*offset, end, [&](Block& b, size_t from, size_t to) {
    const Granules g = b.shadow.whole(from - b.offset, to - b.offset);
    if (g.first == g.last) return;
    std::memset(b.shadow.state() + g.first, static_cast<int>(GranuleState::kRetired),
                g.last - g.first);
    const size_t begin = g.first * b.shadow.granule_bytes();
    const size_t stop = std::min(g.last * b.shadow.granule_bytes(), b.bytes);
    std::memset(impl_->blocks.address(b.offset + begin), kPoison, stop - begin);
  });
}

void DeviceMemory::set_owner(const void* p, size_t bytes, OwnerId owner) {
  if (!checked()) return;
  const uint32_t set = impl_->owner_sets.only(owner);
  change_owners(*impl_, p, bytes, [&](uint32_t) { return set; });
}

void DeviceMemory::add_owner(const void* p, size_t bytes, OwnerId owner) {
  if (!checked()) return;
  change_owners(*impl_, p, bytes, [&](uint32_t set) { return impl_->owner_sets.with(set, owner); });
}

void DeviceMemory::set_row_owners(std::span<const OwnerId> owners) {
  impl_->row_owners.assign(owners.begin(), owners.end());
}

void DeviceMemory::set_layers(std::span<const LayerBytes> tensors) { impl_->layers.set(tensors); }

uint64_t DeviceMemory::begin_step() { return ++impl_->step; }

uint64_t DeviceMemory::step() const { return impl_->step; }

void DeviceMemory::commit(const Origin& by, const Footprint& spans) {
  if (!checked()) return;
  sweep_origins(*impl_);
  Origin origin = by;
  origin.layer = impl_->layer_of(spans);
  const uint32_t writer = impl_->origins.add(origin);
  std::vector<Blocks::Extent> ragged;  // begin or end inside a granule; together they may fill it
  for (const AccessSpan& span : spans) {
    if (span.access != Access::kWrite || span.count <= 0) continue;
    const auto extent = impl_->blocks.extent_of_span(span);
    if (!extent) continue;
    impl_->blocks.for_each_shadow(
        extent->begin, extent->end, [&](Block& b, size_t from, size_t to) {
          const Granules g = b.shadow.whole(from - b.offset, to - b.offset);
          b.shadow.mark_written(g, writer);
          if (g.first != b.shadow.index(from - b.offset) ||
              g.last != b.shadow.index_end(to - b.offset))
            ragged.push_back({from, to});
        });
  }
  std::ranges::sort(ragged, {}, &Blocks::Extent::begin);
  for (size_t i = 0; i < ragged.size();) {
    Blocks::Extent whole = ragged[i];
    for (++i; i < ragged.size() && ragged[i].begin <= whole.end; ++i)
      whole.end = std::max(whole.end, ragged[i].end);
    impl_->blocks.for_each_shadow(whole.begin, whole.end, [&](Block& b, size_t from, size_t to) {
      b.shadow.mark_written(b.shadow.whole(from - b.offset, to - b.offset), writer);
    });
  }
}

}  // namespace shadowgraph
