// What validate() says of calls that write a cache: each law is raised by an input that breaks it,
// and a refused call writes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "attn/finding_ids.h"
#include "attn/validate/validate.h"

namespace shadowgraph::validate_kv_test {
namespace {

const float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::byte kMark{0xff};

/// 3 tokens for a pool of 4 pages of 2 tokens, 1 head; in i8 the scales of K and V are halves of
/// one tensor.
struct Stores {
  std::vector<float> k = std::vector<float>(3 * 2, 1), v = k;
  std::vector<float> scales = std::vector<float>(4 * 2 * 2, 9);
  std::vector<std::byte> cache;
  std::vector<int64_t> slots = {5, -1, 0};
  StoreKv call;
  explicit Stores(DType t) : cache(4 * 2 * 2 * 2 * size_of(t), kMark) {
    call.k = ConstTensorView(k.data(), DType::kF32, {3, 1, 2});
    call.v = ConstTensorView(v.data(), DType::kF32, {3, 1, 2});
    call.out_cache_loc = slots;
    call.cache = KvCache::stacked_nhd(TensorView(cache.data(), t, {4, 2, 2, 1, 2}));
    if (t == DType::kI8) call.cache = call.cache.with_scales(half(0), half(1));
  }
  TensorView half(size_t which) {
    return {scales.data() + 2 * which, DType::kF32, {4, 2, 1}, {4, 1, 1}};
  }
};

void expect_store(const Ids& expected, const std::function<void(Stores&)>& plant,
                  DType t = DType::kF32) {
  Stores s(t);
  plant(s);
  EXPECT_EQ(ids(validate(s.call)), expected);
  EXPECT_EQ(ids(store_kv(s.call)), expected);
  EXPECT_EQ(s.cache == Stores(t).cache, !expected.empty());
  // No scale of another type is ever written.
  EXPECT_EQ(s.scales == Stores(t).scales, t != DType::kI8 || !expected.empty());
}
void expect_int8(const Ids& expected, const std::function<void(Stores&)>& plant) {
  expect_store(expected, plant, DType::kI8);
}

TEST(Validate, SlotsLieInThePoolAndAreWrittenOnce) {
  expect_store({}, [](Stores&) {});
  expect_store({}, [](Stores& s) { s.slots = {-1, -1, 7}; });
  expect_store({"slot.range out_cache_loc"}, [](Stores& s) { s.slots[1] = 8; });
  expect_store({"slot.range out_cache_loc"}, [](Stores& s) { s.slots[1] = INT64_MAX; });
  expect_store({"slot.duplicate out_cache_loc"}, [](Stores& s) { s.slots[2] = 5; });
  expect_store({"slot.duplicate out_cache_loc", "slot.duplicate out_cache_loc"}, [](Stores& s) {
    s.slots = {3, 3, 3}, s.call.out_cache_loc = s.slots;
  });
}

TEST(Validate, StoresAgreeWithTheirCache) {
  expect_store({"input.shape k.shape"}, [](Stores& s) { s.call.k.shape[0] = 2; });
  expect_store({"input.shape v.shape"}, [](Stores& s) { s.call.v.shape[2] = 1; });
  expect_store({"input.dtype k.dtype"}, [](Stores& s) { s.call.k.dtype = DType::kE4M3; });
  expect_store({"param.scale k_scale"}, [](Stores& s) { s.call.cache.k_scale = kNaN; });
  expect_store({"input.shape cache"}, [](Stores& s) { s.call.cache = KvCache(); });
}

TEST(Validate, StoredPlanesDoNotOverlap) {
  expect_store({"input.stride k_cache.stride", "input.stride v_cache.stride"},
               [](Stores& s) { s.call.cache.k.token_stride = s.call.cache.v.token_stride = 1; });
  expect_store({"input.alias v_cache"},
               [](Stores& s) { s.call.cache.v.data = s.call.cache.k.data; });
  // K and V of a stacked pool lie between each other.
  expect_store({"input.alias k_cache", "input.alias v_cache"},
               [](Stores& s) { s.call.k.data = s.call.cache.v.data; });
}

/// A pool of panels: 3 pages of 32 tokens, 2 heads, K of 5 and V of 20 elements in bf16. Far from
/// all else, so that a plane planted on the other one meets nothing more.
struct Panels {
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
  KvCache cache = KvCache::panels(
      TensorView(memory.data() + (1 << 14), DType::kBF16, {3, 2, 2, 16 * 6}),
      TensorView(memory.data() + (3 << 14), DType::kBF16, {3, 2, 2, 16 * 32}), 5, 20);
};

/// Stores one token into a pool of panels.
void expect_panels(const Ids& expected, const std::function<void(KvCache&)>& plant) {
  Panels p;
  const std::vector<float> k(2 * 5), v(2 * 20);
  const std::vector<int64_t> slots = {33};
  StoreKv call;
  call.cache = p.cache;
  plant(call.cache);
  call.k = ConstTensorView(k.data(), DType::kF32, {1, 2, 5});
  call.v = ConstTensorView(v.data(), DType::kF32, {1, 2, 20});
  call.out_cache_loc = slots;
  EXPECT_EQ(ids(store_kv(call)), expected);
}

TEST(Validate, PanelsAreKeysThenValuesInWholePanels) {
  expect_panels({}, [](KvCache&) {});
  const Ids mixed = {"input.shape cache.order"};
  expect_panels(mixed, [](KvCache& c) { c.v.order = KvOrder::kStrided; });
  expect_panels(mixed, [](KvCache& c) { c.k.order = KvOrder::kStrided; });
  expect_panels(mixed, [](KvCache& c) { std::swap(c.k.order, c.v.order); });
  expect_panels(mixed, [](KvCache& c) { c.v.order = KvOrder::kKeyPanels; });
  expect_panels(mixed, [](KvCache& c) { c.k.order = static_cast<KvOrder>(9); });
  expect_panels({"input.shape cache.page_size"}, [](KvCache& c) { c.page_size = 24; });
  expect_panels(
      {"input.shape cache.order", "input.shape cache.page_size", "param.head_dim k_cache head_dim"},
      [](KvCache& c) { c.k.order = KvOrder::kStrided, c.page_size = 1, c.k.head_dim = 0; });
}

TEST(Validate, PanelsDoNotOverlap) {
  // A stride that steps over the dims, but not over the padding.
  expect_panels({"input.stride k_cache.stride"}, [](KvCache& c) { c.k.token_stride = 16 * 5; });
  expect_panels({"input.stride v_cache.stride"}, [](KvCache& c) { c.v.token_stride = 16 * 20; });
  expect_panels({"input.stride v_cache.stride"}, [](KvCache& c) { c.v.head_stride = 512; });
  expect_panels({"input.alias v_cache"}, [](KvCache& c) { c.v.data = c.k.data + 2; });
  expect_panels({"input.alias v_cache"}, [](KvCache& c) {
    // Its last panel begins where the pool of keys ends, less the padding.
    c.v.data = c.k.data + (3 * 2 * 2 * 16 * 6 - 1) * 2;
  });
  expect_panels({"input.overflow k_cache"}, [](KvCache& c) { c.k.page_stride = INT64_MAX; });
  expect_panels({"input.null v_cache.data"}, [](KvCache& c) { c.v.data = nullptr; });
}

TEST(Validate, Int8AndOnlyInt8HasScales) {
  expect_int8({}, [](Stores&) {});
  expect_int8({"input.null k_cache.scales.data"},
              [](Stores& s) { s.call.cache.k.scales = nullptr; });
  expect_int8({"input.null k_cache.scales.data", "input.null v_cache.scales.data"},
              [](Stores& s) { s.call.cache.k.scales = s.call.cache.v.scales = nullptr; });
  expect_int8({"input.dtype k_cache.dtype"},
              [](Stores& s) { s.call.cache.k.dtype = DType::kE4M3; });
  expect_int8({"input.dtype k_cache.dtype", "input.null v_cache.data"}, [](Stores& s) {
    s.call.cache.k.dtype = DType::kE4M3, s.call.cache.v.data = nullptr;
  });
  expect_int8({"input.dtype k_cache.dtype", "input.dtype v_cache.dtype"},
              [](Stores& s) { s.call.cache.k.dtype = s.call.cache.v.dtype = DType::kU8; });
  expect_int8({"input.shape cache"}, [](Stores& s) {
    s.call.cache =
        s.call.cache.with_scales(s.half(0), TensorView(s.scales.data(), DType::kF32, {8}));
  });
  // Without keys or values no scale is needed.
  expect_store({}, [](Stores& s) { s.call.cache.k.scale_page_stride = INT64_MAX; });
}

TEST(Validate, ScalesThatAreWrittenDoNotOverlap) {
  expect_int8({"input.stride k_cache.scales.stride"},
              [](Stores& s) { s.call.cache.k.scale_token_stride = 0; });
  expect_int8({"input.overflow v_cache.scales"},
              [](Stores& s) { s.call.cache.v.scale_page_stride = INT64_MIN; });
  expect_int8({"input.alias v_cache.scales"},
              [](Stores& s) { s.call.cache.v.scales = s.call.cache.k.scales; });
  expect_int8({"input.alias v_cache.scales"},
              [](Stores& s) { s.call.cache.v.scales = s.call.cache.k.scales + 1; });
  expect_int8({"input.alias k_cache.scales", "input.alias k_cache.scales"}, [](Stores& s) {
    s.call.cache.k.scales = reinterpret_cast<float*>(s.cache.data());
    s.call.cache.k.scale_page_stride = 2;
  });
  expect_int8({"input.alias k_cache.scales", "input.alias v_cache.scales"}, [](Stores& s) {
    s.call.k.data = reinterpret_cast<const std::byte*>(s.scales.data() + 2);
  });
}

TEST(Validate, StackedPanelsLieBetweenEachOther) {
  std::vector<std::byte> memory(2 * 2 * 2 * 256 * 2);
  const auto half = [&](int64_t which) {
    return TensorView(memory.data() + which * 2 * 256 * 2, DType::kF16, {2, 2, 1, 256},
                      {4 * 256, 256, 256, 1});
  };
  const std::vector<float> rows(2 * 16);
  const std::vector<int64_t> slots = {31};
  StoreKv call;
  call.cache = KvCache::panels(half(0), half(1), 16, 16);
  call.k = call.v = ConstTensorView(rows.data(), DType::kF32, {1, 2, 16});
  call.out_cache_loc = slots;
  EXPECT_EQ(ids(store_kv(call)), Ids{});
}

/// A copy from a pool of panels to an NHD one, page 2 to 0 and 0 to 3.
struct Copies {
  Panels panels;
  std::vector<std::byte> k = std::vector<std::byte>(4 * 32 * 2 * 5 * 2, kMark),
                         v = std::vector<std::byte>(4 * 32 * 2 * 20 * 2, kMark);
  std::vector<int32_t> from = {2, 0}, to = {0, 3};
  CopyKv call;
  Copies() {
    call.source = panels.cache;
    call.target = KvCache::nhd(TensorView(k.data(), DType::kBF16, {4, 32, 2, 5}),
                               TensorView(v.data(), DType::kBF16, {4, 32, 2, 20}));
    call.source_pages = from, call.target_pages = to;
  }
};

void expect_copy(const Ids& expected, const std::function<void(Copies&)>& plant) {
  Copies c;
  plant(c);
  EXPECT_EQ(ids(validate(c.call)), expected);
  EXPECT_EQ(ids(copy_kv(c.call)), expected);
  const auto marked = [](std::byte b) { return b == kMark; };
  const bool untouched = std::ranges::all_of(c.k, marked) && std::ranges::all_of(c.v, marked);
  EXPECT_EQ(untouched, !expected.empty());
}

TEST(Validate, CopiedPoolsHoldTheSameTokens) {
  expect_copy({}, [](Copies&) {});
  expect_copy({"input.shape target page_size"}, [](Copies& c) { c.call.target.page_size = 16; });
  expect_copy({"input.shape target num_kv_heads"},
              [](Copies& c) { c.call.target.num_kv_heads = 1; });
  expect_copy({"input.shape target k_cache head_dim", "input.shape target v_cache head_dim"},
              [](Copies& c) { c.call.target.k.head_dim = 4, c.call.target.v.head_dim = 19; });
  expect_copy({"input.dtype target v_cache.dtype"},
              [](Copies& c) { c.call.target.v.dtype = DType::kF16; });
  expect_copy({"param.scale target k_scale"}, [](Copies& c) { c.call.target.k_scale = 2; });
  expect_copy({"param.scale source v_scale", "param.scale target v_scale"},
              [](Copies& c) { c.call.source.v_scale = 0; });
  expect_copy({"input.shape source cache", "input.shape target cache"},
              [](Copies& c) { c.call.source = c.call.target = KvCache(); });
  expect_copy({"input.shape source cache.order"},
              [](Copies& c) { c.call.source.v.order = KvOrder::kStrided; });
}

TEST(Validate, CopiedScalesShareNoMemory) {
  std::vector<std::byte> memory(2 * 8);
  std::vector<float> scales(2 * 8);
  const auto pool = [&](size_t which) {
    const TensorView plane(memory.data() + 8 * which, DType::kI8, {1, 4, 1, 1});
    TensorView values = plane;
    values.data += 4;
    return KvCache::nhd(plane, values)
        .with_scales(TensorView(scales.data() + 8 * which, DType::kF32, {1, 4, 1}),
                     TensorView(scales.data() + 8 * which + 4, DType::kF32, {1, 4, 1}));
  };
  CopyKv call{.source = pool(0), .target = pool(1), .whole_pool = true};
  EXPECT_EQ(ids(copy_kv(call)), Ids{});
  call.target.v.scales = call.source.k.scales;
  EXPECT_EQ(ids(copy_kv(call)), Ids{"input.alias target v_cache.scales"});
  call.target.v.scales = nullptr;
  EXPECT_EQ(ids(copy_kv(call)), Ids{"input.null target v_cache.scales.data"});
}

TEST(Validate, CopiedPagesLieInTheirPools) {
  expect_copy({"table.page_id source_pages", "table.page_id target_pages"}, [](Copies& c) {
    c.from[0] = 3;
    c.to[1] = 4;
  });
  expect_copy({"table.page_id source_pages", "table.page_id target_pages"}, [](Copies& c) {
    c.from[0] = -1;
    c.to[1] = INT32_MIN;
  });
  expect_copy({"slot.duplicate target_pages"}, [](Copies& c) { c.to = {3, 3}; });
  expect_copy({}, [](Copies& c) { c.from = {1, 1}; });
  expect_copy({"input.shape target_pages"},
              [](Copies& c) { c.call.target_pages = std::span<const int32_t>(c.to).first(1); });
  expect_copy({"input.null source_pages"}, [](Copies& c) {
    c.call.source_pages = {static_cast<const int32_t*>(nullptr), 2};
  });
}

TEST(Validate, AWholePoolHasNoLists) {
  expect_copy(
      {"input.shape target_pages", "input.shape source_pages", "input.shape target num_pages"},
      [](Copies& c) { c.call.whole_pool = true; });
  expect_copy({"input.shape target num_pages"}, [](Copies& c) {
    c.call.whole_pool = true;
    c.call.source_pages = c.call.target_pages = {};
  });
  expect_copy({}, [](Copies& c) {
    c.call.whole_pool = true;
    c.call.source_pages = c.call.target_pages = {};
    c.call.target.num_pages = 3;
  });
}

TEST(Validate, CopiedPoolsShareNoMemory) {
  expect_copy({"input.alias target k_cache"},
              [](Copies& c) { c.call.source.k.data = c.call.target.k.data; });
  Copies same;
  same.call.source = same.call.target;
  EXPECT_EQ(ids(copy_kv(same.call)),
            (Ids{"input.alias target k_cache", "input.alias target v_cache"}));
}

}  // namespace
}  // namespace shadowgraph::validate_kv_test
