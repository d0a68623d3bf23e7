#include "kernels/store_kv.h"

#include <cstring>

#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/spans.h"

namespace shadowgraph {
namespace {

void store_token(const ConstTensorView& from, int64_t token, const KvCache& cache,
                 const KvPlane& plane, float scale, int64_t slot) {
  for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
    const std::byte* source = from.at(token, head);
    const int64_t element = plane.offset(slot / cache.page_size, slot % cache.page_size, head, 0);
    std::byte* target = plane.data + element * static_cast<int64_t>(size_of(plane.dtype));
    if (from.dtype == plane.dtype && scale == 1) {
      std::memcpy(target, source, static_cast<size_t>(plane.head_dim) * size_of(plane.dtype));
      continue;
    }
    for (int64_t d = 0; d < plane.head_dim; ++d) {
      store_float(target, plane.dtype, d, load_float(source, from.dtype, d) / scale);
    }
  }
}

}  // namespace

void store_kv_kernel(const StoreKv& call) {
  const auto tokens = static_cast<int64_t>(call.out_cache_loc.size());
  parallel_for(tokens, team_size(call.options.num_threads, tokens), [&](int64_t token, int) {
    const int64_t slot = call.out_cache_loc[static_cast<size_t>(token)];
    if (slot < 0) return;
    store_token(call.k, token, call.cache, call.cache.k, call.cache.k_scale, slot);
    store_token(call.v, token, call.cache, call.cache.v, call.cache.v_scale, slot);
  });
}

Footprint store_kv_footprint(const StoreKv& call) {
  Footprint spans;
  for (size_t i = 0; i < call.out_cache_loc.size(); ++i) {
    const int64_t slot = call.out_cache_loc[i];
    const auto token = static_cast<int32_t>(i);
    spans.push_back({call.out_cache_loc.data(), token, 1, sizeof(int64_t), Access::kRead, token});
    if (slot < 0) continue;
    const auto add = [&](const ConstTensorView& from, const KvPlane& plane) {
      const SpanAxis heads{call.cache.num_kv_heads, from.stride[1]};
      add_block(&spans,
                {from.data, from.offset(token, 0), plane.head_dim, element_bytes(from.dtype),
                 Access::kRead, token},
                {}, heads);
      for (int64_t head = 0; head < call.cache.num_kv_heads; ++head) {
        const int64_t at =
            plane.offset(slot / call.cache.page_size, slot % call.cache.page_size, head, 0);
        spans.push_back(
            {plane.data, at, plane.head_dim, element_bytes(plane.dtype), Access::kWrite, token});
      }
    };
    add(call.k, call.cache.k);
    add(call.v, call.cache.v);
  }
  return spans;
}

}  // namespace shadowgraph
