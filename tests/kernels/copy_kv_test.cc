// copy_kv: every element of every token arrives with its bits, whatever the two layouts, and
// nothing else changes.
#include "kernels/cache/copy_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/choices.h"

namespace shadowgraph::copy_kv_test {
namespace {

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                            DType::kE4M3, DType::kE5M2, DType::kI8};

enum class Layout { kNhd, kHnd, kStackedNhd, kStackedHnd, kPanels };
constexpr Layout kLayouts[] = {Layout::kNhd, Layout::kHnd, Layout::kStackedNhd, Layout::kStackedHnd,
                               Layout::kPanels};

constexpr int64_t kPageSize = 32, kHeads = 3;

/// A pool that owns its memory, full of one byte.
struct Pool {
  std::vector<std::byte> k, v;
  std::vector<float> k_scales, v_scales;
  KvCache cache;

  Pool(Layout layout, DType t, int64_t pages, int64_t dim_k, int64_t dim_v, std::byte fill) {
    const int64_t p = pages, s = kPageSize, h = kHeads;
    const auto plane = [&](std::vector<std::byte>& memory, std::initializer_list<int64_t> shape) {
      TensorView view(nullptr, t, shape);
      memory.assign(static_cast<size_t>(view.numel()) * size_of(t), fill);
      view.data = memory.data();
      return view;
    };
    switch (layout) {
      case Layout::kNhd:
        cache = KvCache::nhd(plane(k, {p, s, h, dim_k}), plane(v, {p, s, h, dim_v}));
        break;
      case Layout::kHnd:
        cache = KvCache::hnd(plane(k, {p, h, s, dim_k}), plane(v, {p, h, s, dim_v}));
        break;
      case Layout::kStackedNhd: cache = KvCache::stacked_nhd(plane(k, {p, 2, s, h, dim_k})); break;
      case Layout::kStackedHnd: cache = KvCache::stacked_hnd(plane(k, {p, 2, h, s, dim_k})); break;
      case Layout::kPanels:
        cache = KvCache::panels(
            plane(k, {p, h, s / 16, key_panel_elements(t, static_cast<int32_t>(dim_k))}),
            plane(v, {p, h, s / 16, value_panel_elements(static_cast<int32_t>(dim_v))}),
            static_cast<int32_t>(dim_k), static_cast<int32_t>(dim_v));
    }
    if (t == DType::kI8) lay_scales(layout);
  }
  /// Tokens or heads outermost, as the layout has them.
  void lay_scales(Layout layout) {
    const int64_t p = cache.num_pages, s = kPageSize, h = kHeads;
    const auto scales = [&](std::vector<float>& memory) {
      memory.assign(static_cast<size_t>(p * s * h), std::numeric_limits<float>::quiet_NaN());
      const bool by_tokens = layout == Layout::kNhd || layout == Layout::kStackedNhd;
      return TensorView(memory.data(), DType::kF32, {p, s, h},
                        {s * h, by_tokens ? h : 1, by_tokens ? 1 : s});
    };
    cache = cache.with_scales(scales(k_scales), scales(v_scales));
  }

  std::byte* at(bool key, int64_t page, int64_t token, int64_t head, int64_t dim) const {
    const KvPlane& p = key ? cache.k : cache.v;
    return p.data + p.offset(page, token, head, dim) * static_cast<int64_t>(size_of(p.dtype));
  }
  /// visit(address) for every element of a page; in i8, for every byte of its scales too.
  template <class Visit>
  void for_each(bool key, int64_t page, const Visit& visit) const {
    const KvPlane& plane = key ? cache.k : cache.v;
    for (int64_t token = 0; token < kPageSize; ++token) {
      for (int64_t head = 0; head < kHeads; ++head) {
        for (int64_t d = 0; d < plane.head_dim; ++d) visit(at(key, page, token, head, d));
        if (plane.scales == nullptr) continue;
        auto* scale =
            reinterpret_cast<std::byte*>(plane.scales + plane.scale_offset(page, token, head));
        for (size_t i = 0; i < sizeof(float); ++i) visit(scale + i);
      }
    }
  }
  void randomise(uint64_t seed) const {
    Rng rng(seed);
    for (int64_t page = 0; page < cache.num_pages; ++page) {
      for (const bool key : {true, false}) {
        for_each(key, page, [&](std::byte* p) {
          for (size_t i = 0; i < size_of(cache.k.dtype); ++i)
            p[i] = static_cast<std::byte>(rng.below(256));
        });
      }
    }
  }
  /// The bits of a page in logical order.
  std::vector<std::byte> page(int64_t number) const {
    std::vector<std::byte> all;
    for (const bool key : {true, false}) {
      for_each(key, number,
               [&](const std::byte* p) { all.insert(all.end(), p, p + size_of(cache.k.dtype)); });
    }
    return all;
  }
};

TEST(CopyKv, EveryLayoutToEveryLayoutKeepsTheBits) {
  for (const DType t : kTypes) {
    for (const Layout from : kLayouts) {
      for (const Layout to : kLayouts) {
        Pool source(from, t, 2, 70, 70, std::byte{0}), target(to, t, 2, 70, 70, std::byte{0});
        source.randomise(1);
        CopyKv call{.source = source.cache, .target = target.cache, .whole_pool = true};
        ASSERT_EQ(copy_kv(call).to_string(), "ok");
        for (int64_t page = 0; page < 2; ++page) EXPECT_EQ(source.page(page), target.page(page));
      }
    }
  }
}

TEST(CopyKv, NhdToPanelsToHndIsTheSamePool) {
  for (const DType t : kTypes) {
    for (const int64_t dim_k : {1, 5, 16, 63, 128, 192}) {
      for (const int64_t dim_v : {1, 16, 65, 80, 128}) {
        Pool nhd(Layout::kNhd, t, 3, dim_k, dim_v, std::byte{0});
        Pool panels(Layout::kPanels, t, 3, dim_k, dim_v, std::byte{0xff});
        Pool hnd(Layout::kHnd, t, 3, dim_k, dim_v, std::byte{0});
        nhd.randomise(2);
        CopyKv in{.source = nhd.cache, .target = panels.cache, .whole_pool = true};
        CopyKv out{.source = panels.cache, .target = hnd.cache, .whole_pool = true};
        ASSERT_EQ(copy_kv(in).to_string(), "ok");
        ASSERT_EQ(copy_kv(out).to_string(), "ok");
        for (int64_t page = 0; page < 3; ++page) EXPECT_EQ(nhd.page(page), hnd.page(page));
      }
    }
  }
}

TEST(CopyKv, ListedPagesGoWhereTheListSaysAndNothingElseChanges) {
  for (const Layout to : kLayouts) {
    const Pool source(Layout::kPanels, DType::kBF16, 3, 5, 5, std::byte{0xff});
    Pool target(to, DType::kBF16, 5, 5, 5, std::byte{0xff});
    source.randomise(3);
    const std::vector<int32_t> from = {2, 0, 2}, into = {1, 4, 0};
    CopyKv call{
        .source = source.cache, .target = target.cache, .source_pages = from, .target_pages = into};
    ASSERT_EQ(copy_kv(call).to_string(), "ok");
    for (size_t i = 0; i < from.size(); ++i) EXPECT_EQ(target.page(into[i]), source.page(from[i]));
    // What was copied becomes poison: then everything is, padding and other pages included.
    for (const int32_t page : into) {
      for (const bool key : {true, false})
        target.for_each(key, page, [](std::byte* p) { p[0] = p[1] = std::byte{0xff}; });
    }
    const auto poison = [](std::byte b) { return b == std::byte{0xff}; };
    EXPECT_TRUE(std::ranges::all_of(target.k, poison));
    EXPECT_TRUE(std::ranges::all_of(target.v, poison));
  }
}

TEST(CopyKv, ScalesOfOtherPagesDoNotChange) {
  const Pool source(Layout::kHnd, DType::kI8, 3, 5, 5, std::byte{0});
  const Pool target(Layout::kPanels, DType::kI8, 4, 5, 5, std::byte{0});
  source.randomise(5);
  const std::vector<int32_t> from = {2}, into = {1};
  ASSERT_TRUE(copy_kv({.source = source.cache,
                       .target = target.cache,
                       .source_pages = from,
                       .target_pages = into})
                  .ok());
  EXPECT_EQ(target.page(1), source.page(2));
  constexpr size_t kPageScales = kPageSize * kHeads;
  for (const std::vector<float>* scales : {&target.k_scales, &target.v_scales}) {
    for (size_t i = 0; i < scales->size(); ++i)
      EXPECT_TRUE(i / kPageScales == 1 || std::isnan((*scales)[i])) << i;
  }
}

TEST(CopyKv, NoPagesAreNoPages) {
  Pool source(Layout::kNhd, DType::kF32, 2, 4, 4, std::byte{1});
  Pool target(Layout::kPanels, DType::kF32, 2, 4, 4, std::byte{2});
  const std::vector<std::byte> k = target.k;
  CopyKv call{.source = source.cache, .target = target.cache};
  ASSERT_EQ(copy_kv(call).to_string(), "ok");
  EXPECT_EQ(target.k, k);
}

TEST(CopyKv, ThreadsDoNotMatter) {
  const Pool source(Layout::kHnd, DType::kE4M3, 7, 33, 20, std::byte{0});
  source.randomise(4);
  Pool one(Layout::kPanels, DType::kE4M3, 7, 33, 20, std::byte{9});
  Pool many(Layout::kPanels, DType::kE4M3, 7, 33, 20, std::byte{9});
  CopyKv call{.source = source.cache, .target = one.cache, .whole_pool = true};
  call.options.num_threads = 1;
  ASSERT_EQ(copy_kv(call).to_string(), "ok");
  call.target = many.cache;
  call.options.num_threads = 5;
  ASSERT_EQ(copy_kv(call).to_string(), "ok");
  EXPECT_EQ(one.k, many.k);
  EXPECT_EQ(one.v, many.v);
}

}  // namespace
}  // namespace shadowgraph::copy_kv_test
