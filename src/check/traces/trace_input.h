// The scheduler's own input of a recorded step, judged like everything else: the map from tokens to
// slots, where the step stores, and positions. Tested by tests/check/trace_input_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "check/traces/trace_batch.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

struct InputVerdict {
  Status findings;        // one for each law and field: the first place, and how many more
  bool fits_twin = true;  // a twin can make metadata of this batch
  // out_cache_loc; where it does not lead to the slots that are read, those slots
  std::vector<int64_t> stores = {};
};

/// The columns of a request's live keys. A draft decode's own tokens need not be in the table yet.
std::span<const int32_t> live_columns(const ForwardBatch& batch, int64_t request);

/// Judges the input. Requires a batch that validate() accepts. It finds:
/// - len.copy: seq_lens_cpu, seq_lens_sum or extend_prefix_lens are not what the lengths say.
/// - step.request: two requests have one row of req_to_token.
/// - pool.slot, pool.page: columns of live keys (check_columns in runtime/batch_laws.h).
/// - len.bound: a request is longer than max_context_len.
/// - pool.window: full_to_swa leads out of any pool, or has no entry for a slot that is used.
/// - pool.shared: a stored token's slot is another's, except in a prefix that requests share.
/// - step.slots: a new token's slot is a stored token's, or another new token's of its request.
/// - slot.duplicate: two requests store in one slot.
/// - slot.range, slot.write: out_cache_loc leads out of the pool, or not to where keys are read;
///   padding is stored elsewhere than the engine stores it.
/// - step.positions: position_of in runtime/batch_laws.h; padding stays within the context. The
///   mask gives a tree's depths if the backend hands its kernel the mask. Recordings of
///   FlashAttention drew positions and masks apart: there a tree's positions only stay among the
///   step's tokens.
InputVerdict judge_input(const TraceBatch& rebuilt);

}  // namespace shadowgraph
