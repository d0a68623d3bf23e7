#include "graph/memory/memory.h"

#include <algorithm>
#include <cassert>

#include "core/laws.h"
#include "graph/memory/shadow_blocks.h"

namespace shadowgraph {
namespace {

// A large allocation may never be filled: its poison must not take long.
constexpr size_t kPoisonWholeUpTo = size_t{64} << 20, kPoisonAtMost = size_t{1} << 20;

void poison_fresh(const Blocks& blocks, const Block& b) {
  poison(blocks.address(b.offset), b.bytes <= kPoisonWholeUpTo ? b.bytes : kPoisonAtMost);
}

}  // namespace

std::string Origin::to_string() const {
  std::string s(what);
  if (launch != 0) {
    s += ", node " + std::to_string(node) + " of launch " + std::to_string(launch);
  } else if (serial != 0) {
    s += ", operation " + std::to_string(serial);
  }
  return s + ", step " + std::to_string(step);
}

DeviceMemory::DeviceMemory(const MemoryOptions& options)
    : options_(options), impl_(std::make_unique<Impl>(options)) {
  assert(options.red_zone % kAlignment == 0);
}

DeviceMemory::~DeviceMemory() = default;

void* DeviceMemory::allocate(size_t bytes, AllocKind kind) {
  const Block* b = impl_->blocks.allocate(bytes, kind);
  if (b == nullptr) return nullptr;
  if (checked()) poison_fresh(impl_->blocks, *b);
  return impl_->blocks.address(b->offset);
}

bool DeviceMemory::release(void* p) {
  Block* b = impl_->allocation_starting_at(p);
  if (b == nullptr) return false;
  impl_->blocks.release(*b);
  return true;
}

const DeviceMemory::Allocation* DeviceMemory::find_allocation(const void* p) const {
  const Block* b = impl_->allocation_starting_at(p);
  return b != nullptr ? &b->allocation : nullptr;
}

const DeviceMemory::Allocation* DeviceMemory::find_allocation_of(const void* p) const {
  const auto offset = impl_->blocks.offset_of(p);
  const Block* b = offset ? impl_->blocks.allocation_at(*offset) : nullptr;
  return b != nullptr && b->live && *offset < b->end() ? &b->allocation : nullptr;
}

std::span<std::byte> DeviceMemory::place_of(const void* p) const {
  const auto offset = impl_->blocks.offset_of(p);
  const Block* b = offset ? impl_->blocks.allocation_at(*offset) : nullptr;
  if (b == nullptr) return {};
  const size_t before = impl_->blocks.red_zone();
  return {impl_->blocks.address(b->offset - before), before + b->extent};
}

DeviceMemory::Surroundings DeviceMemory::surroundings_of(const void* p) const {
  const auto offset = impl_->blocks.offset_of(p);
  const Block* b = offset ? impl_->blocks.block_at(*offset) : nullptr;
  if (b == nullptr || !b->usable() || b->host_writes() || *offset >= b->end()) return {};
  const size_t zone = impl_->blocks.red_zone();
  return {{impl_->blocks.address(b->offset), b->bytes},
          {impl_->blocks.address(b->offset - zone), b->bytes + 2 * zone}};
}

Where DeviceMemory::where_of(const void* p, const std::byte* byte) const {
  const Block* b = impl_->blocks.block_at(*impl_->blocks.offset_of(p));
  return where_in(*b, byte - impl_->blocks.address(b->offset));
}

bool DeviceMemory::mapped(const void* p, size_t bytes) const {
  const auto offset = impl_->blocks.offset_of(p);
  return offset && bytes <= impl_->blocks.capacity() - *offset;
}

void DeviceMemory::begin_graph_allocation(void* p, const Origin& by) {
  Block* b = impl_->allocation_starting_at(p);
  if (b == nullptr) return;
  b->backed = true;
  impl_->set_begun(*b, true, by);
  if (!checked()) return;
  for (const auto& [offset, part] : b->parts) part->shadow.clear();
  b->shadow.clear();
  poison_fresh(impl_->blocks, *b);
}

void DeviceMemory::end_graph_allocation(void* p, const Origin& by) {
  Block* b = impl_->allocation_starting_at(p);
  if (b == nullptr) return;
  impl_->set_begun(*b, false, by);
  if (b->disowned) impl_->blocks.release(*b);
}

std::shared_ptr<const void> DeviceMemory::reserve(const void* p) {
  Block* b = impl_->allocation_starting_at(p);
  if (b == nullptr || b->allocation.kind != AllocKind::kGraph) return nullptr;
  ++b->reservations, b->disowned = false;
  const auto give_up = [this](Block* block) {
    block->disowned = --block->reservations == 0;
    if (block->disowned && !block->begun) impl_->blocks.release(*block);
  };
  return std::shared_ptr<const Block>(b, give_up);
}

size_t DeviceMemory::graph_bytes_backed() const {
  size_t bytes = 0;
  for (const Block& b : impl_->blocks.all())
    if (b.backed) bytes += b.bytes;
  return bytes;
}

void DeviceMemory::trim_graph_memory() {
  for (Block& b : impl_->blocks.all()) b.backed = b.begun && b.backed;
}

BakedPointer DeviceMemory::bake(const void* p) const {
  const auto offset = impl_->blocks.offset_of(p);
  const Block* b = offset ? impl_->blocks.block_at(*offset) : nullptr;
  if (b == nullptr) return {.address = p};
  return {p, b->id, b->generation, *offset - b->offset};
}

void DeviceMemory::poison(const Footprint& spans) {
  if (!checked()) return;
  for (const AccessSpan& span : spans) {
    if (span.access != Access::kWrite || span.count <= 0) continue;
    const auto offset = impl_->blocks.offset_of(span.buffer);
    const Block* b = offset ? impl_->blocks.block_at(*offset) : nullptr;
    if (b == nullptr || !b->usable()) continue;
    // An access may claim to write everything there is; only its own buffer is its output.
    AccessSpan within = span;
    const int64_t size = span.element_bytes;
    const int64_t before = static_cast<int64_t>(*offset - b->offset) / size;
    const int64_t behind = static_cast<int64_t>(b->end() - std::min(*offset, b->end())) / size;
    within.first = std::clamp(span.first, -before, behind);
    int64_t end = 0;
    if (__builtin_add_overflow(span.first, span.count, &end)) end = behind;
    within.count = std::clamp(end, -before, behind) - within.first;
    std::memset(impl_->blocks.address(*offset) + within.first * size, kPoison,
                static_cast<size_t>(within.count * size));
  }
}

void DeviceMemory::judge_leaks(Status* findings) const {
  judged("mem.leak");
  for (const Block& b : impl_->blocks.all()) {
    const AllocKind kind = b.allocation.kind;
    if (b.parent != nullptr || !b.usable()) continue;
    if (kind != AllocKind::kGraph && kind != AllocKind::kPool) continue;
    std::string got = "live, " + std::to_string(b.bytes) + " B";
    if (b.changed_by.serial != 0) got += ", since " + b.changed_by.to_string();
    const std::string writer = impl_->writer_of(b, 0);
    got += writer.empty() ? "; never written" : "; last written by " + writer;
    findings->add(make_finding("mem.leak", at(label_of(b)), "freed", std::move(got)));
  }
}

std::string DeviceMemory::describe(const void* p) const {
  const auto offset = impl_->blocks.offset_of(p);
  if (!offset) return "no device memory";
  const Block* b = impl_->blocks.block_at(*offset);
  if (b == nullptr) return "no allocation";
  const Where where = where_in(*b, static_cast<int64_t>(*offset - b->offset));
  return where.row ? where.field + '[' + std::to_string(*where.row) + ']' : where.field;
}

DeviceMemory::Cost DeviceMemory::cost_of(const void* p) const {
  const auto offset = impl_->blocks.offset_of(p);
  const Block* b = offset ? impl_->blocks.block_at(*offset) : nullptr;
  if (b == nullptr || !b->live) return {};
  return {b->bytes, b->shadow.cost()};
}

DeviceMemory::Held DeviceMemory::held() const {
  Held held{.origins = impl_->origins.size()};
  for (const Block& b : impl_->blocks.all()) held.shadow_bytes += b.shadow.cost();
  return held;
}

}  // namespace shadowgraph
