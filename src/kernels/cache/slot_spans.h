// The footprint of one slot of a cache, whatever its layout, exact to the element. Tested by
// tests/kernels/store_kv_test.cc and tests/launch/copy_slots_launch_test.cc.
#pragma once

#include <cstdint>

#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// All heads of the slot in one plane of the cache, and their scales.
void add_slot(Footprint* spans, const KvCache& cache, const KvPlane& plane, int64_t slot,
              Access access, int32_t row);

}  // namespace shadowgraph
