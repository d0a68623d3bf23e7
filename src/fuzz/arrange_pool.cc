// A paged cache and its table, laid out as an Arrangement says; and the same through store_kv.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/float_formats.h"
#include "core/laws.h"
#include "fuzz/arranged_memory.h"

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

KvCache ArrangedCall::Memory::make_pool(int64_t num_pages) {
  const int64_t p = num_pages, s = how.page_size, h = x.num_kv_heads, dk = x.head_dim_qk,
                dv = x.head_dim_vo;
  const auto plane = [&](GuardedBuffer& buffer, std::initializer_list<int64_t> shape) {
    return make_gapped(buffer, x.kv_dtype, shape, rng);
  };
  switch (how.layout) {
    case CaseLayout::kNhd: return KvCache::nhd(plane(k, {p, s, h, dk}), plane(v, {p, s, h, dv}));
    case CaseLayout::kHnd: return KvCache::hnd(plane(k, {p, h, s, dk}), plane(v, {p, h, s, dv}));
    case CaseLayout::kStackedNhd: return KvCache::stacked_nhd(plane(k, {p, 2, s, h, dk}));
    case CaseLayout::kStackedHnd: return KvCache::stacked_hnd(plane(k, {p, 2, h, s, dk}));
    case CaseLayout::kMlaLatent: return KvCache::mla_latent(plane(k, {p, s, dk}), x.head_dim_vo);
    case CaseLayout::kPanels:
      return KvCache::panels(
          plane(k, {p, h, s / kPanelTokens, key_panel_elements(x.kv_dtype, x.head_dim_qk)}),
          plane(v, {p, h, s / kPanelTokens, value_panel_elements(x.head_dim_vo)}), x.head_dim_qk,
          x.head_dim_vo);
  }
  return {};
}

/// i8: scales in the order of the layout's axes, the two of a stacked pool in one tensor.
KvCache ArrangedCall::Memory::with_scales(const KvCache& cache) {
  if (x.kv_dtype != DType::kI8) return cache;
  const int64_t p = cache.num_pages, s = cache.page_size, h = x.num_kv_heads;
  const bool by_tokens = how.layout == CaseLayout::kNhd || how.layout == CaseLayout::kStackedNhd ||
                         how.layout == CaseLayout::kMlaLatent;
  const int64_t second = by_tokens ? s : h, third = by_tokens ? h : s;
  const auto in_order = [&](std::byte* at, int64_t a, int64_t b, int64_t c) {
    return by_tokens ? TensorView(at, DType::kF32, {p, s, h}, {a, b, c})
                     : TensorView(at, DType::kF32, {p, s, h}, {a, c, b});
  };
  if (how.layout == CaseLayout::kStackedNhd || how.layout == CaseLayout::kStackedHnd) {
    const TensorView t = make_gapped(k_scales, DType::kF32, {p, 2, second, third}, rng);
    const auto half = [&](int64_t which) {
      return in_order(t.at(0, which), t.stride[0], t.stride[2], t.stride[3]);
    };
    return cache.with_scales(half(0), half(1));
  }
  const auto plane = [&](GuardedBuffer& buffer) {
    const TensorView t = make_gapped(buffer, DType::kF32, {p, second, third}, rng);
    return in_order(t.data, t.stride[0], t.stride[1], t.stride[2]);
  };
  const TensorView of_keys = plane(k_scales);
  const bool latent = how.layout == CaseLayout::kMlaLatent;
  return cache.with_scales(of_keys, latent ? of_keys : plane(v_scales));
}

/// Pages in random order for the pages that a query can reach; every other entry is absurd.
void ArrangedCall::Memory::lay_table(int64_t num_pages) {
  std::vector<int32_t> ids(static_cast<size_t>(num_pages));
  std::iota(ids.begin(), ids.end(), 0);
  shuffle(ids, rng);
  size_t next = 0;
  const int32_t absurd = rng.below(2) ? -1 : 2147483647;
  dense.cache_seqlens.clear();
  int64_t longest = 0;
  for (const Slice& s : how.slices) {
    dense.cache_seqlens.push_back(s.kv_len);
    longest = std::max(longest, pages_for(s.kv_len, how.page_size));
  }
  dense.cache_seqlens.resize(static_cast<size_t>(batch()), 0);
  trim(dense.cache_seqlens);
  dense.max_pages = longest + rng.below(3);
  dense.page_table.assign(static_cast<size_t>(batch() * dense.max_pages), absurd);
  for_each_token(data, how.slices, &RequestData::reachable, [&](size_t i, int32_t t) {
    int32_t& id = page_id(i, t);
    if (id == absurd) id = ids[next++];
  });
}

void ArrangedCall::Memory::lay_tokens(const KvCache& cache) {
  for_each_token(data, how.slices, &RequestData::visible, [&](size_t i, int32_t t) {
    const RequestData& from = request(how.slices[i]);
    const int64_t page = page_id(i, t);
    for (int64_t head = 0; head < x.num_kv_heads; ++head) {
      const auto lay = [&](const KvPlane& plane, const LogicalTensor& tensor) {
        put(plane, page, t % how.page_size, head, tensor.row(t, head), tensor.scale(t, head));
      };
      lay(cache.k, from.k);
      lay(cache.v, from.v);
    }
  });
}

/// The same through the engine's own store_kv: as they are, or in f32, for the scales to divide;
/// with tokens between them that a negative slot drops.
void ArrangedCall::Memory::store_tokens(KvCache cache) {
  std::vector<std::pair<size_t, int32_t>> tokens;  // of a slice; token -1: dropped
  for_each_token(data, how.slices, &RequestData::visible, [&](size_t i, int32_t t) {
    if (rng.below(8) == 0) tokens.emplace_back(i, -1);
    tokens.emplace_back(i, t);
  });
  const bool as_is = rng.below(2) == 0;
  const DType type = as_is && is_float16_or_32(x.kv_dtype) ? x.kv_dtype : DType::kF32;
  if (as_is) cache.k_scale = cache.v_scale = 1;
  const auto count = static_cast<int64_t>(tokens.size());
  GuardedBuffer key_memory, value_memory;
  const TensorView keys =
      make_gapped(key_memory, type, {count, x.num_kv_heads, x.head_dim_qk}, rng);
  const TensorView values =
      make_gapped(value_memory, type, {count, x.num_kv_heads, x.head_dim_vo}, rng);
  const auto fill = [&](const TensorView& to, int64_t row, const LogicalTensor& from, int32_t token,
                        float scale) {
    for (int64_t head = 0; head < from.heads; ++head) {
      for (int64_t d = 0; d < from.dim; ++d) {
        store_float(to.at(row, head), type, d, from.value(token, head, d) * scale);
      }
    }
  };
  out_cache_loc.reserve(tokens.size());
  for (int64_t row = 0; row < count; ++row) {
    const auto [slice, token] = tokens[static_cast<size_t>(row)];
    if (token < 0) {
      out_cache_loc.push_back(-1 - static_cast<int64_t>(rng.below(3)));
      continue;
    }
    out_cache_loc.push_back(int64_t{page_id(slice, token)} * how.page_size + token % how.page_size);
    fill(keys, row, request(how.slices[slice]).k, token, cache.k_scale);
    fill(values, row, request(how.slices[slice]).v, token, cache.v_scale);
  }
  const StoreKv call{keys, values, out_cache_loc, cache, how.options};
  stored.add(device != nullptr ? device->run(call) : store_kv(call));
}

/// The pool as store_kv leaves it must be the pool as written by hand: the values, and nothing
/// else.
void ArrangedCall::Memory::check_store(const KvCache& cache) {
  GuardedBuffer* const buffers[] = {&k, &v, &k_scales, &v_scales};
  const std::vector<GuardedBuffer> by_hand = {k, v, k_scales, v_scales};
  for (GuardedBuffer* buffer : buffers) buffer->poison();
  store_tokens(cache);
  if (!stored.ok()) return;
  constexpr const char* kFields[] = {"store_kv k_cache byte", "store_kv v_cache byte",
                                     "store_kv k_cache.scales byte",
                                     "store_kv v_cache.scales byte"};
  for (size_t i = 0; i < by_hand.size(); ++i) {
    if (const auto byte = buffers[i]->first_difference(by_hand[i])) {
      stored.add(make_finding("num.write_set", at(kFields[i], *byte),
                              "the values in their slots, and nothing else", "another byte"));
    }
  }
}

void ArrangedCall::Memory::lay_paged() {
  int64_t pages = 1 + rng.below(3);
  for (const Slice& s : how.slices) pages += pages_for(s.kv_len, how.page_size);
  paged.cache = with_scales(make_pool(pages));
  paged.cache.k_scale = x.k_scale;
  paged.cache.v_scale = x.v_scale;
  lay_table(pages);
  lay_tokens(paged.cache);
  if (how.through_store_kv) check_store(paged.cache);
  paged.pages = dense.view();
  if (how.table == PageTable::Form::kCsr) {
    csr = to_csr(dense.view(), how.page_size);
    trim(csr.kv_indptr, csr.kv_indices, csr.last_page_len);
    paged.pages = csr.view();
  }
  if (!how.decode) paged.cu_seqlens_q = cu_seqlens_q;
  paged.params = params();
  paged.options = how.options;
}

}  // namespace shadowgraph
