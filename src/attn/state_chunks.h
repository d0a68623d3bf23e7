// Where the chunks of a prefill begin whose states are kept.
#pragma once

#include <cstdint>

#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// Does a chunk begin before token t of all, j of its row?
inline bool begins_chunk(const LinearAttention& call, int64_t t, int64_t j) {
  return j == 0 || (call.chunk_grid == ChunkGrid::kRow ? j : t) % call.chunk_size == 0;
}

/// Chunks of the rows before `row`, or of all. Requires sound offsets and chunk_size.
inline int64_t count_chunks(const LinearAttention& call, int64_t row) {
  int64_t chunks = 0;
  const int64_t size = call.chunk_size;
  for (int64_t r = 0; r < row; ++r) {
    const int64_t begin = call.rows.begin(r);
    const int64_t tokens = call.rows.tokens(r);
    if (tokens == 0) continue;
    const int64_t first = call.chunk_grid == ChunkGrid::kRow ? 0 : begin;
    chunks += (first + tokens - 1) / size - first / size + 1;
  }
  return chunks;
}
inline int64_t count_chunks(const LinearAttention& call) {
  return count_chunks(call, call.rows.rows());
}

}  // namespace shadowgraph
