// A pool on a device, in every layout and element type, for tests of launches that read or write
// it.
#pragma once

#include <string>
#include <vector>

#include "launch/launch_world.h"
#include "shadowgraph/attention/kv_cache.h"

namespace shadowgraph {

enum class Layout { kNhd, kHnd, kPanels, kLatent };

/// How a pool looks.
struct CacheForm {
  Layout layout = Layout::kNhd;
  DType dtype = DType::kF32;
  int64_t pages = 4;

  int64_t page_size() const { return layout == Layout::kPanels ? 16 : 4; }
  bool int8() const { return dtype == DType::kI8; }
  bool latent() const { return layout == Layout::kLatent; }
  int64_t slot(int64_t page, int64_t token) const { return page * page_size() + token; }
};

/// A pool of two KV heads (a latent one has one).
class CacheWorld : public LaunchWorld {
 public:
  static constexpr int32_t kKvHeads = 2, kDimQk = 16, kDimVo = 8;

  explicit CacheWorld(const CacheForm& form) : cache_form(form) {
    const int64_t pages = form.pages, size = form.page_size();
    const auto plane = [&](int64_t dim) -> std::vector<int64_t> {
      if (form.latent()) return {pages, size, dim};
      if (form.layout == Layout::kHnd) return {pages, kKvHeads, size, dim};
      return {pages, size, kKvHeads, dim};
    };
    if (form.layout == Layout::kPanels) {
      // A panel's elements are its 16 tokens': each is a granule.
      k = bind("k", form.dtype, {pages, kKvHeads, 1, key_panel_elements(form.dtype, kDimQk)});
      v = bind("v", form.dtype, {pages, kKvHeads, 1, value_panel_elements(kDimVo)});
    } else {
      k = bind("k", form.dtype, plane(kDimQk), kDimQk);
      if (!form.latent()) v = bind("v", form.dtype, plane(kDimVo), kDimVo);
    }
    if (!form.int8()) return;
    k_scales = bind("k_scales", DType::kF32, {pages, size, kKvHeads});
    v_scales = bind("v_scales", DType::kF32, {pages, size, kKvHeads});
  }

  KvCache cache() const {
    return cache_form.int8() ? laid_out().with_scales(k_scales.view(), v_scales.view())
                             : laid_out();
  }
  /// All buffers of the pool that are bound.
  std::vector<const Buffer*> planes() const {
    std::vector<const Buffer*> bound;
    for (const Buffer* b : {&k, &v, &k_scales, &v_scales})
      if (b->data != nullptr) bound.push_back(b);
    return bound;
  }
  /// Their bytes, one after the other.
  Bytes contents() {
    Bytes all;
    for (const Buffer* b : planes()) {
      const Bytes one = bytes(*b);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  const CacheForm cache_form;
  Buffer k, v, k_scales, v_scales;

 private:
  KvCache laid_out() const {
    switch (cache_form.layout) {
      case Layout::kNhd: break;
      case Layout::kHnd: return KvCache::hnd(k.view(), v.view());
      case Layout::kPanels: return KvCache::panels(k.view(), v.view(), kDimQk, kDimVo);
      case Layout::kLatent: return KvCache::mla_latent(k.view(), kDimVo);
    }
    return KvCache::nhd(k.view(), v.view());
  }
};

/// test(form) for these layouts, in floats and in int8 where that is one.
template <class Test>
void for_each_form(std::initializer_list<Layout> layouts, Test test) {
  for (const Layout layout : layouts) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      if (layout == Layout::kLatent && dtype == DType::kI8) continue;
      SCOPED_TRACE(std::to_string(static_cast<int>(layout)) + " " + std::string(name_of(dtype)));
      test(CacheForm{layout, dtype});
    }
  }
}

}  // namespace shadowgraph
