// The bound of an arithmetic that a recording declares holds for a kernel that computes so, and no
// bound of another arithmetic does.
#include "check/bounds/declared.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>

#include "check/bounds/error_bound.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "oracle/small_call.h"

namespace shadowgraph::declared_test {
namespace {

float in_type(float x, DType t) {
  return t == DType::kF32 ? x : decode_float(encode_float(x, format_of(t)), format_of(t));
}

float truncated(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0x1fffU); }

struct Row {
  std::vector<float> out;
  float lse = 0;
};

/// One query over its keys in f32, as declared.
Row emulate(const SmallCall& c, const DeclaredArithmetic& d) {
  const auto factor = [&](float x) { return d.tf32 ? truncated(x) : x; };
  const auto n = static_cast<size_t>(c.call.k.shape[0]), dim = c.q.size(),
             dim_v = static_cast<size_t>(c.call.v.shape[2]);
  std::vector<float> s(n);
  for (size_t j = 0; j < n; ++j) {
    float dot = 0;
    for (size_t i = 0; i < dim; ++i) dot += factor(c.q[i]) * factor(c.k[j * dim + i]);
    const float scaled = in_type(dot, d.scores) * c.call.params.sm_scale;
    s[j] = in_type(in_type(scaled, d.scores), d.scores);
  }
  const auto part = [&](size_t begin, size_t end) {
    Row row{std::vector<float>(dim_v), 0};
    const float top = *std::max_element(s.begin() + static_cast<std::ptrdiff_t>(begin),
                                        s.begin() + static_cast<std::ptrdiff_t>(end));
    float sum = 0;
    for (size_t j = begin; j < end; ++j) {
      const float p = std::exp(s[j] - top);
      const float weight = factor(in_type(p * d.weights_scale, d.weights.value_or(DType::kF32)));
      sum += p;
      for (size_t i = 0; i < dim_v; ++i) row.out[i] += weight * factor(c.v[j * dim_v + i]);
    }
    for (float& o : row.out) o = o / sum / d.weights_scale;
    row.lse = top + std::log(sum);
    return row;
  };
  const size_t length = (n + static_cast<size_t>(d.splits) - 1) / static_cast<size_t>(d.splits);
  Row all = part(0, std::min(n, length));
  for (size_t begin = length; begin < n; begin += length) {
    const Row next = part(begin, std::min(n, begin + length));
    const float top = std::max(all.lse, next.lse);
    const float a = std::exp(all.lse - top), b = std::exp(next.lse - top);
    for (size_t i = 0; i < dim_v; ++i) all.out[i] = (all.out[i] * a + next.out[i] * b) / (a + b);
    all.lse = top + std::log(a + b);
  }
  return all;
}

void fill_row(SmallCall& c, Rng& rng) {
  c.params().sm_scale = 0.35355339F;
  const float peak = rng.below(3) == 0 ? 8.F : 1.F, shift = rng.below(3) == 0 ? 2.F : 0.F;
  for (float& x : c.q) x = peak * 2 * rng.signed_unit();
  for (float& x : c.k) x = 2 * rng.signed_unit();
  for (float& x : c.v) x = shift + 2 * rng.signed_unit();
}

/// The largest error over the bound, of out and of the LSE.
struct Largest {
  double out = 0, lse = 0;
};
Largest measure(const DeclaredArithmetic& kernel, const Arithmetic& a, int rows) {
  Rng rng(1);
  Largest largest;
  for (int i = 0; i < rows; ++i) {
    SmallCall c(1, static_cast<int32_t>(1 + rng.below(rng.below(8) == 0 ? 100 : 20)), 1, 1, 8, 4);
    fill_row(c, rng);
    const Row got = emulate(c, kernel);
    for_each_row(c.call, [&](const OracleRow& row) {
      const ErrorBound b = error_bound(row, a, DType::kF32, DType::kF32, LseSink::kExcluded);
      for (Eigen::Index k = 0; k < row.out.size(); ++k)
        largest.out = std::max(
            largest.out,
            std::abs(static_cast<double>(got.out[static_cast<size_t>(k)]) - row.out[k]) / b.out[k]);
      largest.lse = std::max(largest.lse, std::abs(static_cast<double>(got.lse) - row.lse) / b.lse);
    });
  }
  return largest;
}

const DeclaredArithmetic kDeclared[] = {
    {},
    {.weights = DType::kF16},
    {.weights = DType::kF16, .weights_scale = 256},
    {.weights = DType::kBF16},
    {.weights = DType::kE4M3, .weights_scale = 448},
    {.scores = DType::kF16},
    {.scores = DType::kBF16},
    {.weights = DType::kF16, .scores = DType::kF16},
    {.tf32 = true},
    {.splits = 4},
    {.weights = DType::kBF16, .tf32 = true, .splits = 3},
};

TEST(DeclaredArithmetic, ItsBoundHoldsAndIsNear) {
  for (const DeclaredArithmetic& d : kDeclared) {
    const Largest e = measure(d, with_declared(*find_arithmetic("plain_f32"), d), 4000);
    std::printf("out %.3f, lse %.3f\n", e.out, e.lse);
    EXPECT_LE(e.out, 1);
    EXPECT_LE(e.lse, 1);
    EXPECT_GE(e.out, 0.03);
  }
}

TEST(DeclaredArithmetic, AKernelThatRoundsMoreThanItDeclaresIsSeen) {
  for (const DeclaredArithmetic& d : kDeclared) {
    if (!d.weights && d.scores == DType::kF32 && !d.tf32) continue;  // f32 as it is
    EXPECT_GT(measure(d, *find_arithmetic("plain_f32"), 4000).out, 1);
  }
  // One type is coarser than the other; tiny weights without their factor are lost.
  const auto of = [](const DeclaredArithmetic& d) {
    return with_declared(*find_arithmetic("plain_f32"), d);
  };
  EXPECT_GT(measure({.weights = DType::kBF16}, of({.weights = DType::kF16}), 4000).out, 1);
  EXPECT_GT(measure({.scores = DType::kBF16}, of({.scores = DType::kF16}), 4000).lse, 1);
  EXPECT_GT(
      measure({.weights = DType::kE4M3}, of({.weights = DType::kE4M3, .weights_scale = 448}), 4000)
          .out,
      1);
}

TEST(DeclaredArithmetic, ScoresPastTheirTypeHaveNoBound) {
  SmallCall c(1, 1, 1, 1, 1, 1);
  c.q = {300}, c.k = {300}, c.v = {1};
  c.params().sm_scale = 0x1p-20F;
  for_each_row(c.call, [&](const OracleRow& row) {
    const auto bound = [&](DType scores) {
      return error_bound(row, with_declared(*find_arithmetic("plain_f32"), {.scores = scores}),
                         DType::kF32, DType::kF32, LseSink::kExcluded)
          .out[0];
    };
    EXPECT_TRUE(std::isinf(bound(DType::kF16)));  // 90000 of 65504
    EXPECT_TRUE(std::isfinite(bound(DType::kBF16)));
  });
}

}  // namespace
}  // namespace shadowgraph::declared_test
