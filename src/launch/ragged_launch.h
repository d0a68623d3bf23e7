// attention_varlen as a launch. Facts: docs/metadata.md "Prefix in chunks". Tested by
// tests/launch/ragged_launch_test.cc.
#pragma once

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// attention_varlen, its memory (offsets too) being the device's, on what that memory holds when it
/// runs. Rows of q, out and lse past cu_seqlens_q's last entry, and of k and v past that of
/// cu_seqlens_k, are padding: neither read nor written. Where the call would be refused, the other
/// rows of out and lse are filled with 0xff, and the footprint holds the reads beyond q, k and v
/// that a GPU would have made.
///
/// rows: which of the call's requests are which request of the step.
KernelLaunch ragged_launch(const RaggedAttention& call, const RequestRows& rows = {});

extern const Kernel kRaggedAttention;

}  // namespace shadowgraph
