#include "kernels/cache/store_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/float_formats.h"

namespace shadowgraph::store_kv_test {
namespace {

const float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr DType kStored[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};
constexpr DType kGiven[] = {DType::kF32, DType::kF16, DType::kBF16};

enum class Layout { kNhd, kHnd, kPanels };
constexpr Layout kLayouts[] = {Layout::kNhd, Layout::kHnd, Layout::kPanels};

/// Tokens, and a cache of 4 pages of 3 tokens (panels: 32), 2 heads, K of 5 and V of 4 elements
/// (panels: of 70, which is more than a block); the cache is poison, the scales of i8 too.
struct Store {
  const int64_t page_size, dim_v;
  std::vector<std::byte> k_from, v_from, k_to, v_to;
  std::vector<float> k_scales, v_scales;
  std::vector<int64_t> slots;
  StoreKv call;

  Store(DType from, DType to, std::vector<int64_t> slots_of_tokens, Layout layout = Layout::kNhd)
      : page_size(layout == Layout::kPanels ? 32 : 3),
        dim_v(layout == Layout::kPanels ? 70 : 4),
        slots(std::move(slots_of_tokens)) {
    const auto n = static_cast<int64_t>(slots.size());
    k_from.resize(static_cast<size_t>(n * 10) * size_of(from));
    v_from.resize(static_cast<size_t>(n * 2 * dim_v) * size_of(from));
    call.k = ConstTensorView(k_from.data(), from, {n, 2, 5});
    call.v = ConstTensorView(v_from.data(), from, {n, 2, dim_v});
    for (int64_t i = 0; i < call.k.numel(); ++i)
      store_float(k_from.data(), from, i, static_cast<float>(i % 9));
    for (int64_t i = 0; i < call.v.numel(); ++i)
      store_float(v_from.data(), from, i, static_cast<float>(-(i % 9)));
    call.out_cache_loc = slots;
    lay_cache(to, layout);
  }
  void lay_cache(DType to, Layout layout) {
    const auto plane = [&](std::vector<std::byte>& memory, std::initializer_list<int64_t> shape) {
      TensorView t(nullptr, to, shape);
      memory.assign(static_cast<size_t>(t.numel()) * size_of(to), std::byte{0xff});
      t.data = memory.data();
      return t;
    };
    switch (layout) {
      case Layout::kNhd:
        call.cache = KvCache::nhd(plane(k_to, {4, 3, 2, 5}), plane(v_to, {4, 3, 2, 4}));
        break;
      case Layout::kHnd:
        call.cache = KvCache::hnd(plane(k_to, {4, 2, 3, 5}), plane(v_to, {4, 2, 3, 4}));
        break;
      case Layout::kPanels:
        call.cache = KvCache::panels(plane(k_to, {4, 2, 2, key_panel_elements(to, 5)}),
                                     plane(v_to, {4, 2, 2, value_panel_elements(70)}), 5, 70);
    }
    if (to != DType::kI8) return;
    k_scales.assign(static_cast<size_t>(4 * page_size * 2), kNaN);
    v_scales = k_scales;
    const TensorView of_keys(k_scales.data(), DType::kF32, {4, page_size, 2});
    const TensorView of_values(v_scales.data(), DType::kF32, {4, page_size, 2},
                               {2 * page_size, 1, page_size});
    call.cache = call.cache.with_scales(of_keys, of_values);
  }
  float stored_k(int64_t page, int64_t token, int64_t head, int64_t d) const {
    return load_float(k_to.data(), call.cache.k.dtype, call.cache.k.offset(page, token, head, d));
  }
  float stored_v(int64_t page, int64_t token, int64_t head, int64_t d) const {
    return load_float(v_to.data(), call.cache.v.dtype, call.cache.v.offset(page, token, head, d));
  }
  float scale(bool k, int64_t page, int64_t token, int64_t head) const {
    const KvPlane& p = k ? call.cache.k : call.cache.v;
    return p.scales[p.scale_offset(page, token, head)];
  }
  /// Elements of K of token 0, head 0.
  void give_k(std::initializer_list<float> values) {
    int64_t i = 0;
    for (const float x : values) store_float(k_from.data(), call.k.dtype, i++, x);
  }
  /// The slot holds that token, or poison (-1).
  void expect_slot(int64_t slot, int64_t token) const {
    const auto same = [&](float got, int64_t expected) {
      return token < 0 ? std::isnan(got) : got == static_cast<float>(expected);
    };
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t d = 0; d < 5; ++d) {
        const float got = stored_k(slot / page_size, slot % page_size, head, d);
        EXPECT_TRUE(same(got, (token * 10 + head * 5 + d) % 9))
            << "slot " << slot << " holds " << got;
      }
      for (int64_t d = 0; d < dim_v; ++d) {
        const float got = stored_v(slot / page_size, slot % page_size, head, d);
        EXPECT_TRUE(same(got, -((token * 2 * dim_v + head * dim_v + d) % 9)))
            << "slot " << slot << " holds " << got;
      }
    }
  }
};

TEST(StoreKv, EveryTokenGoesIntoItsSlotAndNothingElseChanges) {
  for (const DType from : kGiven) {
    for (const DType to : kStored) {
      for (const Layout layout : kLayouts) {
        Store s(from, to, {7, -1, 0, 11, 5}, layout);
        if (layout == Layout::kPanels) s.slots[2] = 127, s.slots[3] = 16;
        ASSERT_EQ(store_kv(s.call).to_string(), "ok");
        for (int64_t slot = 0; slot < s.call.cache.num_slots(); ++slot) {
          const auto token = std::find(s.slots.begin(), s.slots.end(), slot) - s.slots.begin();
          s.expect_slot(slot, token == 5 ? -1 : token);
        }
      }
    }
  }
}

TEST(StoreKv, NegativeSlotsDropTheToken) {
  Store s(DType::kF32, DType::kF16, {-1, -5, INT64_MIN});
  ASSERT_EQ(store_kv(s.call).to_string(), "ok");
  for (std::byte b : s.k_to) EXPECT_EQ(b, std::byte{0xff});
  for (std::byte b : s.v_to) EXPECT_EQ(b, std::byte{0xff});
}

TEST(StoreKv, BitsAreKeptWhereTypesAgree) {
  Store s(DType::kBF16, DType::kBF16, {4});
  for (size_t i = 0; i < s.k_from.size(); ++i)
    s.k_from[i] = static_cast<std::byte>(251 * i + 3);  // NaNs among them
  ASSERT_EQ(store_kv(s.call).to_string(), "ok");
  const auto* stored = s.k_to.data() + s.call.cache.k.offset(1, 1, 0, 0) * 2;
  EXPECT_TRUE(std::equal(s.k_from.begin(), s.k_from.end(), stored));
}

TEST(StoreKv, BitsAreKeptInPanels) {
  for (const DType type : kGiven) {
    Store s(type, type, {4, 35}, Layout::kPanels);
    for (size_t i = 0; i < s.v_from.size(); ++i)
      s.v_from[i] = static_cast<std::byte>(251 * i + 3);  // NaNs among them
    ASSERT_EQ(store_kv(s.call).to_string(), "ok");
    const size_t size = size_of(type);
    for (int64_t token = 0; token < 2; ++token) {
      for (int64_t d = 0; d < 70; ++d) {
        const int64_t at = s.call.cache.v.offset(token, token == 0 ? 4 : 3, 1, d);
        EXPECT_EQ(std::memcmp(s.v_to.data() + static_cast<size_t>(at) * size,
                              s.call.v.at(token, 1, d), size),
                  0)
            << token << " " << d;
      }
    }
  }
}

TEST(StoreKv, NarrowerTypesRoundToNearestEven) {
  for (const DType to : kStored) {
    if (to == DType::kF32) continue;
    Store s(DType::kF32, to, {0});
    const float values[] = {1 / 3.f, 1 + 0x1p-4f, 1 + 0x3p-4f, 1 + 0x3p-11f, -1 - 0x3p-8f};
    for (int64_t i = 0; i < 5; ++i) store_float(s.k_from.data(), DType::kF32, i, values[i]);
    ASSERT_EQ(store_kv(s.call).to_string(), "ok");
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(s.stored_k(0, 0, 0, i),
                decode_float(encode_float(values[i], format_of(to)), format_of(to)));
    }
  }
}

TEST(StoreKv, Fp8HoldsTheValueOverTheScaleSaturated) {
  for (auto [to, largest] : {std::pair{DType::kE4M3, 448.f}, {DType::kE5M2, 57344.f}}) {
    Store s(DType::kF32, to, {2});
    s.call.cache.k_scale = 0.5f;
    s.call.cache.v_scale = 4;
    const float inf = std::numeric_limits<float>::infinity();
    const float values[] = {3, 1e9f, -1e9f, inf, std::numeric_limits<float>::quiet_NaN()};
    for (int64_t i = 0; i < 5; ++i) store_float(s.k_from.data(), DType::kF32, i, values[i]);
    store_float(s.v_from.data(), DType::kF32, 0, 8);
    ASSERT_EQ(store_kv(s.call).to_string(), "ok");
    EXPECT_EQ(s.stored_k(0, 2, 0, 0), 6);
    EXPECT_EQ(s.stored_k(0, 2, 0, 1), largest);
    EXPECT_EQ(s.stored_k(0, 2, 0, 2), -largest);
    EXPECT_EQ(s.stored_k(0, 2, 0, 3), largest);
    EXPECT_TRUE(std::isnan(s.stored_k(0, 2, 0, 4)));
    EXPECT_EQ(s.stored_v(0, 2, 0, 0), 2);
  }
}

TEST(StoreKv, Int8KeepsCodesTimesScalesAndNothingElseChanges) {
  for (const DType from : kGiven) {
    for (const Layout layout : kLayouts) {
      Store s(from, DType::kI8, {7, -1, 0, 11, 5}, layout);
      if (layout == Layout::kPanels) s.slots[2] = 127, s.slots[3] = 16;
      s.call.cache.v_scale = 0.5f;
      // Exact in every type, in halves: the largest code of each row is 127 or -127.
      const auto code = [](int64_t token, int64_t head, int64_t d) {
        if (d == 3) return head == 0 ? 127.f : -127.f;
        return static_cast<float>((token * 31 + head * 17 + d * 7) % 120 - 60);
      };
      const auto scale = [](int64_t token, int64_t head) {
        return std::ldexp(1.f, static_cast<int>(token + head) - 2);
      };
      for (int64_t token = 0; token < 5; ++token) {
        for (int64_t head = 0; head < 2; ++head) {
          for (int64_t d = 0; d < 5; ++d)
            store_float(s.k_from.data(), from, s.call.k.offset(token, head, d),
                        code(token, head, d) * scale(token, head));
          for (int64_t d = 0; d < s.dim_v; ++d)
            store_float(s.v_from.data(), from, s.call.v.offset(token, head, d),
                        -code(token, head, d) * scale(token, head));
        }
      }
      ASSERT_EQ(store_kv(s.call).to_string(), "ok");
      for (int64_t slot = 0; slot < s.call.cache.num_slots(); ++slot) {
        const int64_t page = slot / s.page_size, in_page = slot % s.page_size;
        const auto token = std::find(s.slots.begin(), s.slots.end(), slot) - s.slots.begin();
        for (int64_t head = 0; head < 2; ++head) {
          const float k_scale = s.scale(true, page, in_page, head),
                      v_scale = s.scale(false, page, in_page, head);
          if (token == 5) {
            EXPECT_TRUE(std::isnan(k_scale) && std::isnan(v_scale)) << slot;
          } else {
            EXPECT_EQ(k_scale, scale(token, head));
            EXPECT_EQ(v_scale, scale(token, head) * 2) << "v_scale divides";
          }
          for (int64_t d = 0; d < 5; ++d)
            EXPECT_EQ(s.stored_k(page, in_page, head, d), token == 5 ? -1 : code(token, head, d));
          for (int64_t d = 0; d < s.dim_v; ++d)
            EXPECT_EQ(s.stored_v(page, in_page, head, d), token == 5 ? -1 : -code(token, head, d));
        }
      }
    }
  }
}

void expect_codes(const Store& s, float scale, std::initializer_list<float> codes) {
  EXPECT_EQ(s.scale(true, 0, 0, 0), scale);
  int64_t d = 0;
  for (const float code : codes) EXPECT_EQ(s.stored_k(0, 0, 0, d++), code) << d - 1;
}

TEST(StoreKv, Int8CodesRoundToNearestEven) {
  Store s(DType::kF32, DType::kI8, {0});
  s.give_k({127, 0.5f, 1.5f, -2.5f, -3.4999f});
  ASSERT_EQ(store_kv(s.call).to_string(), "ok");
  expect_codes(s, 1, {127, 0, 2, -2, -3});
  // The largest element has the largest code, whatever the rounding of the scale.
  s.give_k({-0.1f, 0.05f, 0, 0.0999f, 1e-9f});
  ASSERT_EQ(store_kv(s.call).to_string(), "ok");
  expect_codes(s, 0.1f / 127, {-127, 64, 0, 127, 0});
}

TEST(StoreKv, AnInt8TokenOfZerosHasScale0) {
  Store s(DType::kF32, DType::kI8, {0});
  s.give_k({0, -0.f, 0, 0, 0});
  ASSERT_EQ(store_kv(s.call).to_string(), "ok");
  expect_codes(s, 0, {0, 0, 0, 0, 0});
  // Nor can it be less: what 127 codes cannot tell from 0 is 0.
  s.give_k({60 * 0x1p-149f, 0, 0, 0, 0});
  ASSERT_EQ(store_kv(s.call).to_string(), "ok");
  expect_codes(s, 0, {0, 0, 0, 0, 0});
  s.give_k({190 * 0x1p-149f, -130 * 0x1p-149f, 5 * 0x1p-149f, 0, 0});
  ASSERT_EQ(store_kv(s.call).to_string(), "ok");
  expect_codes(s, 0x1p-149f, {127, -127, 5, 0, 0});
}

TEST(StoreKv, AnInt8TokenThatIsNotFiniteIsNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, kNaN, 3e38f}) {
    Store s(DType::kF32, DType::kI8, {0});
    s.call.cache.k_scale = 0.5f;
    s.give_k({1, 2, bad, 4, 5});
    ASSERT_EQ(store_kv(s.call).to_string(), "ok");
    EXPECT_TRUE(std::isnan(s.scale(true, 0, 0, 0))) << bad;
    for (int64_t d = 0; d < 5; ++d) EXPECT_EQ(s.stored_k(0, 0, 0, d), 0) << bad;
    EXPECT_FALSE(std::isnan(s.scale(true, 0, 0, 1))) << "the other head is as it was given";
    EXPECT_FALSE(std::isnan(s.scale(false, 0, 0, 0)));
  }
}

TEST(StoreKv, TokensOfThePaddingPageAreDroppedHoweverMany) {
  Store s(DType::kF32, DType::kF32, {0, 7, 2, 0, 3});
  s.call.first_slot = s.page_size;
  ASSERT_EQ(store_kv(s.call).to_string(), "ok");
  for (int64_t slot = 0; slot < s.call.cache.num_slots(); ++slot)
    s.expect_slot(slot, slot == 7 ? 1 : slot == 3 ? 4 : -1);
  s.call.first_slot = 0;
  EXPECT_NE(store_kv(s.call).to_string().find("slot.duplicate"), std::string::npos);
  s.call.first_slot = INT64_MIN;
  s.slots[3] = -1;
  EXPECT_EQ(store_kv(s.call).to_string(), "ok") << "a negative slot drops its token all the same";
}

TEST(StoreKv, ALatentIsStoredOnceAndItsValueWithIt) {
  for (const DType to : {DType::kF32, DType::kBF16, DType::kI8}) {
    std::vector<float> given(4 * 6), scales(3 * 4);
    for (size_t i = 0; i < given.size(); ++i)
      given[i] = i % 6 == 0 ? 127 : static_cast<float>(i % 5) - 2;
    std::vector<std::byte> pool(3 * 4 * 6 * size_of(to), std::byte{0x11});
    const std::vector<int64_t> slots = {5, 11, 1, 4};
    StoreKv call;
    call.k = ConstTensorView(given.data(), DType::kF32, {4, 1, 6});
    call.out_cache_loc = slots;
    call.cache = KvCache::mla_latent(TensorView(pool.data(), to, {3, 4, 6}), 4);
    if (to == DType::kI8) {
      const TensorView of_tokens(scales.data(), DType::kF32, {3, 4, 1});
      call.cache = call.cache.with_scales(of_tokens, of_tokens);
    }
    ASSERT_EQ(store_kv(call).to_string(), "ok") << "without v";
    const std::vector<std::byte> once = pool;
    for (size_t t = 0; t < slots.size(); ++t) {
      for (int64_t d = 0; d < 4; ++d) {
        EXPECT_EQ(load_float(pool.data(), to, call.cache.v.offset(0, slots[t], 0, d)),
                  given[t * 6 + static_cast<size_t>(d)]);
      }
      EXPECT_EQ(scales[static_cast<size_t>(slots[t])], to == DType::kI8 ? 1 : 0);
    }
    for (const AccessSpan& span : store_kv_footprint(call)) EXPECT_NE(span.buffer, nullptr);
    call.v = ConstTensorView(given.data(), DType::kF32, {4, 1, 4}, {6, 6, 1});
    ASSERT_EQ(store_kv(call).to_string(), "ok") << "with v, the beginning of k";
    EXPECT_EQ(pool, once);
    const std::vector<float> other(4 * 4, 9);
    call.v = ConstTensorView(other.data(), DType::kF32, {4, 1, 4});
    EXPECT_NE(store_kv(call).to_string().find("input.alias"), std::string::npos)
        << "values of their own have no place in it";
    EXPECT_EQ(pool, once);
  }
}

TEST(StoreKv, ThreadsDoNotMatter) {
  Store one(DType::kF32, DType::kBF16, {1, 3, 5, 7, 9, 11, 0}),
      many(DType::kF32, DType::kBF16, {1, 3, 5, 7, 9, 11, 0});
  one.call.options.num_threads = 1;
  many.call.options.num_threads = 5;
  ASSERT_EQ(store_kv(one.call).to_string(), "ok");
  ASSERT_EQ(store_kv(many.call).to_string(), "ok");
  EXPECT_EQ(one.k_to, many.k_to);
  EXPECT_EQ(one.v_to, many.v_to);
}

/// Elements of a buffer that the spans of that access hold, once each.
std::vector<char> marks(const Footprint& spans, const void* buffer, Access access, size_t count) {
  std::vector<char> all(count, 0);
  for (const AccessSpan& span : spans) {
    if (span.buffer != buffer || span.access != access) continue;
    for (int64_t i = 0; i < span.count; ++i) {
      char& mark = all.at(static_cast<size_t>(span.first + i));
      EXPECT_EQ(mark, 0) << "twice: " << span.first + i;
      mark = 1;
    }
  }
  return all;
}

TEST(StoreKv, TheFootprintIsWhatChanges) {
  for (const DType to : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const Layout layout : kLayouts) {
      Store s(DType::kF32, to, {7, -1, 2, 6}, layout);
      const size_t size = size_of(to);
      const Footprint spans = store_kv_footprint(s.call);
      ASSERT_EQ(store_kv(s.call).to_string(), "ok");
      for (const std::vector<std::byte>* memory : {&s.k_to, &s.v_to}) {
        const auto written = marks(spans, memory->data(), Access::kWrite, memory->size() / size);
        // The stored numbers are small and exact: no element of theirs is poison.
        for (size_t i = 0; i < written.size(); ++i) {
          const bool poison =
              std::all_of(memory->data() + i * size, memory->data() + (i + 1) * size,
                          [](std::byte b) { return b == std::byte{0xff}; });
          EXPECT_EQ(written[i] == 0, poison) << i;
        }
      }
      for (const std::vector<float>* scales : {&s.k_scales, &s.v_scales}) {
        const auto written = marks(spans, scales->data(), Access::kWrite, scales->size());
        for (size_t i = 0; i < written.size(); ++i)
          EXPECT_EQ(written[i] == 0, std::isnan((*scales)[i])) << i;
      }
      // All tokens are read but the dropped one.
      const auto read = marks(spans, s.k_from.data(), Access::kRead, 40);
      for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i] != 0, i / 10 != 1) << i;
    }
  }
}

}  // namespace
}  // namespace shadowgraph::store_kv_test
