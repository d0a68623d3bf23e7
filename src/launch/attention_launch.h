// The paged attention call as a launch: device addresses and scalars, nothing of the host. What a
// graph keeps of a call is exactly this. Tested by tests/launch/attention_launch_test.cc.
#pragma once

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/engine/launches.h"

namespace shadowgraph {

extern const Kernel kPagedAttention;

}  // namespace shadowgraph
