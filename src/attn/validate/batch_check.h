// The batch of a call: its indptrs, its page table and its custom mask. Used by what
// validates calls.
#pragma once

#include <span>

#include "attn/mask.h"
#include "attn/validate/tensor_check.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// An indptr of batch + 1 entries from 0, monotone, ending at `total` (kAny: anywhere).
bool check_indptr(TensorCheck& c, const char* field, std::span<const int32_t> indptr, int64_t batch,
                  const AxisSize& total);

/// Exactly q_len * kv_len pairs of every request.
void check_custom_mask(TensorCheck& c, const CustomMask& mask, std::span<const MaskShape> requests);

/// Page table, lengths, page ids and mask of a paged call whose cache is sound. total_q: rows of q,
/// kAny if they are not known. Requests that are sound are walked though others are not.
void check_pages(TensorCheck& c, const PagedAttention& call, int64_t total_q);

}  // namespace shadowgraph
