// The longest query of a batch, which shapes the grids of launches. Tested by
// tests/backends/rows_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shadowgraph/engine/batch.h"

namespace shadowgraph {

/// New tokens of the request that has most; 0 without requests. Rows of padding do not count.
inline int32_t longest_query(const ForwardBatch& batch) {
  int32_t longest = 0;
  for (int64_t i = 0; i < batch.size(); ++i) longest = std::max(longest, batch.extent(i).q_len);
  return longest;
}

}  // namespace shadowgraph
