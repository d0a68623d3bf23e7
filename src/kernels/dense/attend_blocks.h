// The driver of the attention kernels: one parallel region, whose threads take pieces of the work
// list until none is left. A piece that is its whole block folds its splits as it goes and writes
// the rows; of a block in several pieces every split's state is kept, and whoever finishes last
// folds them all, in order. No thread ever waits. Tested by tests/kernels/work_list_test.cc,
// joined_heads_test.cc and bits_test.cc.
#pragma once

#include <span>

#include "kernels/dense/work_list.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// The shape of any call, sound or not; reads no element. Picks the kernel: decode_paged if
/// cu_seqlens_q is empty, else prefill.
CallShape call_shape(const PagedAttention& call);
CallShape call_shape(const RaggedAttention& call);
/// Joined heads are one piece of work: the same shape with fewer of them joined, where the lengths
/// would leave threads without.
CallShape spread_heads(const Problem& p, CallShape s);

/// plan: empty to derive one. Requires a call that validate() and check_plan_header() accept. A
/// Status with input.plan or, where the caller's scratch is too small, input.memory; or throws
/// std::bad_alloc: nothing is written then.
Status attend_blocks(const Problem& p, const CallShape& shape, std::span<const int32_t> plan);

/// Does the header of the call's plan, if there is one, fit the call? Takes calls that are not
/// sound, too, so that a wrong plan is reported together with other errors; does nothing if heads
/// are not valid.
Status check_plan_header(const PagedAttention& call);
/// Is the plan, if there is one, that of the call? Requires a call that validate() accepts. Throws
/// std::bad_alloc.
Status check_plan(const PagedAttention& call);
/// Writes a plan, or says that the room is too small. Throws std::bad_alloc.
Status write_plan(const Problem& p, const CallShape& shape, std::span<int32_t> plan);

/// attention_scratch_size.
int64_t scratch_size(const CallShape& shape);

}  // namespace shadowgraph
