#include "graph/memory/host_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "graph/executor/node_work.h"
#include "graph/memory/byte_range.h"

namespace shadowgraph {

namespace {

constexpr size_t kMaxEnded = 4096;  // names that are kept; older blocks are taken as living

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

uint64_t hash_of(const MemcpyParams& copy) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 31;
  };
  for (size_t row = 0; row < copy.height; ++row) {
    const std::byte* p = static_cast<const std::byte*>(copy.src) + row * src_pitch(copy);
    for (size_t i = 0; i < copy.width; i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, p + i, std::min(sizeof word, copy.width - i));
      mix(word);
    }
  }
  return hash;
}

}  // namespace

void HostBlocks::end_overlapping(uintptr_t begin, uintptr_t end) {
  auto it = live_.upper_bound(begin);
  if (it != live_.begin()) --it;
  while (it != live_.end() && it->first < end) {
    if (it->first + it->second.bytes <= begin) {
      ++it;
      continue;
    }
    ended_.emplace(it->second.number, std::move(it->second.name));
    if (ended_.size() > kMaxEnded) ended_.erase(ended_.begin());
    it = live_.erase(it);
  }
}

void HostBlocks::begin(const void* p, size_t bytes, std::string_view name) {
  if (bytes == 0) return;
  end_overlapping(address(p), address(p) + bytes);
  live_.emplace(address(p), Block{bytes, ++last_, std::string(name)});
}

void HostBlocks::end(const void* p) { end_overlapping(address(p), address(p) + 1); }

uint64_t HostBlocks::block_of(const void* p) const {
  const auto it = live_.upper_bound(address(p));
  if (it == live_.begin()) return 0;
  const auto& [begin, block] = *std::prev(it);
  return address(p) < begin + block.bytes ? block.number : 0;
}

std::string HostBlocks::name_of(const void* p) const {
  return block_of(p) == 0 ? "" : std::prev(live_.upper_bound(address(p)))->second.name;
}

std::string HostBlocks::ended_among(const std::vector<BakedPointer>& pointers) const {
  if (ended_.empty()) return "";
  for (const BakedPointer& p : pointers) {
    if (p.block != 0) continue;
    const auto it = ended_.find(p.offset);
    if (it != ended_.end()) return it->second.empty() ? "host memory" : it->second;
  }
  return "";
}

void StagedCopies::add(uint64_t serial, const ExecNode& node, const MemcpyParams& copy) {
  copies_.push_back({serial, &node, copy, hash_of(copy)});
}

bool StagedCopies::is_changed(uint64_t serial, const ExecNode& node) const {
  const auto it = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& c) {
    return c.serial == serial && c.node == &node;
  });
  return it != copies_.end() && (it->changed || hash_of(it->params) != it->hash);
}

void StagedCopies::end(uint64_t serial) {
  std::erase_if(copies_, [&](const Copy& c) { return c.serial == serial; });
}

void StagedCopies::host_writes(uintptr_t begin, uintptr_t end) {
  for (Copy& c : copies_) c.changed = c.changed || is_read(c, begin, end);
}

bool StagedCopies::is_read(const Copy& c, uintptr_t begin, uintptr_t end) {
  const uintptr_t src = address(c.params.src);
  return begin < src + extent(c.params, src_pitch(c.params)) && src < end;
}

bool StagedCopies::are_written(uintptr_t begin, uintptr_t end) const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const Copy& c) { return is_read(c, begin, end); });
}

bool StagedCopies::are_written_by(const Footprint& spans) const {
  return !empty() && std::any_of(spans.begin(), spans.end(), [&](const AccessSpan& s) {
    const ByteRange bytes = byte_range(s);
    return s.access == Access::kWrite && are_written(bytes.begin, bytes.end);
  });
}

bool StagedCopies::are_written_by(const MemcpyParams& copy) const {
  const uintptr_t dst = address(copy.dst);
  return !empty() && are_written(dst, dst + extent(copy, dst_pitch(copy)));
}

void StagedCopies::note_changes() {
  for (Copy& c : copies_) c.changed = c.changed || hash_of(c.params) != c.hash;
}

void StagedCopies::accept_changes() {
  for (Copy& c : copies_) c.hash = hash_of(c.params);
}

}  // namespace shadowgraph
