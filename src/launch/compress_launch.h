// DeepSeek-V4's compressor as launches: tokens into the state and blocks out of it, norm and
// rotation. All memory is the device's, lists too. Facts: docs/metadata.md "DeepSeek-V4". Tested by
// tests/launch/compress_launch_test.cc.
#pragma once

#include "attn/visit/visit_sparse.h"
#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/layers/compress.h"

namespace shadowgraph {

/// compress on what memory holds when it runs; tokens of page 0 are dropped, however many name it.
/// Where the call would be refused nothing is stored and out is poison; the footprint holds the
/// writes and reads beyond the state. Rows of spans are the call's requests: whose they are says
/// `rows`.
KernelLaunch compress_launch(Compress call, const RequestRows& rows = {});

/// norm_rope likewise; rows are blocks.
KernelLaunch norm_rope_launch(const NormRope& call, const RequestRows& rows = {.a_request = 0});

extern const Kernel kCompress, kNormRope;

}  // namespace shadowgraph
