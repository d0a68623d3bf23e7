// prefill_paged and prefill_ragged: queries of any length (varlen extend, a cached prefix
// included). A block's rows are tokens x the group's query heads, so that a tile of keys serves the
// whole group. The driver: attend_blocks.h. Tested by tests/kernels/attention_test.cc and
// tests/kernels/bits_test.cc.
#pragma once

#include <algorithm>

#include "kernels/dense/work_list.h"

namespace shadowgraph {

// edge: keys
inline constexpr int32_t kPrefillTile = 256;  // keys between two looks at the running maximum
static_assert(kSplit % kPrefillTile == 0);
// Rows of a block, at least one token's group. In tiles of AMX values are copied for a block, which
// many rows are worth while each thread has a block of a unit.
inline constexpr int32_t kPrefillRows = 96, kAmxPrefillRows[] = {256, 128};  // edge: query_rows

/// group: query heads of a KV head, at least 1.
constexpr BlockShape prefill_blocks(int32_t group, int32_t rows = kPrefillRows) {
  return {std::max(1, rows / group), kPrefillTile};
}

}  // namespace shadowgraph
