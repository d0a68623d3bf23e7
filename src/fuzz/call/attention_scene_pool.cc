// AttentionScene of a paged cache: pool, table and keys, and the same through store_kv.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/float_formats.h"
#include "fuzz/call/attention_scene.h"

namespace shadowgraph {
namespace {

/// A token's dims to their places, one by one where they do not lie together, and its scale.
void put(const KvPlane& plane, int64_t page, int64_t token, int64_t head, const std::byte* row,
         float scale) {
  if (plane.scales != nullptr) plane.scales[plane.scale_offset(page, token, head)] = scale;
  const auto size = static_cast<int64_t>(size_of(plane.dtype));
  const int64_t together = plane.order == KvOrder::kStrided ? plane.head_dim : 1;
  for (int64_t d = 0; d < plane.head_dim; d += together) {
    std::memcpy(plane.data + plane.offset(page, token, head, d) * size, row + d * size,
                static_cast<size_t>(together * size));
  }
}

}  // namespace

/// Pages before the first of a far pool: the wider plane has kFarElements in them.
int64_t AttentionScene::first_page() const {
  const int64_t widest = std::max(x_.head_dim_qk, x_.head_dim_vo);
  return how_.far ? far_rows(how_.page_size * x_.num_kv_heads * widest) : 0;
}

KvCache AttentionScene::make_pool(int64_t num_pages) {
  const bool by_heads = how_.layout == KvLayout::kNhd || how_.layout == KvLayout::kHnd;
  if (how_.in_records && by_heads) return make_records(num_pages);
  const int64_t p = num_pages, s = how_.page_size, h = x_.num_kv_heads, dk = x_.head_dim_qk,
                dv = x_.head_dim_vo;
  const auto plane = [&](const char* field, std::initializer_list<int64_t> shape) {
    return add_plane(field, x_.kv_dtype, shape);
  };
  constexpr const char *k = "k_cache", *v = "v_cache";
  switch (how_.layout) {
    case KvLayout::kNhd: return KvCache::nhd(plane(k, {p, s, h, dk}), plane(v, {p, s, h, dv}));
    case KvLayout::kHnd: return KvCache::hnd(plane(k, {p, h, s, dk}), plane(v, {p, h, s, dv}));
    case KvLayout::kStackedNhd: return KvCache::stacked_nhd(plane(k, {p, 2, s, h, dk}));
    case KvLayout::kStackedHnd: return KvCache::stacked_hnd(plane(k, {p, 2, h, s, dk}));
    case KvLayout::kMlaLatent: return KvCache::mla_latent(plane(k, {p, s, dk}), x_.head_dim_vo);
    case KvLayout::kPanels:
      return KvCache::panels(
          plane(k, {p, h, s / kPanelTokens, key_panel_elements(x_.kv_dtype, x_.head_dim_qk)}),
          plane(v, {p, h, s / kPanelTokens, value_panel_elements(x_.head_dim_vo)}), x_.head_dim_qk,
          x_.head_dim_vo);
  }
  return {};
}

/// i8: scales in the order of the layout's axes, the two of a stacked pool in one tensor.
KvCache AttentionScene::with_scales(const KvCache& cache) {
  if (x_.kv_dtype != DType::kI8 || cache.k.scales != nullptr) return cache;
  const int64_t p = cache.num_pages, s = cache.page_size, h = x_.num_kv_heads;
  const bool by_tokens = how_.layout == KvLayout::kNhd || how_.layout == KvLayout::kStackedNhd ||
                         how_.layout == KvLayout::kMlaLatent;
  const int64_t second = by_tokens ? s : h, third = by_tokens ? h : s;
  const auto in_order = [&](std::byte* at, int64_t a, int64_t b, int64_t c) {
    return by_tokens ? TensorView(at, DType::kF32, {p, s, h}, {a, b, c})
                     : TensorView(at, DType::kF32, {p, s, h}, {a, c, b});
  };
  if (how_.layout == KvLayout::kStackedNhd || how_.layout == KvLayout::kStackedHnd) {
    const TensorView t = add_plane("cache.scales", DType::kF32, {p, 2, second, third});
    const auto half = [&](int64_t which) {
      return in_order(t.at(0, which), t.stride[0], t.stride[2], t.stride[3]);
    };
    return cache.with_scales(half(0), half(1));
  }
  const auto plane = [&](const char* field) {
    const TensorView t = add_plane(field, DType::kF32, {p, second, third});
    return in_order(t.data, t.stride[0], t.stride[1], t.stride[2]);
  };
  const TensorView of_keys = plane("k_cache.scales");
  const bool latent = how_.layout == KvLayout::kMlaLatent;
  return cache.with_scales(of_keys, latent ? of_keys : plane("v_cache.scales"));
}

/// The records are counted by one, two or three axes of (page, token, head): a page may have a
/// block of each plane, or each token and head its codes with their scale.
KvCache AttentionScene::make_records(int64_t num_pages) {
  const bool heads_first = how_.layout == KvLayout::kHnd;
  const int64_t second = heads_first ? x_.num_kv_heads : how_.page_size,
                third = heads_first ? how_.page_size : x_.num_kv_heads;
  const auto plane = [&](int32_t dim) {
    return RecordField{x_.kv_dtype, {num_pages, second, third, dim}};
  };
  const RecordField scales = {DType::kF32, {num_pages, second, third}};
  const RecordField other_layer = plane(x_.head_dim_qk);
  std::vector<RecordField> fields = {plane(x_.head_dim_qk), plane(x_.head_dim_vo), other_layer};
  if (x_.kv_dtype == DType::kI8) fields.insert(fields.end(), {scales, scales});
  const std::vector<TensorView> t =
      memory_.add_records("k_cache and v_cache", 1 + rng_.below(3), fields, rng_);
  if (x_.kv_dtype != DType::kI8)
    return heads_first ? KvCache::hnd(t[0], t[1]) : KvCache::nhd(t[0], t[1]);
  if (!heads_first) return KvCache::nhd(t[0], t[1]).with_scales(t[3], t[4]);
  const auto by_tokens = [](TensorView of_heads) {
    std::swap(of_heads.shape[1], of_heads.shape[2]);
    std::swap(of_heads.stride[1], of_heads.stride[2]);
    return of_heads;
  };
  return KvCache::hnd(t[0], t[1]).with_scales(by_tokens(t[3]), by_tokens(t[4]));
}

/// Pages in random order for the pages that a query can reach; every other entry is absurd, or
/// names a page of nobody.
void AttentionScene::lay_table(int64_t num_pages) {
  std::vector<int32_t> ids(static_cast<size_t>(num_pages));
  std::iota(ids.begin(), ids.end(), static_cast<int32_t>(first_page()));
  shuffle(ids, rng_);
  size_t next = 0;
  const int32_t absurd = how_.whole_tables ? ids.back() : rng_.below(2) ? -1 : 2147483647;
  table_ = {};
  int64_t longest = 0;
  for (size_t i = 0; i < count(); ++i) {
    table_.cache_seqlens.push_back(kv_len(i));
    longest = std::max(longest, pages_for(kv_len(i), how_.page_size));
  }
  table_.max_pages = longest + rng_.below(3);
  table_.page_table.assign(count() * static_cast<size_t>(table_.max_pages), absurd);
  const auto give = [&](size_t i, int32_t t) {
    int32_t& id = page_id(i, t);
    if (id == absurd) id = ids[next++];
  };
  if (!how_.whole_tables) return for_each_key(&RequestData::reachable, give);
  for (size_t i = 0; i < count(); ++i)
    for (int32_t t = 0; t < kv_len(i); ++t) give(i, t);
}

void AttentionScene::lay_keys(const KvCache& cache) {
  for_each_key(&RequestData::visible, [&](size_t i, int32_t t) {
    const int64_t page = page_id(i, t);
    for (int64_t head = 0; head < x_.num_kv_heads; ++head) {
      const auto lay = [&](const KvPlane& plane, const LogicalTensor& from) {
        put(plane, page, t % how_.page_size, head, from.row(t, head), from.scale(t, head));
      };
      lay(cache.k, request(i).k);
      lay(cache.v, request(i).v);
    }
  });
}

/// The same through the engine's own store_kv: as they are, or in f32, for the scales to divide;
/// with tokens between them that a negative slot drops.
Status AttentionScene::store_keys(KvCache cache) {
  std::vector<std::pair<size_t, int32_t>> tokens;  // of a piece; token -1: dropped
  for_each_key(&RequestData::visible, [&](size_t i, int32_t t) {
    if (rng_.below(8) == 0) tokens.emplace_back(i, -1);
    tokens.emplace_back(i, t);
  });
  const bool as_is = rng_.below(2) == 0;
  const DType type = as_is && is_float16_or_32(x_.kv_dtype) ? x_.kv_dtype : DType::kF32;
  if (as_is) cache.k_scale = cache.v_scale = 1;
  const auto rows = static_cast<int64_t>(tokens.size());
  CallMemory memory;
  const TensorView keys = memory.add("k", type, {rows, x_.num_kv_heads, x_.head_dim_qk}, rng_);
  const TensorView values = memory.add("v", type, {rows, x_.num_kv_heads, x_.head_dim_vo}, rng_);
  const auto fill = [&](const TensorView& to, int64_t row, const LogicalTensor& from, int32_t token,
                        float scale) {
    for (int64_t head = 0; head < from.heads; ++head) {
      for (int64_t d = 0; d < from.dim; ++d)
        store_float(to.at(row, head), type, d, from.value(token, head, d) * scale);
    }
  };
  std::vector<int64_t> slots;
  for (int64_t row = 0; row < rows; ++row) {
    const auto [i, token] = tokens[static_cast<size_t>(row)];
    if (token < 0) {
      slots.push_back(-1 - static_cast<int64_t>(rng_.below(3)));
      continue;
    }
    slots.push_back(int64_t{page_id(i, token)} * how_.page_size + token % how_.page_size);
    fill(keys, row, request(i).k, token, cache.k_scale);
    fill(values, row, request(i).v, token, cache.v_scale);
  }
  const StoreKv call{keys, values, memory.add_list("out_cache_loc", slots, rng_), cache,
                     how_.options};
  return how_.device != nullptr ? how_.device->run(call) : store_kv(call);
}

/// The pool, which is all that is laid so far, as store_kv leaves it must be as written by hand:
/// the values, and nothing else.
void AttentionScene::check_store(const KvCache& cache) {
  memory_.remember();
  memory_.poison();
  stored_ = store_keys(cache);
  if (!stored_.ok()) return;
  stored_ = memory_.check_written({});
  for (Finding& f : stored_.findings()) {
    f.where.field.insert(0, "store_kv ");
    f.expected = "the values in their slots, and nothing else";
  }
}

/// A new pool with all pages of this one, which copy_kv leaves as it is; nothing but the elements
/// of the new one is written.
KvCache AttentionScene::copied(const KvCache& source) {
  KvCache target = with_scales(make_pool(source.num_pages));
  target.k_scale = source.k_scale, target.v_scale = source.v_scale;
  memory_.remember();
  stored_ =
      copy_kv({.source = source, .target = target, .whole_pool = true, .options = how_.options});
  if (!stored_.ok()) return target;
  std::vector<ConstTensorView> written;
  for (const KvPlane* p : {&target.k, &target.v}) {
    const int64_t panels = p->order == KvOrder::kStrided ? 1 : kPanelTokens;
    ConstTensorView& plane =
        written.emplace_back(p->data, p->dtype,
                             std::initializer_list<int64_t>{
                                 target.num_pages, target.page_size / panels, target.num_kv_heads,
                                 contiguous_elements(p->order, p->dtype, p->head_dim)});
    plane.stride = {p->page_stride, p->token_stride, p->head_stride, 1};
    if (p->scales == nullptr) continue;
    ConstTensorView& scales = written.emplace_back(
        p->scales, DType::kF32,
        std::initializer_list<int64_t>{target.num_pages, target.page_size, target.num_kv_heads});
    scales.stride = {p->scale_page_stride, p->scale_token_stride, p->scale_head_stride};
  }
  stored_ = memory_.check_written(written);
  for (Finding& f : stored_.findings()) f.where.field.insert(0, "copy_kv ");
  return target;
}

void AttentionScene::lay_call(PagedAttention* call) {
  int64_t pages = 1 + rng_.below(3);
  for (size_t i = 0; i < count(); ++i) pages += pages_for(kv_len(i), how_.page_size);
  call->cache = with_scales(make_pool(first_page() + pages));
  call->cache.k_scale = x_.k_scale;
  call->cache.v_scale = x_.v_scale;
  lay_table(pages);
  lay_keys(call->cache);
  if (how_.through_store_kv) check_store(call->cache);
  if (how_.through_copy_kv && stored_.ok()) call->cache = copied(call->cache);
  if (how_.table == PageTable::Form::kCsr) {
    const CsrTable csr = to_csr(table_.view(), how_.page_size);
    call->pages =
        PageTable::csr(add_list("kv_indptr", csr.kv_indptr), add_list("kv_indices", csr.kv_indices),
                       add_list("last_page_len", csr.last_page_len));
  } else {
    call->pages = PageTable::dense(add_list("page_table", table_.page_table), table_.max_pages,
                                   add_list("cache_seqlens", table_.cache_seqlens));
  }
  if (!how_.decode) call->cu_seqlens_q = add_list("cu_seqlens_q", cu_seqlens_q_);
}

}  // namespace shadowgraph
