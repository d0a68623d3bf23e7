// Latents into their slots, and attention over chosen ones, as launches. All memory is the
// device's, lists too. Facts: docs/metadata.md "DSA". Tested by tests/launch/sparse_launch_test.cc.
#pragma once

#include "attn/visit/visit_sparse.h"
#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

/// pack_latents on what memory holds when it runs; slots below first_slot, and below the pool's
/// page size, drop their tokens, however many name one. Where the call would be refused nothing is
/// stored, and the footprint holds the writes beyond the pool. Rows of spans are tokens: whose they
/// are says `tokens`.
KernelLaunch pack_latents_launch(PackLatents call, const RequestRows& tokens = {.a_request = 0});

/// sparse_attention likewise: where it would be refused its outputs are poison, and the footprint
/// holds the entries, and the reads beyond lists and pools.
KernelLaunch sparse_launch(const SparseAttention& call,
                           const RequestRows& tokens = {.a_request = 0});

/// The access to one element of a slot that a pool does not have, as far out as that is; nothing
/// where it has it.
void add_missing_slot(Footprint* spans, const LatentPool& pool, int64_t slot, Access access,
                      int64_t row);

extern const Kernel kPackLatents, kSparseAttention;

}  // namespace shadowgraph
