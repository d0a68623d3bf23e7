// The bound far from 0: it holds, it is finite, and it depends on how far logits are apart, not on
// what they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/emulated_kernel.h"

namespace shadowgraph::far_bound_test {
namespace {

using namespace emulated;

/// A logit far from 0 on all keys of a row, the rest as it was; not all of it is seen to the digit.
void lift(SmallCall& c, int exponent, Rng& rng) {
  const auto dim = static_cast<size_t>(c.call.q.shape[2]);
  c.q[0] = std::ldexp(rng.below(2) != 0 ? -1.F : 1.F, exponent);
  for (size_t i = 0; i < c.k.size(); i += dim) c.k[i] = 64;
}

TEST(FarBound, HoldsFarFromZero) {
  Rng rng(3);
  for (const Kernel& kernel : kKernels) {
    for (int i = 0; i < 4000; ++i) {
      const auto n = static_cast<int32_t>(1 + rng.below(rng.below(8) == 0 ? 100 : 20));
      SmallCall c(1, n, 1, 1, 8, 4);
      c.params().sm_scale = 0.35355339f;
      fill(c, kernel.q_type, rng);
      if (rng.below(3) == 0)  // nothing but the one element
        std::fill(c.q.begin(), c.q.end(), 0.F);
      const uint32_t most = kernel.q_type == DType::kF16 ? 16 : 100;
      lift(c, static_cast<int>(rng.below(most)), rng);
      if (rng.below(3) == 0)
        c.params().logits_soft_cap = std::ldexp(1.F, static_cast<int>(rng.below(9)));
      const Excess e = measure(c, kernel);
      ASSERT_LE(e.out, 1) << "row " << i << ", " << n << " keys";
      ASSERT_LE(e.lse, 1) << "row " << i << ", " << n << " keys";
    }
  }
}

ErrorBound bound_of(const SmallCall& c) {
  ErrorBound bound;
  for_each_row(c.call, [&](const OracleRow& row) {
    bound = error_bound(row, *find_arithmetic("ours_portable"), DType::kF32, DType::kF32,
                        LseSink::kExcluded);
  });
  return bound;
}

TEST(FarBound, OfValuesIsTheSameWhateverAllLogitsAre) {
  Rng rng(4);
  SmallCall c(1, 30, 1, 1, 8, 4);
  fill(c, DType::kF32, rng);
  std::fill(c.q.begin(), c.q.end(), 0.F);
  const ErrorBound at_zero = bound_of(c);
  for (const int exponent : {4, 10, 17, 40, 100}) {
    lift(c, exponent, rng);
    const ErrorBound far = bound_of(c);
    EXPECT_TRUE((far.out == at_zero.out).all()) << exponent;
    EXPECT_LT(far.lse, 1e-5 + std::ldexp(1.0, exponent + 6 - 20)) << exponent;
  }
}

TEST(FarBound, BehindASoftCapDoesNotGrowWithWhatTheCapCuts) {
  Rng rng(7);
  SmallCall c(1, 30, 1, 1, 8, 4);
  c.params().logits_soft_cap = 50;
  fill(c, DType::kF32, rng);
  for (const int exponent : {5, 10, 17, 40, 100}) {
    lift(c, exponent, rng);
    EXPECT_LT(bound_of(c).lse, 1e-3) << exponent;
  }
}

TEST(FarBound, OfAWinnerIsThatOfACopy) {
  // Logits of 10^9 are known to some hundreds, and are thousands apart.
  SmallCall c(1, 3, 1, 1, 2, 1);
  c.q = {3e4F, 1e4F};
  c.k = {3e4F, 1.1F, 2.9e4F, 0.3F, -1e4F, 7};
  c.v = {3, 5, 7};
  EXPECT_LT(bound_of(c).out[0], 1e-5);
  EXPECT_LT(bound_of(c).lse, 1000);
}

TEST(FarBound, NeverLeavesTheValuesThatMayWeigh) {
  // Logits of 10^9 that differ by less than their errors.
  SmallCall c(1, 3, 1, 1, 2, 1);
  c.q = {3e4F, 1e4F};
  c.k = {3e4F, 1.1F, 3e4F, 1.11F, 1e4F, 7};
  c.v = {3, 5, 1e9F};
  const double bound = bound_of(c).out[0];
  EXPECT_GT(bound, 1);
  EXPECT_LT(bound, 2.001) << "the third weighs nothing";
}

TEST(FarBound, KnowsNothingOfANanThatTheRowDoesNotSee) {
  Rng rng(6);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t at = 0; at < 2 * 3 * 8; ++at) {
    SmallCall c(3, 3, 1, 1, 8, 8);
    c.params().causal = true;
    fill(c, DType::kF32, rng);
    const size_t i = at / 2;
    (at % 2 == 0 ? c.k : c.v)[i] = nan;
    for_each_row(c.call, [&](const OracleRow& row) {
      if (row.row >= static_cast<int64_t>(i / 8)) return;  // it sees the key
      const ErrorBound bound = error_bound(row, *find_arithmetic("ours_portable"), DType::kF32,
                                           DType::kF32, LseSink::kExcluded);
      EXPECT_TRUE(bound.out.isFinite().all() && std::isfinite(bound.lse)) << at;
    });
  }
}

TEST(FarBound, SeesARowThatASentinelHides) {
  SmallCall c(1, 20, 1, 1, 8, 4);
  Rng rng(5);
  fill(c, DType::kF32, rng);
  std::fill(c.q.begin(), c.q.end(), 0.F);
  lift(c, 20, rng);
  const ErrorBound bound = bound_of(c);
  for_each_row(c.call,
               [&](const OracleRow& row) { EXPECT_TRUE((row.out.abs() > bound.out).all()); });
}

}  // namespace
}  // namespace shadowgraph::far_bound_test
