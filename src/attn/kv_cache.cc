#include "shadowgraph/attention/kv_cache.h"

namespace shadowgraph {
namespace {

/// A plane from a 4-D tensor [pages, ., ., head_dim] whose token and head axes stand where the
/// layout puts them.
KvPlane plane(const TensorView& t, int token_axis, int head_axis) {
  KvPlane p;
  p.data = t.data;
  p.dtype = t.dtype;
  p.page_stride = t.stride[0];
  p.token_stride = t.stride[token_axis];
  p.head_stride = t.stride[head_axis];
  p.head_dim = static_cast<int32_t>(t.shape[3]);
  return p;
}

KvCache from_planes(const TensorView& k, const TensorView& v, int token_axis, int head_axis) {
  KvCache c;
  c.k = plane(k, token_axis, head_axis);
  c.v = plane(v, token_axis, head_axis);
  c.num_pages = k.shape[0];
  c.page_size = static_cast<int32_t>(k.shape[token_axis]);
  c.num_kv_heads = static_cast<int32_t>(k.shape[head_axis]);
  c.well_formed = k.rank == 4 && v.rank == 4 && k.shape[0] == v.shape[0] &&
                  k.shape[1] == v.shape[1] && k.shape[2] == v.shape[2] && k.stride[3] == 1 &&
                  v.stride[3] == 1;
  for (const TensorView* t : {&k, &v}) {
    for (int64_t s : t->shape) c.well_formed = c.well_formed && s >= 0;
    for (int axis = 1; axis < 4; ++axis)
      c.well_formed = c.well_formed && t->shape[axis] <= INT32_MAX;
  }
  return c;
}

/// kv[:, which] of a 5-D tensor; rank 0 where it is no such tensor.
TensorView half(const TensorView& kv, int64_t which) {
  TensorView t;
  t.dtype = kv.dtype;
  t.shape = {kv.shape[0], kv.shape[2], kv.shape[3], kv.shape[4]};
  t.stride = {kv.stride[0], kv.stride[2], kv.stride[3], kv.stride[4]};
  // Halves farther apart than any memory is large are no tensor; nor may their address be formed.
  constexpr int64_t kFar = int64_t{1} << 46;  // elements
  const int64_t apart = which == 0 ? 0 : kv.stride[1];
  if (kv.rank != 5 || kv.shape[1] != 2 || apart < -kFar || apart > kFar) return t;
  t.rank = 4;
  t.data = kv.data == nullptr ? nullptr : kv.data + apart * static_cast<int64_t>(size_of(kv.dtype));
  return t;
}

/// False if t is no tensor of the cache's scales.
bool set_scales(const TensorView& t, const KvCache& cache, KvPlane* plane) {
  if (!t.defined()) return true;
  plane->scales = reinterpret_cast<float*>(t.data);
  plane->scale_page_stride = t.stride[0];
  plane->scale_token_stride = t.stride[1];
  plane->scale_head_stride = t.stride[2];
  return t.rank == 3 && t.dtype == DType::kF32 && t.shape[0] == cache.num_pages &&
         t.shape[1] == cache.page_size && t.shape[2] == cache.num_kv_heads;
}

/// Is the first token of a page as far from the last one of the page before as tokens are?
bool follow_each_other(const KvCache& cache, int64_t page_stride, int64_t token_stride) {
  int64_t tokens = 0;
  return cache.num_pages <= 1 ||
         (!__builtin_mul_overflow(cache.page_size, token_stride, &tokens) && tokens == page_stride);
}

}  // namespace

KvCache KvCache::nhd(const TensorView& k, const TensorView& v) { return from_planes(k, v, 1, 2); }
KvCache KvCache::hnd(const TensorView& k, const TensorView& v) { return from_planes(k, v, 2, 1); }
KvCache KvCache::stacked_nhd(const TensorView& kv) { return nhd(half(kv, 0), half(kv, 1)); }
KvCache KvCache::stacked_hnd(const TensorView& kv) { return hnd(half(kv, 0), half(kv, 1)); }

KvCache KvCache::mla_latent(const TensorView& latent, int32_t head_dim_vo) {
  TensorView k = latent;
  k.rank = latent.rank == 3 ? 4 : 0;
  k.shape = {latent.shape[0], latent.shape[1], 1, latent.shape[2]};
  k.stride = {latent.stride[0], latent.stride[1], 0, latent.stride[2]};
  TensorView v = k;
  v.shape[3] = head_dim_vo;
  KvCache c = nhd(k, v);
  c.well_formed = c.well_formed && head_dim_vo >= 0 && head_dim_vo <= latent.shape[2];
  return c;
}

KvCache KvCache::panels(const TensorView& k, const TensorView& v, int32_t head_dim_qk,
                        int32_t head_dim_vo) {
  KvCache c = from_planes(k, v, 2, 1);
  c.k.order = KvOrder::kKeyPanels;
  c.v.order = KvOrder::kValuePanels;
  c.k.head_dim = head_dim_qk;
  c.v.head_dim = head_dim_vo;
  c.well_formed = c.well_formed && c.page_size <= INT32_MAX / kPanelTokens &&
                  k.shape[3] == key_panel_elements(k.dtype, head_dim_qk) &&
                  v.shape[3] == value_panel_elements(head_dim_vo);
  if (c.well_formed) c.page_size *= kPanelTokens;
  return c;
}

bool KvCache::is_latent() const {
  KvPlane beginning = k;
  beginning.head_dim = v.head_dim;
  return k.data != nullptr && k.order == KvOrder::kStrided && v == beginning &&
         v.head_dim <= k.head_dim;
}

KvCache KvCache::with_scales(const TensorView& k_scales, const TensorView& v_scales) const {
  KvCache c = *this;
  const bool k_ok = set_scales(k_scales, *this, &c.k), v_ok = set_scales(v_scales, *this, &c.v);
  c.well_formed = well_formed && k_ok && v_ok;
  return c;
}

KvCache slot_view(const KvCache& cache) {
  KvCache c = cache;
  c.page_size = 1;
  c.well_formed =
      cache.well_formed && !__builtin_mul_overflow(cache.num_pages, cache.page_size, &c.num_pages);
  for (KvPlane* p : {&c.k, &c.v}) {
    c.well_formed = c.well_formed && p->order == KvOrder::kStrided &&
                    (follow_each_other(cache, p->page_stride, p->token_stride) &&
                     follow_each_other(cache, p->scale_page_stride, p->scale_token_stride));
    p->page_stride = p->token_stride;
    p->scale_page_stride = p->scale_token_stride;
  }
  return c;
}

}  // namespace shadowgraph
