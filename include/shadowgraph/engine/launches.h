// A backend's forward launches attention and stores over the device's memory: both are data that a
// graph keeps. A kernel of your own is a Kernel (device/kernel.h) with a footprint. Tested by
// tests/launch/attention_launch_test.cc and tests/launch/store_launch_test.cc.
#pragma once

#include <cstdint>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// Whose work a launch's rows are: row i, as its footprint counts them, is request first + i /
/// a_request of the step; a_request 0: they differ, and no owner is known.
struct RequestRows {
  int32_t a_request = 1, first = 0;
};

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

/// store_kv, its memory (slots too) being the device's, on what that memory holds when it runs.
/// Slots below the page size are those of page 0, the padding page of the twinned engines: such
/// tokens are dropped, however many name one slot; over a slot_view() that is slot 0 alone. Where
/// the call would be refused then, nothing is stored, and the footprint holds the writes that a GPU
/// would have made beyond the pool.
///
/// tokens: which of them are which request of the step, so that their slots are held against its
/// owner.
KernelLaunch store_launch(StoreKv call, const RequestRows& tokens = {.a_request = 0});

}  // namespace shadowgraph
