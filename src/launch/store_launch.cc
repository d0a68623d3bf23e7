#include "launch/store_launch.h"

#include <algorithm>

#include "attn/validate/validate.h"
#include "kernels/cache/store_kv.h"
#include "launch/checked_launch.h"

namespace shadowgraph {
namespace {

/// Where it is refused nothing is stored, and the footprint says why.
struct StoreLaunch : CheckedLaunch<StoreKv> {
  static Status run(const StoreKv& c) { return store_kv(c); }
  static Footprint footprint(const StoreKv& c) { return store_kv_footprint(c); }
  /// The slots, and the writes beyond the pool; rows are tokens.
  static Footprint refused(const StoreKv& c) {
    Footprint spans;
    add_whole(&spans, c.out_cache_loc);
    if (!c.cache.well_formed || c.cache.page_size < 1) return spans;
    for (size_t i = 0; i < c.out_cache_loc.size(); ++i) {
      const int64_t page = c.out_cache_loc[i] / c.cache.page_size;
      if (page >= c.cache.num_pages)
        add_beyond_pool(&spans, c.cache, page, Access::kWrite, static_cast<int32_t>(i));
    }
    return spans;
  }
};

}  // namespace

constinit const Kernel kStoreKv = checked_kernel<StoreLaunch>("store_kv");

KernelLaunch store_launch(StoreKv call, const RequestRows& tokens) {
  call.first_slot = std::max<int64_t>(call.first_slot, call.cache.page_size);
  return launch_of(kStoreKv, call, tokens, std::ssize(call.out_cache_loc));
}

}  // namespace shadowgraph
