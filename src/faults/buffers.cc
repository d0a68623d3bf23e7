#include "faults/buffers.h"

#include <string>
#include <utility>

#include "backends/fill/csr_rows.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

template <class T>
std::span<std::byte> bytes_of(const Meta& meta, const Buffer& b, Elements range) {
  return std::as_writable_bytes(staged<T>(meta, b, range));
}

}  // namespace

void refuse_plant(const Meta& meta, std::string_view what, std::string expected, std::string got) {
  Where where = at(std::string(what));
  if (meta.backend != nullptr) where.backend = meta.backend->info().name;
  throw PlantError{
      make_finding("fault.plant", std::move(where), std::move(expected), std::move(got))};
}

void check_plant(const Meta& meta, const Buffer& b, Elements range, size_t element_bytes) {
  const auto bytes = [](size_t n) { return std::to_string(n) + " bytes an element"; };
  if (size_of(b.dtype) != element_bytes)
    refuse_plant(meta, own_name(b), bytes(size_of(b.dtype)), bytes(element_bytes));
  if (range.first < 0 || range.count < 0 || range.first + range.count > b.numel())
    refuse_plant(meta, own_name(b), std::to_string(b.numel()) + " elements",
                 std::to_string(range.count) + " from " + std::to_string(range.first));
}

int64_t& scalar_of(Meta& meta, size_t scalar) {
  if (scalar >= meta.scalars.size())
    refuse_plant(meta, "scalars", std::to_string(meta.scalars.size()) + " of them",
                 "scalar " + std::to_string(scalar));
  return meta.scalars[scalar];
}

const Buffer* find_buffer(const Meta& meta, std::string_view name) {
  const auto it = std::ranges::find_if(
      meta.buffers, [&](const Buffer& b) { return b.data != nullptr && own_name(b) == name; });
  return it == meta.buffers.end() ? nullptr : &*it;
}

std::span<int32_t> staged_ints(const Meta& meta, std::string_view name) {
  const Buffer* b = find_buffer(meta, name);
  return b == nullptr ? std::span<int32_t>{} : staged<int32_t>(meta, *b);
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
