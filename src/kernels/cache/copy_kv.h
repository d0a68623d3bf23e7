// copy_kv: pages from one pool into another of any layout. Tested by tests/kernels/copy_kv_test.cc.
#pragma once

#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// Requires a call that validate() accepts. Elements only: padding is neither read nor written.
void copy_kv_kernel(const CopyKv& call);

/// The token of one slot into another one of a sound cache: all heads, K and V and scales.
void copy_slot(const KvCache& cache, int64_t source, int64_t target);

}  // namespace shadowgraph
