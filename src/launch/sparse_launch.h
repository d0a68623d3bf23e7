// Latents into their slots, and attention over chosen ones, as launches. All memory is the
// device's, lists too. Facts: docs/metadata.md "DSA". Tested by tests/launch/sparse_launch_test.cc.
#pragma once

#include "launch/launch_args.h"
#include "shadowgraph/kernel.h"
#include "shadowgraph/sparse.h"

namespace shadowgraph {

/// pack_latents on what memory holds when it runs; slots below first_slot, and below the pool's
/// page size, drop their tokens, however many name one. Where the call would be refused nothing is
/// stored, and the footprint holds the writes beyond the pool. Rows of spans are tokens: whose they
/// are says `tokens`.
KernelLaunch pack_latents_launch(const PackLatents& call,
                                 const RequestRows& tokens = {.a_request = 0});
CallOf<PackLatents> pack_latents_call(const KernelLaunch& launch);

/// sparse_attention likewise: where it would be refused its outputs are poison, and the footprint
/// holds the entries, and the reads beyond lists and pools.
KernelLaunch sparse_launch(const SparseAttention& call,
                           const RequestRows& tokens = {.a_request = 0});
CallOf<SparseAttention> sparse_call(const KernelLaunch& launch);

extern const Kernel kPackLatents, kSparseAttention;

}  // namespace shadowgraph
