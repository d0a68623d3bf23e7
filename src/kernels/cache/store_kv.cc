#include "kernels/cache/store_kv.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/cache/kv_runs.h"
#include "kernels/cache/slot_spans.h"
#include "kernels/spans.h"

namespace shadowgraph {
namespace {

/// The scale of an i8 token and head: what makes a code of 127 of its largest element.
float scale_of_token(const std::byte* source, DType t, int64_t dims, float scale) {
  float largest = 0;
  for (int64_t d = 0; d < dims; ++d) {
    const float x = std::abs(load_float(source, t, d) / scale);
    if (!std::isfinite(x)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, x);
  }
  return largest / 127;  // no edge: the largest code
}

void store_token(const ConstTensorView& from, int64_t token, const KvCache& cache,
                 const KvPlane& plane, float scale, int64_t slot) {
  const auto size = static_cast<int64_t>(size_of(plane.dtype));
  const bool as_is = from.dtype == plane.dtype && scale == 1;
  const int64_t page = slot / cache.page_size, in_page = slot % cache.page_size;
  for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
    const std::byte* source = from.at(token, head);
    float own = 1;
    if (plane.scales != nullptr) {
      own = scale_of_token(source, from.dtype, plane.head_dim, scale);
      plane.scales[plane.scale_offset(page, in_page, head)] = own;
    }
    for_each_run(plane, page, in_page, head, [&](const KvRun& r) {
      if (as_is) {
        copy_spaced(plane.dtype, plane.data + r.first * size, r.stride, source + r.first_dim * size,
                    r.dim_step, r.count);
        return;
      }
      for (int64_t i = 0; i < r.count; ++i) {
        const float x = load_float(source, from.dtype, r.first_dim + i * r.dim_step) / scale;
        store_float(plane.data, plane.dtype, r.first + i * r.stride, own > 0 ? x / own : 0);
      }
    });
  }
}

}  // namespace

void store_kv_kernel(const StoreKv& call) {
  const auto tokens = static_cast<int64_t>(call.out_cache_loc.size());
  const bool latent = call.is_latent();
  parallel_for(tokens, team_size(call.options.num_threads, tokens), [&](int64_t token, int) {
    const int64_t slot = call.out_cache_loc[static_cast<size_t>(token)];
    if (call.drops(slot)) return;
    store_token(call.k, token, call.cache, call.cache.k, call.cache.k_scale, slot);
    if (!latent) store_token(call.v, token, call.cache, call.cache.v, call.cache.v_scale, slot);
  });
}

Footprint store_kv_footprint(const StoreKv& call) {
  Footprint spans;
  for (size_t i = 0; i < call.out_cache_loc.size(); ++i) {
    const int64_t slot = call.out_cache_loc[i];
    const auto token = static_cast<int32_t>(i);
    spans.push_back({call.out_cache_loc.data(), token, 1, sizeof(int64_t), Access::kRead, token});
    if (call.drops(slot)) continue;
    const auto add = [&](const ConstTensorView& from, const KvPlane& plane) {
      const SpanAxis heads{call.cache.num_kv_heads, from.stride[1]};
      add_block(&spans,
                {from.data, from.offset(token, 0), plane.head_dim, element_bytes(from.dtype),
                 Access::kRead, token},
                {}, heads);
      add_slot(&spans, call.cache, plane, slot, Access::kWrite, token);
    };
    add(call.k, call.cache.k);
    if (!call.is_latent()) add(call.v, call.cache.v);
  }
  return spans;
}

}  // namespace shadowgraph
