#include "kernels/store_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float_formats.h"

namespace shadowgraph {
namespace {

constexpr DType kStored[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};
constexpr DType kGiven[] = {DType::kF32, DType::kF16, DType::kBF16};

/// Tokens, and a cache of 4 pages of 3 tokens, 2 heads, K of 5 and V of 4 elements; the cache is
/// poison.
struct Store {
  std::vector<std::byte> k_from, v_from, k_to, v_to;
  std::vector<int64_t> slots;
  StoreKv call;

  Store(DType from, DType to, std::vector<int64_t> slots_of_tokens, bool hnd = false)
      : k_to(4 * 3 * 2 * 5 * size_of(to), std::byte{0xff}),
        v_to(4 * 3 * 2 * 4 * size_of(to), std::byte{0xff}),
        slots(std::move(slots_of_tokens)) {
    const auto n = static_cast<int64_t>(slots.size());
    k_from.resize(static_cast<size_t>(n * 10) * size_of(from));
    v_from.resize(static_cast<size_t>(n * 8) * size_of(from));
    call.k = ConstTensorView(k_from.data(), from, {n, 2, 5});
    call.v = ConstTensorView(v_from.data(), from, {n, 2, 4});
    for (int64_t i = 0; i < n * 10; ++i)
      store_float(k_from.data(), from, i, static_cast<float>(i % 9));
    for (int64_t i = 0; i < n * 8; ++i)
      store_float(v_from.data(), from, i, static_cast<float>(-(i % 9)));
    call.out_cache_loc = slots;
    call.cache = hnd ? KvCache::hnd(TensorView(k_to.data(), to, {4, 2, 3, 5}),
                                    TensorView(v_to.data(), to, {4, 2, 3, 4}))
                     : KvCache::nhd(TensorView(k_to.data(), to, {4, 3, 2, 5}),
                                    TensorView(v_to.data(), to, {4, 3, 2, 4}));
  }
  float stored_k(int64_t page, int64_t token, int64_t head, int64_t d) const {
    return load_float(k_to.data(), call.cache.k.dtype, call.cache.k.offset(page, token, head, d));
  }
  float stored_v(int64_t page, int64_t token, int64_t head, int64_t d) const {
    return load_float(v_to.data(), call.cache.v.dtype, call.cache.v.offset(page, token, head, d));
  }
  /// The slot holds that token, or poison (-1).
  void expect_slot(int64_t slot, int64_t token) const {
    const auto same = [&](float got, int64_t expected) {
      return token < 0 ? std::isnan(got) : got == static_cast<float>(expected);
    };
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t d = 0; d < 5; ++d) {
        const float got = stored_k(slot / 3, slot % 3, head, d);
        EXPECT_TRUE(same(got, (token * 10 + head * 5 + d) % 9))
            << "slot " << slot << " holds " << got;
      }
      for (int64_t d = 0; d < 4; ++d) {
        const float got = stored_v(slot / 3, slot % 3, head, d);
        EXPECT_TRUE(same(got, -((token * 8 + head * 4 + d) % 9)))
            << "slot " << slot << " holds " << got;
      }
    }
  }
};

TEST(StoreKv, EveryTokenGoesIntoItsSlotAndNothingElseChanges) {
  for (const DType from : kGiven) {
    for (const DType to : kStored) {
      for (const bool hnd : {false, true}) {
        Store s(from, to, {7, -1, 0, 11, 5}, hnd);
        ASSERT_EQ(store_kv(s.call).to_string(), "ok");
        for (int64_t slot = 0; slot < 12; ++slot) {
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

TEST(StoreKv, TheFootprintIsWhatChanges) {
  for (const bool hnd : {false, true}) {
    Store s(DType::kF32, DType::kF16, {7, -1, 2}, hnd);
    std::vector<std::byte> k(s.k_to.size()), v(s.v_to.size()), k_source = s.k_from;
    for (const AccessSpan& span : store_kv_footprint(s.call)) {
      if (span.access == Access::kWrite) {
        auto& marks = span.buffer == s.k_to.data() ? k : v;
        std::fill_n(marks.begin() + span.first * 2, span.count * 2, std::byte{1});
      } else if (span.buffer == s.k_from.data()) {
        std::fill_n(k_source.begin() + span.first * 4, span.count * 4, std::byte{0});
      }
    }
    ASSERT_EQ(store_kv(s.call).to_string(), "ok");
    // The stored numbers are small and exact: no byte pair of theirs is poison.
    for (size_t i = 0; i < k.size(); i += 2) {
      EXPECT_EQ(k[i] == std::byte{1}, (s.k_to[i] & s.k_to[i + 1]) != std::byte{0xff}) << i;
    }
    for (size_t i = 0; i < v.size(); i += 2) {
      EXPECT_EQ(v[i] == std::byte{1}, (s.v_to[i] & s.v_to[i + 1]) != std::byte{0xff}) << i;
    }
    // Tokens 0 and 2 are read, the dropped one is not.
    for (size_t i = 0; i < k_source.size(); ++i) {
      const bool read = i / 40 != 1;
      EXPECT_EQ(k_source[i], read ? std::byte{0} : s.k_from[i]);
    }
  }
}

}  // namespace
}  // namespace shadowgraph
