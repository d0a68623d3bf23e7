#include "launch/store_launch.h"

#include <algorithm>

#include "attn/validate.h"
#include "kernels/store_kv.h"
#include "launch/launch_scalars.h"

namespace shadowgraph {

namespace {

enum Arg : uint8_t { kK, kV, kSlots, kCache, kScalars = kCache + kCacheArgs };

Progress body(LaunchFrame& f) {
  // Refused: nothing is stored, and the footprint has said why.
  (void)store_kv(store_call(f.launch).call);
  return Progress::kDone;
}

/// Of a call that is refused: its slots, and the writes beyond the pool; rows are tokens.
Footprint refused_footprint(const StoreKv& c) {
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

void footprint(const LaunchFrame& f, Footprint* spans) {
  const auto [call, tokens] = store_call(f.launch);
  *spans = validate(call).ok() ? store_kv_footprint(call) : refused_footprint(call);
  name_requests(tokens, spans);
}

}  // namespace

constinit const Kernel kStoreKv{.name = "store_kv", .body = body, .footprint = footprint};

CallOf<StoreKv> store_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<StoreScalars>(kScalars);
  StoreKv c;
  c.k = view_of(f.pointer<void>(kK), s.k);
  c.v = view_of(f.pointer<void>(kV), s.v);
  c.out_cache_loc = array_of<int64_t>(f, kSlots, s.num_tokens);
  c.cache = cache_of(f, kCache, s.cache);
  c.options.num_threads = s.num_threads;
  c.first_slot = s.first_slot;
  return {c, s.tokens};
}

KernelLaunch store_launch(const StoreKv& c, const RequestRows& tokens) {
  StoreScalars s{};
  s.k = scalars_of(c.k);
  s.v = scalars_of(c.v);
  s.cache = scalars_of(c.cache);
  s.num_tokens = static_cast<int64_t>(c.out_cache_loc.size());
  s.first_slot = std::max<int64_t>(c.first_slot, c.cache.page_size);
  s.num_threads = c.options.num_threads;
  s.tokens = tokens;
  KernelLaunch launch = launch_of(kStoreKv, s.num_tokens);
  launch.args.pointer(c.k.data).pointer(c.v.data).pointer(c.out_cache_loc.data());
  add_cache(launch.args, c.cache).scalar(s);
  return launch;
}

}  // namespace shadowgraph
