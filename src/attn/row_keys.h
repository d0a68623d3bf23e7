// The slots of a row's keys, in order: what a batch says of them, for whoever judges metadata. A
// row is a request, of a draft decode one of its branches. Facts: docs/metadata.md "Pools",
// "Drafts". Tested by tests/attn/row_keys_test.cc and tests/check/canonical_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "shadowgraph/engine/batch.h"

namespace shadowgraph {

/// Rows of each request.
int32_t rows_a_request(const ForwardBatch& batch);

// Both require a batch that validate() accepts, with req_to_token; slots are of the full pool.
/// [kv_len] the text's keys; of a branch the committed prefix, then its own tokens up to this step.
std::vector<int32_t> row_keys(const ForwardBatch& batch, int64_t request, int32_t branch = 0);
/// [encoder_len]
std::vector<int32_t> encoder_keys(const ForwardBatch& batch, int64_t request);

}  // namespace shadowgraph
