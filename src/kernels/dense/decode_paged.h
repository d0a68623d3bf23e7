// decode_paged: one query a request over a paged cache. A block is one query, its rows are the
// query heads of a unit: of one KV head, or of several that are joined. The driver:
// attend_blocks.h. Tested by tests/kernels/attention_test.cc and tests/kernels/bits_test.cc.
#pragma once

#include "kernels/dense/work_list.h"

namespace shadowgraph {

// edge: keys
inline constexpr int32_t kDecodeTile = 64;  // keys between two looks at the running maximum
static_assert(kSplit % kDecodeTile == 0);
inline constexpr BlockShape kDecodeBlocks = {1, kDecodeTile};
// Many query heads of a KV head, in tiles of AMX: each tile of keys costs something a row.
inline constexpr BlockShape kAmxDecodeBlocks = {1, 2 * kDecodeTile};

}  // namespace shadowgraph
