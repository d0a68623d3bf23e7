// The batch of a call: its indptrs, its page table and its custom mask. Used by what
// validates calls.
#pragma once

#include <span>
#include <vector>

#include "attn/mask.h"
#include "attn/validate/tensor_check.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// An indptr of batch + 1 entries from 0, monotone, ending at `total` (kAny: anywhere).
bool check_indptr(TensorCheck& c, const char* field, std::span<const int32_t> indptr, int64_t batch,
                  const AxisSize& total);

/// Terms by their heads (validate_terms.cc). Requires sound heads.
void check_terms(TensorCheck& c, const AttentionParams& p);
/// Lengths beside offsets: `lens`, those between the offsets, become those of `seqused` if it is
/// there. False if these make no sense.
bool use_lengths(TensorCheck& c, const char* field, std::span<const int32_t> seqused,
                 std::vector<int32_t>* lens);
/// The masks of requests, the custom one included: exactly one pair for each head of the mask,
/// query and key. Empty where a term of requests makes no sense.
std::vector<MaskShape> check_masks(TensorCheck& c, const AttentionParams& p,
                                   std::span<const int32_t> q_lens,
                                   std::span<const int32_t> kv_lens);

/// Page table, lengths, page ids and mask of a paged call whose cache is sound. total_q: rows of q,
/// kAny if they are not known. Requests that are sound are walked though others are not.
void check_pages(TensorCheck& c, const PagedAttention& call, int64_t total_q);

}  // namespace shadowgraph
