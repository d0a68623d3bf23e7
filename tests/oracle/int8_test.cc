// An i8 cache in the oracle and in the bound: a value is its code times its token's scale, and the
// bound holds for f32 arithmetic that multiplies logits and weights by the scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "check/bounds/error_bound.h"
#include "core/choices.h"
#include "oracle/oracle.h"

namespace shadowgraph::int8_test {
namespace {

/// One query and head against n keys of one page.
struct Int8Call {
  const int32_t n, dim;
  std::vector<int8_t> k, v;
  std::vector<float> q, k_scales, v_scales;
  std::vector<int32_t> table = {0}, lens;
  PagedAttention call;

  Int8Call(int32_t keys, int32_t head_dim)
      : n(keys),
        dim(head_dim),
        k(static_cast<size_t>(n * dim)),
        v(k),
        q(static_cast<size_t>(dim)),
        k_scales(static_cast<size_t>(n), 1),
        v_scales(k_scales),
        lens{n} {
    call.q = ConstTensorView(q.data(), DType::kF32, {1, 1, dim});
    call.cache = KvCache::nhd(TensorView(k.data(), DType::kI8, {1, n, 1, dim}),
                              TensorView(v.data(), DType::kI8, {1, n, 1, dim}))
                     .with_scales(TensorView(k_scales.data(), DType::kF32, {1, n, 1}),
                                  TensorView(v_scales.data(), DType::kF32, {1, n, 1}));
    call.pages = PageTable::dense(table, 1, lens);
    call.params.num_qo_heads = call.params.num_kv_heads = 1;
    call.params.head_dim_qk = call.params.head_dim_vo = dim;
    call.params.sm_scale = 1;
  }
  Int8Call(const Int8Call&) = delete;
  Int8Call& operator=(const Int8Call&) = delete;

  /// visit(row, bound)
  template <class Visit>
  void visit(const Visit& fn) const {
    Arithmetic a;
    a.in_order = true, a.tile = n;
    for_each_row(call, [&](const OracleRow& row) {
      fn(row, error_bound(row, a, DType::kF32, DType::kF32, LseSink::kExcluded));
    });
  }
  double bound() const {
    double largest = 0;
    visit([&](const OracleRow&, const ErrorBound& b) { largest = b.out.maxCoeff(); });
    return largest;
  }
};

TEST(OracleInt8, AValueIsItsCodeTimesItsScale) {
  Int8Call c(2, 2);
  c.k = {64, 0, -127, 1};
  c.v = {1, -128, 3, 127};
  c.k_scales = {0.5f, -0.25f};
  c.v_scales = {8, 0.125f};
  c.call.cache.v_scale = 2;
  c.visit([](const OracleRow& row, const ErrorBound&) {
    EXPECT_EQ(row.logits[0], 0);
    EXPECT_EQ(row.out[0], (8 * 2 + 0.375 * 2) / 2);
    EXPECT_EQ(row.out[1], (-1024 * 2 + 15.875 * 2) / 2);
    EXPECT_EQ(row.value_max, 2048);
    EXPECT_EQ(row.value_scale_max, 8);
  });
  c.q = {2, 1};
  c.call.params.sm_scale = 0.5f;
  c.call.cache.k_scale = 4;
  c.visit([](const OracleRow& row, const ErrorBound&) {
    EXPECT_EQ(row.logits[0], 0.5 * 4 * 0.5 * 128);
    EXPECT_EQ(row.logits[1], 0.5 * 4 * -0.25 * -253);
    EXPECT_EQ(row.products[1], 255);
    EXPECT_EQ(row.magnitudes[1], 0.5 * 4 * 0.25 * 255);
  });
}

/// Softmax of all keys at once, in f32, as a kernel does it. wrong: a factor of one scale of V.
std::vector<float> emulate(const Int8Call& c, float wrong) {
  const auto multiplier = static_cast<float>(c.call.params.sm_scale * kLog2E);
  std::vector<float> logits, out(static_cast<size_t>(c.dim));
  for (int64_t j = 0; j < c.n; ++j) {
    float dot = 0;
    for (int64_t i = 0; i < c.dim; ++i) dot += c.q[size_t(i)] * float(c.k[size_t(j * c.dim + i)]);
    logits.push_back(dot * (multiplier * c.k_scales[size_t(j)]));
  }
  const float top = *std::max_element(logits.begin(), logits.end());
  float sum = 0;
  for (int64_t j = 0; j < c.n; ++j) {
    const float weight = std::exp2(logits[size_t(j)] - top);
    const float scaled = weight * (c.v_scales[size_t(j)] * (j == 0 ? wrong : 1));
    sum += weight;
    for (int64_t i = 0; i < c.dim; ++i)
      out[size_t(i)] += scaled * float(c.v[size_t(j * c.dim + i)]);
  }
  for (float& x : out) x /= sum;
  return out;
}

double worst(const Int8Call& c, float wrong = 1) {
  const std::vector<float> got = emulate(c, wrong);
  double most = 0;
  c.visit([&](const OracleRow& row, const ErrorBound& bound) {
    for (int64_t i = 0; i < c.dim; ++i)
      most = std::max(most, std::abs(got[size_t(i)] - row.out[i]) / bound.out[i]);
  });
  return most;
}

void fill(Int8Call& c, Rng& rng) {
  const auto code = [&] { return static_cast<int8_t>(static_cast<int>(rng.below(256)) - 128); };
  std::generate(c.k.begin(), c.k.end(), code);
  std::generate(c.v.begin(), c.v.end(), code);
  for (float& x : c.q) x = 2 * rng.signed_unit();
  // Ordinary scales, and some whose products are below the normal range.
  const int k_exponent = rng.below(4) == 0 ? -128 : -6, v_exponent = rng.below(4) == 0 ? -130 : 2;
  for (float& z : c.k_scales) z = rng.below(8) == 0 ? 0 : std::ldexp(rng.signed_unit(), k_exponent);
  for (float& z : c.v_scales) z = rng.below(8) == 0 ? 0 : std::ldexp(rng.signed_unit(), v_exponent);
}

TEST(ErrorBoundInt8, HoldsForLogitsAndWeightsTimesTheScales) {
  Rng rng(1);
  double most = 0;
  for (int round = 0; round < 2000; ++round) {
    Int8Call c(static_cast<int32_t>(1 + rng.below(16)), static_cast<int32_t>(1 + rng.below(40)));
    fill(c, rng);
    most = std::max(most, worst(c));
  }
  EXPECT_LE(most, 1);
  EXPECT_GT(most, 0.05) << "a bound of any size would hold";
}

TEST(ErrorBoundInt8, SeesAScaleThatIsOffByAThousandth) {
  Rng rng(2);
  for (int round = 0; round < 200; ++round) {
    Int8Call c(4, 16);
    fill(c, rng);
    std::fill(c.k_scales.begin(), c.k_scales.end(), 0x1p-10f);
    std::fill(c.v_scales.begin(), c.v_scales.end(), 0.5f);
    EXPECT_GT(worst(c, 1.001f), 1);
  }
}

TEST(ErrorBoundInt8, IsInfiniteWhereAProductWithAScaleMayOverflow) {
  // The second key has a code of 0 and next to no weight, whatever its scale.
  Int8Call c(2, 1);
  c.q = {1};
  c.k = {1, 0};
  c.k_scales = {200, 2e38f};
  EXPECT_LT(c.bound(), 1e-3) << "c z is finite";
  c.call.params.sm_scale = 2;
  EXPECT_TRUE(std::isinf(c.bound())) << "0 times infinity is NaN";
  c.k_scales = {1, 1};
  EXPECT_LT(c.bound(), 1e-3);
  c.v_scales = {1, 3e38f};
  EXPECT_TRUE(std::isinf(c.bound()));
}

}  // namespace
}  // namespace shadowgraph::int8_test
