// copy_kv: pages from one pool into another of any layout. Tested by tests/kernels/copy_kv_test.cc.
#pragma once

#include "shadowgraph/attention.h"

namespace shadowgraph {

/// Requires a call that validate() accepts. Elements only: padding is neither read nor written.
void copy_kv_kernel(const CopyKv& call);

}  // namespace shadowgraph
