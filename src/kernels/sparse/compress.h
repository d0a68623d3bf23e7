// compress, pool_norm_rope, norm_rope: tokens into blocks of DeepSeek-V4's compressed cache
// (shadowgraph/layers/compress.h). Tested by tests/kernels/compress_test.cc.
#pragma once

#include "shadowgraph/device/access.h"
#include "shadowgraph/layers/compress.h"

namespace shadowgraph {

/// They require calls that validate() accepts. Norms take a row of doubles for each thread; the
/// rest allocates nothing.
void compress_kernel(const Compress& call);
void pool_norm_rope_kernel(const PoolNormRope& call);
void norm_rope_kernel(const NormRope& call);
/// Rows are requests, lists and ape are nobody's.
Footprint compress_footprint(const Compress& call);
/// Rows are blocks; what all of them share is nobody's.
Footprint pool_norm_rope_footprint(const PoolNormRope& call);
Footprint norm_rope_footprint(const NormRope& call);

}  // namespace shadowgraph
