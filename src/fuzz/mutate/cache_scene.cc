#include "fuzz/mutate/cache_scene.h"

#include <numeric>

#include "attn/cases/case_names.h"
#include "check/bounds/linear_bound.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

constexpr int64_t kPages = 4;

template <class T>
void shuffle_list(std::vector<T>* list, Rng& rng) {
  for (size_t i = list->size(); i > 1; --i)
    std::swap((*list)[i - 1], (*list)[rng.below(static_cast<uint32_t>(i))]);
}

}  // namespace

CacheCase CacheCase::drawn(bool copies, Rng& rng) {
  const auto of = [&](auto first, auto... others) {
    const decltype(first) all[] = {first, others...};
    return all[rng.below(1 + sizeof...(others))];
  };
  CacheCase x;
  x.copies = copies;
  x.layout = of(KvLayout::kNhd, KvLayout::kHnd, KvLayout::kPanels);
  x.to = of(KvLayout::kNhd, KvLayout::kHnd, KvLayout::kPanels);
  x.dtype = of(DType::kF32, DType::kF16, DType::kBF16);
  x.cache_dtype = of(x.dtype, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8);
  x.tokens = of(1, 3, 5), x.heads = of(1, 2, 3);
  const bool panels = x.layout == KvLayout::kPanels || (copies && x.to == KvLayout::kPanels);
  x.page_size = panels ? of(16, 32) : of(1, 2, 4, 16);
  x.head_dim_qk = of(16, 5, 32), x.head_dim_vo = of(16, 8);
  x.whole_pool = of(false, false, true);
  x.first_slot = of(0, x.page_size);
  x.k_scale = of(1.F, 0.5F), x.v_scale = of(1.F, 2.F);
  x.seed = rng.next();
  return x;
}

std::string CacheCase::to_string() const {
  return std::string(copies ? "copy_kv " : "store_kv ") + std::to_string(tokens) + " tokens, " +
         std::string(word(kCaseLayoutNames, layout)) +
         (copies ? " to " + std::string(word(kCaseLayoutNames, to)) : "") + ", page " +
         std::to_string(page_size) + ", " + std::to_string(heads) + " heads of " +
         std::to_string(head_dim_qk) + " and " + std::to_string(head_dim_vo) + ", " +
         std::string(name_of(dtype)) + " as " + std::string(name_of(cache_dtype));
}

TensorView CacheScene::random(const char* field, DType type, std::initializer_list<int64_t> shape) {
  const TensorView t = memory_.add(field, type, shape, rng_);
  for (int64_t i = 0; i < t.numel(); ++i)
    store_float(t.data, type, element_offset(t, i), rng_.signed_unit());
  return t;
}

KvCache CacheScene::make_cache(const char* k, const char* v, KvLayout layout, int64_t pages) {
  const auto plane = [&](const char* field, int32_t dim, int64_t panel) {
    const DType type = x_.cache_dtype;
    if (layout == KvLayout::kPanels)
      return random(field, type, {pages, x_.heads, x_.page_size / kPanelTokens, panel});
    if (layout == KvLayout::kHnd) return random(field, type, {pages, x_.heads, x_.page_size, dim});
    return random(field, type, {pages, x_.page_size, x_.heads, dim});
  };
  const TensorView keys =
      plane(k, x_.head_dim_qk, key_panel_elements(x_.cache_dtype, x_.head_dim_qk));
  const TensorView values = plane(v, x_.head_dim_vo, value_panel_elements(x_.head_dim_vo));
  KvCache cache = layout == KvLayout::kPanels
                      ? KvCache::panels(keys, values, x_.head_dim_qk, x_.head_dim_vo)
                  : layout == KvLayout::kHnd ? KvCache::hnd(keys, values)
                                             : KvCache::nhd(keys, values);
  if (x_.cache_dtype == DType::kI8) {
    const auto scales = [&](const char* field) {
      return random(field, DType::kF32, {pages, x_.page_size, x_.heads});
    };
    const TensorView k_scales = scales("k_scales"), v_scales = scales("v_scales");
    cache = cache.with_scales(k_scales, v_scales);
  }
  cache.k_scale = x_.k_scale, cache.v_scale = x_.v_scale;
  return cache;
}

void CacheScene::lay() {
  const auto numbers = [&](auto* list, int64_t count) {
    list->resize(static_cast<size_t>(count));
    std::iota(list->begin(), list->end(), 0);
    shuffle_list(list, rng_);
  };
  if (x_.copies) {
    CopyKv call;
    call.source = make_cache("source k", "source v", x_.layout, kPages);
    call.target = make_cache("target k", "target v", x_.to, kPages);
    call.whole_pool = x_.whole_pool;
    numbers(&pages_from_, kPages), numbers(&pages_to_, kPages);
    pages_from_.resize(2), pages_to_.resize(2);
    if (!x_.whole_pool) {
      call.source_pages = memory_.add_list("source_pages", pages_from_, rng_);
      call.target_pages = memory_.add_list("target_pages", pages_to_, rng_);
    }
    call.options.num_threads = 1;
    call_ = call;
  } else {
    StoreKv call;
    call.cache = make_cache("k_cache", "v_cache", x_.layout, kPages + x_.tokens);
    numbers(&slots_, call.cache.num_slots());
    slots_.resize(static_cast<size_t>(x_.tokens));
    call.k = random("k", x_.dtype, {x_.tokens, x_.heads, x_.head_dim_qk});
    call.v = random("v", x_.dtype, {x_.tokens, x_.heads, x_.head_dim_vo});
    call.out_cache_loc = memory_.add_list("out_cache_loc", slots_, rng_);
    call.first_slot = x_.first_slot;
    call.options.num_threads = 1;
    call_ = call;
  }
  memory_.remember();
}

}  // namespace shadowgraph
