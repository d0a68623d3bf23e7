// Local attention: a query sees the keys of its own chunk of positions, up to itself. A request
// becomes one row for each chunk that its queries touch, and each row is an ordinary causal one.
// Facts: docs/metadata.md "FlashAttention". Tested by tests/backends/local_attention_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shadowgraph/engine/batch.h"

namespace shadowgraph {

/// The queries of one request in one chunk; its keys are [first_key, first_key + kv_len).
struct LocalRow {
  int32_t q_len = 0, kv_len = 0, first_key = 0;
  bool operator==(const LocalRow&) const = default;
};

/// fn(LocalRow) in order of position. Queries before position 0, which padding has, go to the first
/// chunk, and see nothing there either.
template <class Fn>
void for_each_local_row(const RequestExtent& e, int32_t chunk, Fn fn) {
  for (int32_t position = e.kv_len - e.q_len, next = 0; position < e.kv_len; position = next) {
    const int32_t first_key = std::max(position, 0) / chunk * chunk;
    next = e.kv_len - first_key > chunk ? first_key + chunk : e.kv_len;
    fn(LocalRow{next - position, next - first_key, first_key});
  }
}

/// How many rows requests with so many queries together have at most.
constexpr int64_t max_local_rows(int64_t requests, int64_t queries, int32_t chunk) {
  return std::min(queries, 2 * requests + queries / chunk);
}

}  // namespace shadowgraph
