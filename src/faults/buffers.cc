#include "faults/buffers.h"

#include <utility>

#include "backends/csr_rows.h"

namespace shadowgraph {
namespace {

template <class T>
std::span<std::byte> bytes_of(const Meta& meta, const Buffer& b, Elements range) {
  return std::as_writable_bytes(staged<T>(meta, b, range));
}

}  // namespace

const Buffer* find_buffer(const Meta& meta, std::string_view name) {
  const auto it = std::ranges::find_if(
      meta.buffers, [&](const Buffer& b) { return b.data != nullptr && own_name(b) == name; });
  return it == meta.buffers.end() ? nullptr : &*it;
}

std::span<std::byte> staged_bytes(const Meta& meta, const Buffer& b, Elements range) {
  switch (size_of(b.dtype)) {
    case 1: return bytes_of<uint8_t>(meta, b, range);
    case 2: return bytes_of<uint16_t>(meta, b, range);
    case 4: return bytes_of<uint32_t>(meta, b, range);
    default: return bytes_of<uint64_t>(meta, b, range);
  }
}

void keep_staged(const Meta& meta, const Buffer& b, Elements range) {
  Arena arena = meta.arena;
  arena.discard(b);
  staged_bytes(meta, b, range);
}

RealRows real_rows(const ForwardBatch& batch, const Limits& limits) {
  RealRows real;
  real.rows = std::clamp<int64_t>(batch.size() - limits.first_row, 0, limits.rows);
  for (int64_t i = 0; i < real.rows; ++i)
    real.tokens += int64_t{batch.q_len(limits.first_row + i)} * lists_a_row(limits);
  return real;
}

bool rebind(const Meta& meta, std::string_view scope, std::vector<int64_t> shape, Buffer* b) {
  BufferSpec spec = *b;
  spec.name = own_name(*b);
  spec.shape = std::move(shape);
  std::vector<Buffer> bound;
  if (!meta.arena.scope(scope).bind({&spec, 1}, &bound).ok()) return false;
  *b = std::move(bound[0]);
  return true;
}

}  // namespace shadowgraph
