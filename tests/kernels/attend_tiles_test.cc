// Attention in tiles of bf16 (AMX): what a product of tiles is, and the whole kernel over tiles in
// software, which every machine has. Where the processor has tiles, both give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "core/float_formats.h"
#include "fuzz/call/attention_scene.h"
#include "fuzz/call/ladder.h"
#include "fuzz/fuzz.h"
#include "kernels/isa/units.h"
#include "kernels/small_attention.h"

namespace shadowgraph::attend_tiles_test {
namespace {

constexpr char kNoTiles[] =
    "there is nothing to compare the software with: this processor has no AMX. scripts/isa.sh runs "
    "this on one that has";
constexpr int64_t kPairs = kAmxRowBytes / 4, kTerms = 2 * kPairs;

/// One product: a [rows, steps, 32], b [2, steps, 16 pairs, 16 columns, 2], c [rows, 32].
struct Product {
  int64_t rows, steps;
  std::vector<uint16_t> a, b;
  std::vector<float> c;

  Product(int64_t r, int64_t s)
      : rows(r),
        steps(s),
        a(static_cast<size_t>(r * s * kTerms)),
        b(static_cast<size_t>(2 * s * kTerms * kPanel)),
        c(static_cast<size_t>(r * 2 * kPanel)) {}

  uint16_t& a_at(int64_t row, int64_t term) {
    return a[static_cast<size_t>(row * steps * kTerms + term)];
  }
  uint16_t& b_at(int64_t term, int64_t column) {
    const int64_t tile = column / kPanel * steps + term / kTerms;
    return b[static_cast<size_t>((tile * kPairs + term % kTerms / 2) * kTerms +
                                 column % kPanel * 2 + term % 2)];
  }
  float& c_at(int64_t row, int64_t column) {
    return c[static_cast<size_t>(row * 2 * kPanel + column)];
  }
  void multiply(std::string_view isa, bool add, int columns = 2) {
    const auto* tiles = reinterpret_cast<const std::byte*>(b.data());
    const int64_t tile_bytes = int64_t{kAmxRows} * kAmxRowBytes;
    find_isa(isa)->multiply({reinterpret_cast<const std::byte*>(a.data()),
                             steps * kAmxRowBytes,
                             {tiles, columns > 1 ? tiles + steps * tile_bytes : nullptr},
                             tile_bytes,
                             steps,
                             c.data(),
                             2 * kPanel,
                             add},
                            rows);
  }
};

uint16_t bf16(float x) {
  uint16_t bits = 0;
  store_float(reinterpret_cast<std::byte*>(&bits), DType::kBF16, 0, x);
  return bits;
}

TEST(Tiles, AProductOfSmallIntegersIsExact) {
  Rng rng(1);
  for (const int64_t rows : {1, 5, 16, 17, 32}) {
    for (const bool add : {false, true}) {
      Product p(rows, 3);
      for (uint16_t& x : p.a) x = bf16(static_cast<float>(rng.below(9)) - 4);
      for (uint16_t& x : p.b) x = bf16(static_cast<float>(rng.below(9)) - 4);
      for (float& x : p.c) x = 100;
      const auto value = [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); };
      p.multiply("amx_soft", add);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < 2 * kPanel; ++n) {
          float sum = add ? 100.f : 0.f;
          for (int64_t i = 0; i < 3 * kTerms; ++i) sum += value(p.a_at(r, i)) * value(p.b_at(i, n));
          ASSERT_EQ(p.c_at(r, n), sum) << "row " << r << " column " << n;
        }
      }
    }
  }
}

TEST(Tiles, OneColumnOfTilesLeavesTheOthersAlone) {
  Product p(20, 1);
  std::ranges::fill(p.a, bf16(1)), std::ranges::fill(p.b, bf16(1)), std::ranges::fill(p.c, 7.f);
  p.multiply("amx_soft", false, 1);
  for (int64_t n = 0; n < 2 * kPanel; ++n) EXPECT_EQ(p.c_at(19, n), n < kPanel ? 32 : 7) << n;
}

/// Row 0, column 0 of a product whose terms 0, 1, ... are those, onto `c`.
float dot(const std::vector<std::pair<float, float>>& terms, float c = 0) {
  Product p(1, 1);
  for (size_t i = 0; i < terms.size(); ++i) {
    p.a_at(0, static_cast<int64_t>(i)) = bf16(terms[i].first);
    p.b_at(static_cast<int64_t>(i), 0) = bf16(terms[i].second);
  }
  p.c_at(0, 0) = c;
  p.multiply("amx_soft", true);
  return p.c_at(0, 0);
}

TEST(Tiles, EvenAndOddTermsAreChainsOfTheirOwn) {
  // In one chain 2^-24 is lost beside 1.
  EXPECT_EQ(dot({{1, 1}, {0x1p-24f, 1}, {-1, 1}, {0, 0}}), 0x1p-24f);
  EXPECT_EQ(dot({{1, 1}, {0, 0}, {0x1p-24f, 1}, {0, 0}, {-1, 1}, {0, 0}}), 0.f);
  // The sum so far comes last.
  EXPECT_EQ(dot({{0x1p-24f, 1}, {0x1p-24f, 1}}, 1), 1 + 0x1p-23f);
}

TEST(Tiles, SubnormalsAreZero) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  EXPECT_EQ(dot({{kLeast / 2, 0x1p100f}}), 0);   // an element
  EXPECT_EQ(dot({{kLeast, 0.5f}}), 0);           // a product
  EXPECT_EQ(dot({{kLeast, 1}}), kLeast);         // the least that counts
  EXPECT_EQ(dot({}, kLeast / 2), 0);             // the sum so far
  EXPECT_EQ(dot({{1.5f, kLeast}}, -kLeast), 0);  // the new sum
  // Rounded among subnormals this would be the least normal number.
  EXPECT_EQ(dot({{kLeast, 1}, {0, 0}, {0x1p-60f, -0x1.8p-91f}}), 0);
}

TEST(Tiles, WhatIsNotFiniteStaysInItsRowAndColumn) {
  for (const float bad : {INFINITY, NAN}) {
    Product p(2, 1);
    std::ranges::fill(p.a, bf16(1)), std::ranges::fill(p.b, bf16(1));
    p.a_at(0, 3) = bf16(bad);
    p.b_at(4, 5) = bf16(bad);
    p.multiply("amx_soft", false);
    EXPECT_FALSE(std::isfinite(p.c_at(0, 0)));
    EXPECT_FALSE(std::isfinite(p.c_at(1, 5)));
    EXPECT_EQ(p.c_at(1, 0), 32);
  }
}

/// Are they the same bits, but for which NaN it is?
bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

TEST(Tiles, TheProcessorHasTheBitsOfTheSoftware) {
  if (find_isa("amx") == nullptr) GTEST_SKIP() << kNoTiles;
  Rng rng(2);
  for (int round = 0; round < 2000; ++round) {
    Product soft(1 + rng.below(kAmxStripRows), 1 + rng.below(4));
    // Any bits; of like magnitudes; about the least normal number.
    const uint32_t kind = rng.below(3);
    const auto draw = [&](int low) {
      if (kind == 0) return static_cast<uint16_t>(rng.below(1u << 16));
      return bf16(
          std::ldexp(rng.signed_unit(), kind == 1 ? 0 : low + static_cast<int>(rng.below(9))));
    };
    for (uint16_t& x : soft.a) x = draw(-70);
    for (uint16_t& x : soft.b) x = draw(-62);
    for (float& x : soft.c) x = std::ldexp(rng.signed_unit(), kind == 2 ? -126 : 0);
    Product processor = soft;
    const bool add = rng.below(2) != 0;
    soft.multiply("amx_soft", add, 1 + round % 2), processor.multiply("amx", add, 1 + round % 2);
    for (size_t i = 0; i < soft.c.size(); ++i)
      ASSERT_TRUE(same(soft.c[i], processor.c[i])) << "round " << round << " sum " << i;
  }
}

/// 40 queries of 2 heads over one KV head of 32 dims, in bf16.
SmallShape forty_queries(int32_t kv_len, int32_t dim_vo) {
  SmallShape s;
  s.requests = {{40, kv_len}};
  s.qo_heads = 2, s.dim_qk = 32, s.dim_vo = dim_vo;
  s.q_dtype = s.kv_dtype = DType::kBF16;
  return s;
}

/// The weights of 2 keys in 80 rows: one is 1, the other 2^x; the LSEs tell their sums.
std::vector<float> sums_of_weights(std::string_view isa, float scale) {
  SmallAttention c(CaseKernel::kPrefillPaged, isa, forty_queries(2, 16));
  c.options.arith = Arith::kFast;
  c.params.sm_scale = scale;
  const auto one_dim = [](int64_t d, float value) { return d == 0 ? value : 0.f; };
  c.fill_q([&](int64_t, int64_t t, int64_t h, int64_t d) {
    return one_dim(d, 1 + static_cast<float>(2 * t + h) / 128);
  });
  c.fill_k([&](int64_t, int64_t t, int64_t, int64_t d) { return one_dim(d, t == 0 ? 0.f : -1.f); });
  c.fill_v([](auto...) { return 1.f; });
  EXPECT_EQ(c.run().to_string(), "ok");
  std::vector<float> sums(80);
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = c.lse(0, static_cast<int64_t>(i / 2), static_cast<int64_t>(i % 2));
  return sums;
}

TEST(Tiles, ExponentialsOfTheSoftwareHaveTheBitsOfTheProcessors) {
  Rng rng(3);
  for (int round = 0; round < 60; ++round) {
    const float scale = std::ldexp(2 + rng.signed_unit(), -static_cast<int>(rng.below(24)));
    const std::vector<float> soft = sums_of_weights("amx_soft", scale);
    for (const std::string_view isa : {"avx512bf16", "amx"}) {
      if (find_isa(isa) == nullptr) continue;
      EXPECT_EQ(sums_of_weights(isa, scale), soft) << isa;
    }
  }
}

/// A drawn call, such that tiles compute it.
std::optional<Case> tiled_case(uint64_t number) {
  Case x = fuzz_case(505, number);
  auto* a = std::get_if<AttentionCase>(&x.call);
  if (a == nullptr || a->q_dtype == DType::kI8 || a->num_kv_heads == 0) return {};
  const bool prefill = a->kernel != CaseKernel::kDecodePaged;
  if (!prefill && a->num_qo_heads / a->num_kv_heads < 5) return {};
  a->q_dtype = a->kv_dtype = DType::kBF16;
  a->terms = {};
  // A stacked cache has one head_dim.
  const bool one_dim = a->head_dim_qk == a->head_dim_vo;
  a->head_dim_qk = static_cast<int32_t>(round_up(a->head_dim_qk, 32));
  a->head_dim_vo = static_cast<int32_t>(round_up(a->head_dim_vo, one_dim ? 32 : 16));
  return x;
}

TEST(Tiles, DrawnCallsAreWithinTheBoundAndTheirRowsAreTheirOwn) {
  RunOptions fast;
  fast.arith = Arith::kFast;
  fast.isa = "amx_soft";
  int64_t cases = 0, decodes = 0, masked = 0;
  for (uint64_t number = 0; cases < 300; ++number) {
    const std::optional<Case> x = tiled_case(number);
    if (!x) continue;
    const auto& a = std::get<AttentionCase>(x->call);
    ++cases;
    decodes += a.kernel == CaseKernel::kDecodePaged;
    masked += a.mask != CustomMask::Kind::kNone;
    const Status status = check_case(*x, fast);
    ASSERT_EQ(status.to_string(), "ok") << "seed 505 case " << number << ": " << x->to_string();
  }
  EXPECT_GT(decodes, 10);
  EXPECT_GT(masked, 20);
}

/// Lengths at which strips of rows, panels and tiles end anywhere; of equal weights.
TEST(Tiles, EdgesOfStripsAndTilesAreExact) {
  RunOptions fast;
  fast.arith = Arith::kFast;
  fast.isa = "amx_soft";
  for (const auto& [q_len, kv_len] : std::initializer_list<std::pair<int32_t, int32_t>>{
           {40, 257}, {17, 257}, {64, 256}, {33, 300}, {100, 529}, {7, 17}, {16, 16}, {24, 513}}) {
    for (const int32_t group : {1, 3, 8}) {
      AttentionCase a;
      a.kernel = CaseKernel::kPrefillPaged;
      a.requests = {{kv_len - q_len, q_len, kv_len}};
      a.num_kv_heads = 2, a.num_qo_heads = 2 * group;
      a.head_dim_qk = 64, a.head_dim_vo = 48;
      a.page_size = 16, a.causal = true;
      a.q_dtype = a.kv_dtype = DType::kBF16;
      const Case x{CaseData::kUniform, 7, a};
      ASSERT_EQ(check_case(x, fast).to_string(), "ok") << x.to_string();
    }
  }
}

/// Values that are not finite, where some rows see them and others do not.
TEST(Tiles, AValueThatIsNotFiniteReachesTheRowsThatSeeIt) {
  for (const std::string_view isa : {"amx_soft", "amx"}) {
    if (find_isa(isa) == nullptr) continue;
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      SmallAttention c(CaseKernel::kPrefillPaged, isa, forty_queries(300, 48));
      c.options.arith = Arith::kFast;
      c.params.causal = true;
      c.fill_uniform();
      c.fill_v(
          [&](int64_t, int64_t t, int64_t, int64_t d) { return t == 277 && d == 33 ? bad : 1; });
      ASSERT_EQ(c.run().to_string(), "ok");
      for (int64_t row = 0; row < 40; ++row) {
        for (int64_t d = 0; d < 48; ++d)
          EXPECT_EQ(std::isfinite(c.out(0, row, 1, d)), row + 260 < 277 || d != 33)
              << isa << " row " << row << " dim " << d;
      }
    }
  }
}

TEST(Tiles, TheProcessorsKernelHasTheBitsOfTheSoftware) {
  if (find_isa("amx") == nullptr) GTEST_SKIP() << kNoTiles;
  int64_t cases = 0;
  for (uint64_t number = 0; cases < 300; ++number) {
    const std::optional<Case> x = tiled_case(number);
    if (!x) continue;
    ++cases;
    const AttentionData data = make_attention_data(*x);
    RowResults results[2] = {RowResults(*x), RowResults(*x)};
    for (size_t i = 0; i < 2; ++i) {
      AttentionArrangement how = AttentionArrangement::of(*x);
      how.options.isa = i == 0 ? "amx" : "amx_soft";
      how.options.arith = Arith::kFast;
      AttentionScene scene(*x, data, how);
      scene.lay(0);
      ASSERT_EQ(scene.run().to_string(), "ok");
      scene.collect(&results[i]);
    }
    ASSERT_EQ(results[0].out, results[1].out)
        << "seed 505 case " << number << ": " << x->to_string();
    ASSERT_EQ(results[0].beside, results[1].beside) << number;
  }
}

}  // namespace
}  // namespace shadowgraph::attend_tiles_test
