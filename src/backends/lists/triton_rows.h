// Which tokens of a request Triton's lists hold, and into how many splits its decode cuts them.
// Facts: docs/metadata.md "Triton". Tested by tests/backends/triton_rows_test.cc.
#pragma once

#include <span>

#include "attn/mask.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// window_left of the layers that have a window; -1: none has.
int32_t window_of(const ModelConfig& model);

/// A decode's list is what its query sees. Of all other modes it is the cached prefix, as far as
/// the request's first query sees it: the step's own tokens come as they are. Padding may have more
/// queries than keys, and then has no prefix.
KvRange listed_tokens(ForwardMode mode, const RequestExtent& extent, int32_t window_left);

/// The number of keys of a request that num_kv_splits is made from. All steps of a draft use the
/// splits of the committed prefix.
int32_t keys_to_split(const Limits& limits, const RequestExtent& extent, int32_t window_left);

/// The length of the axis that partial results have. MLA layers may ask for more splits.
int32_t max_kv_splits(const Limits& limits);

/// get_num_kv_splits: every row's keys become its splits, 1 to max_kv_splits(). By the dynamic rule
/// that depends on the longest and the shortest row, padding too, and on how many rows there are.
void count_kv_splits(const Limits& limits, bool window_layers, std::span<int32_t> rows);

}  // namespace shadowgraph
