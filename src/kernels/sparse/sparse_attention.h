// sparse_attention and pack_latents (shadowgraph/layers/sparse.h). Tested by
// tests/kernels/sparse_attention_test.cc and pack_latents_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

/// Both require a call that validate() accepts. Buffers are the call's data pointers; row is the
/// token, -1 of lengths, offsets and sinks.
Footprint sparse_attention_footprint(const SparseAttention& call);
Footprint pack_latents_footprint(const PackLatents& call);

}  // namespace shadowgraph
