// The paged attention call as a launch: device addresses and scalars, nothing of the host. What a
// graph keeps of a call is exactly this. Tested by tests/launch/attention_launch_test.cc.
#pragma once

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// attention_with_kvcache, its memory (lengths, tables and plan too) being the device's. What the
/// launch runs on is what that memory holds when it runs. Rows of q, out and lse past
/// cu_seqlens_q's last entry are padding, as a graph's tensors are as long as its bucket: neither
/// read nor written. max_seqlen_q is baked, as a GPU's grid is. Where the call would be refused
/// then, the other rows of the outputs are filled with 0xff, and the footprint holds the reads that
/// a GPU would have made out of range.
///
/// rows: which of the call's requests (a draft's branches, a half of a batch) are which request of
/// the step, so that what they read is held against its owner.
KernelLaunch attention_launch(const PagedAttention& call, const RequestRows& rows = {});

extern const Kernel kPagedAttention;

}  // namespace shadowgraph
