#include "backends/fill/packed_mask.h"

#include <algorithm>

namespace shadowgraph {
namespace {

void set_bits(std::span<uint8_t> bytes, int64_t first, int64_t count) {
  const auto set = [&](int64_t bit) {
    bytes[static_cast<size_t>(bit / 8)] |= static_cast<uint8_t>(1 << bit % 8);
  };
  const int64_t end = first + count;
  for (; first < end && first % 8 != 0; ++first) set(first);
  // no edge: bits of a byte
  for (; first + 8 <= end; first += 8) bytes[static_cast<size_t>(first / 8)] = 0xff;
  for (; first < end; ++first) set(first);
}

}  // namespace

/// Along the branch that it is on.
int32_t PackedMask::position(int32_t token) const {
  if (!tree || token < extent.prefix_len) return token;
  return extent.prefix_len + tree->visible(token - extent.prefix_len) - 1;
}

void PackedMask::write(std::span<uint8_t> to) const {
  std::ranges::fill(to, uint8_t{0});
  const int32_t prefix = extent.prefix_len;
  // As many queries as keys: query p stands at key position p.
  MaskShape shape = MaskShape::of(params, extent.kv_len, extent.kv_len);
  shape.causal = shape.causal && !tree;
  for (int32_t q = 0; q < extent.q_len; ++q) {
    const int64_t row = int64_t{q} * keys.size();
    const int32_t at = position(prefix + q);
    const KvRange seen = kv_range(shape, at);
    // What is behind the prefix in a tree does not stand where it lies.
    const int32_t in_order = tree ? std::min(prefix, keys.end) : keys.end;
    const int32_t begin = std::max(keys.begin, seen.begin), end = std::min(in_order, seen.end);
    if (begin < end) set_bits(to, row + begin - keys.begin, end - begin);
    for (int32_t k = in_order; k < keys.end; ++k) {
      if (tree->row(q)[static_cast<size_t>(k - prefix)] != 0 && attends(shape, at, position(k)))
        set_bits(to, row + k - keys.begin, 1);
    }
  }
}

}  // namespace shadowgraph
