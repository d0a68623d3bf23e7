// Which graphs an engine captures, and how two-batch overlap splits a batch. Spec
// backends-flashattention-family 1.7, 3.8. bucket_for (graph/capture/buckets.h) chooses one.
// Tested by tests/runtime/bucket_sizes_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "shadowgraph/engine/batch.h"

namespace shadowgraph {

struct BucketRule {
  int32_t max_rows = 0;
  bool speculative = false;
  bool padding = true;         // off: every size
  int32_t tokens_per_row = 1;  // of a bucket's batch
  int32_t token_multiple = 1;  // attention's tensor-parallel ranks divide a bucket's tokens
  bool two_batch = false;      // doubly so, where two halves overlap
};

/// SGLang's default buckets that the rule allows, ascending.
std::vector<int32_t> bucket_sizes(const BucketRule& rule);
/// Largest first: smaller captures reuse its memory.
std::vector<int32_t> capture_order(std::vector<int32_t> sizes);

/// The two halves of a batch, and the rows of the graphs that they are for.
struct TwoBatches {
  ForwardBatch batch[2];
  int32_t rows[2] = {};
};
/// Half of the bucket's rows each, the odd one to the second; rows beyond the batch are padding.
/// Requires a valid batch of at most rows >= 2 requests, without encoders.
TwoBatches split_in_two(const ForwardBatch& batch, int32_t rows);

}  // namespace shadowgraph
