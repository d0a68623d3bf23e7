// store_kv: new keys and values into the slots that out_cache_loc names. Tested by
// tests/kernels/store_kv_test.cc.
#pragma once

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// Requires a call that validate() accepts. Bits are kept where types agree and the scale is 1.
void store_kv_kernel(const StoreKv& call);
Footprint store_kv_footprint(const StoreKv& call);

}  // namespace shadowgraph
