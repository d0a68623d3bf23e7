// The attention calls as launches: device addresses and scalars, nothing of the host. What a graph
// keeps of a call is exactly this. Tested by tests/backends/attention_launch_test.cc.
#pragma once

#include "shadowgraph/attention.h"
#include "shadowgraph/kernel.h"

namespace shadowgraph {

/// attention_with_kvcache, its memory (lengths, tables and plan too) being the device's. What the
/// launch runs on is what that memory holds when it runs: where the call would be refused then, the
/// outputs are filled with 0xff, and the footprint holds the reads that a GPU would have made out
/// of range.
KernelLaunch attention_launch(const PagedAttention& call);

extern const Kernel kPagedAttention;

}  // namespace shadowgraph
