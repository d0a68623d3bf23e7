#include "attn/lse.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "attn/exp2_poly.h"
#include "check/bounds/rounding.h"

namespace shadowgraph::lse_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

template <LseBase Base>
SoftmaxState<Base> merged(std::vector<SoftmaxState<Base>> parts,
                          std::vector<float>* weights = nullptr) {
  std::vector<float> w(parts.size(), kNaN);
  const auto state = merge<Base>(parts, w);
  if (weights != nullptr) *weights = w;
  return state;
}

TEST(Exp2, IsExactlyOneAtZero) {
  EXPECT_EQ(exp2_portable(0.f), 1.f);
  EXPECT_EQ(exp2_portable(-0.f), 1.f);
}

TEST(Exp2, WholePowersAreExact) {
  for (int n = 0; n <= 126; ++n)
    EXPECT_EQ(exp2_portable(static_cast<float>(-n)), std::ldexp(1.f, -n)) << n;
}

TEST(Exp2, IsExactlyZeroBelowTheSmallestNormal) {
  EXPECT_GT(exp2_portable(-126.f), 0.f);
  for (float x : {std::nextafter(-126.f, -kInf), -127.f, -1e9f,
                  std::numeric_limits<float>::lowest(), -kInf}) {
    EXPECT_EQ(exp2_portable(x), 0.f) << x;
  }
}

TEST(Exp2, NaNIsNaN) { EXPECT_TRUE(std::isnan(exp2_portable(kNaN))); }

TEST(Exp2, IsWithinItsStatedErrorAndMonotoneOnADenseSweep) {
  double worst = 0;
  float last = 0;
  // A prime step through the floats from -126 up to -2^-30, largest magnitude first.
  for (uint32_t bits = std::bit_cast<uint32_t>(-126.f); bits > std::bit_cast<uint32_t>(-0x1p-30f);
       bits -= 331) {
    const auto x = std::bit_cast<float>(bits);
    const float y = exp2_portable(x);
    const double truth = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::abs(y - truth) / truth);
    ASSERT_GE(y, last) << x;
    last = y;
  }
  EXPECT_LE(worst, kExp2Error);
  EXPECT_GT(worst, kExp2Error / 64);  // a bound that nothing comes near says little
}

/// The fast exp2 of Arith::kFast, as the instruction set evaluates it.
float exp2_fast(float fraction) {
  float p = kExp2FastPoly[0];
  for (int i = 1; i < kExp2FastTerms; ++i) p = std::fma(p, fraction, kExp2FastPoly[i]);
  return p;
}

TEST(Exp2, TheFastOneIsWithinItsStatedErrorFromZeroToOne) {
  EXPECT_EQ(exp2_fast(0.f), 1.f);
  double worst = 0;
  const auto look = [&worst](float x) {
    const double truth = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::abs(exp2_fast(x) - truth) / truth);
  };
  look(1.f);
  // A prime step through the floats down to 2^-24, below which the result is 1.
  for (uint32_t bits = std::bit_cast<uint32_t>(1.f); bits >= std::bit_cast<uint32_t>(0x1p-24f);
       bits -= 61)
    look(std::bit_cast<float>(bits));
  EXPECT_LE(worst, kExp2FastError);
  EXPECT_GT(worst, kExp2FastError * 15 / 16);  // 2^-17.04, over all floats
}

TEST(Log, AgreesWithTheLibraryToItsStatedError) {
  EXPECT_EQ(log_portable(1.f), 0.0);
  for (uint32_t bits = 1; bits < std::bit_cast<uint32_t>(kInf); bits += 104729) {
    const auto x = std::bit_cast<float>(bits);
    const double truth = std::log(static_cast<double>(x));
    ASSERT_LE(std::abs(log_portable(x) - truth), 1e-15 * std::max(1.0, std::abs(truth))) << x;
  }
}

template <class T>
class States : public ::testing::Test {};
using Bases = ::testing::Types<std::integral_constant<LseBase, LseBase::kNatural>,
                               std::integral_constant<LseBase, LseBase::kLog2>>;
TYPED_TEST_SUITE(States, Bases);

TYPED_TEST(States, BothInfinitiesAreNoMass) {
  using State = SoftmaxState<TypeParam::value>;
  EXPECT_FALSE(State().has_mass());
  EXPECT_EQ(State::from_lse(-kInf), State());
  EXPECT_EQ(State::from_lse(kInf), State());
  EXPECT_TRUE(State::from_lse(0).has_mass());
  EXPECT_EQ(lse_of<TypeParam::value>(State()), -kInf);
}

TYPED_TEST(States, AnLseComesBackToTheBit) {
  using State = SoftmaxState<TypeParam::value>;
  for (float lse : {0.f, 1.f, -0.1f, 1e-30f, 123.456f, -3.4e38f, 3e38f}) {
    EXPECT_EQ(lse_of<TypeParam::value>(State::from_lse(lse)), lse);
  }
}

TYPED_TEST(States, TheEmptyStateIsTheIdentity) {
  using State = SoftmaxState<TypeParam::value>;
  const State one = {0.3f, 7.1f};
  std::vector<float> w;
  EXPECT_EQ(merged<TypeParam::value>({one, {}}, &w), one);
  EXPECT_EQ(w, (std::vector<float>{1, 0}));
  EXPECT_EQ(merged<TypeParam::value>({{}, one}, &w), one);
  EXPECT_EQ(w, (std::vector<float>{0, 1}));
  EXPECT_EQ(merged<TypeParam::value>({{}, {}}, &w), State());
  EXPECT_EQ(w, (std::vector<float>{0, 0}));
  EXPECT_EQ(merged<TypeParam::value>({}), State());
}

TYPED_TEST(States, EqualStatesHaveEqualHalves) {
  std::vector<float> w;
  const auto state = merged<TypeParam::value>({{2.5f, 1}, {2.5f, 1}}, &w);
  EXPECT_EQ(state.m, 2.5f);
  EXPECT_EQ(state.d, 2);
  EXPECT_EQ(w, (std::vector<float>{1, 1}));
}

TYPED_TEST(States, WeightsArePowersOfTheBase) {
  std::vector<float> w;
  const auto state = merged<TypeParam::value>({{1, 1}, {3, 5}, {2, 1}}, &w);
  EXPECT_EQ(state.m, 3);
  EXPECT_EQ(w[1], 1);
  // 2^(fl(x fl(log2 e))), x = -2 and -1: exact in base 2; else two roundings of the argument, each
  // at most 2^-24 of it, and exp2's own error.
  for (const auto& [weight, x] : {std::pair{w[0], -2.0}, {w[2], -1.0}}) {
    if (TypeParam::value == LseBase::kLog2) {
      EXPECT_EQ(weight, std::exp2(x));
    } else {
      const double argument = std::abs(x) * ((1 + 0x1p-24) * (1 + 0x1p-24) - 1);
      const double bound = std::exp(argument) * (1 + kExp2Error) - 1;
      EXPECT_LE(std::abs(weight / std::exp(x) - 1), bound) << x;
    }
  }
  EXPECT_EQ(state.d, w[0] * 1 + 5 + w[2] * 1);
}

TYPED_TEST(States, NaNIsNotLost) {
  for (size_t place = 0; place < 3; ++place) {
    std::vector<SoftmaxState<TypeParam::value>> parts(3, {1, 1});
    parts[place].m = kNaN;
    EXPECT_TRUE(std::isnan(lse_of<TypeParam::value>(merged<TypeParam::value>(parts)))) << place;
  }
}

TYPED_TEST(States, PartsAreAddedInIndexOrder) {
  // 2^24 + 1 + 1 is 2^24 in f32 from the left, and 2^24 + 2 from the right.
  const SoftmaxState<TypeParam::value> large = {0, 0x1p24f}, one = {0, 1};
  EXPECT_EQ(merged<TypeParam::value>({large, one, one}).d, 0x1p24f);
  EXPECT_EQ(merged<TypeParam::value>({one, one, large}).d, 0x1p24f + 2);
}

TEST(LseBases, ConvertByTheLogarithmOfTwo) {
  const auto natural = SoftmaxState<LseBase::kNatural>::from_lse(10.f);
  const auto log2 = SoftmaxState<LseBase::kLog2>::from_lse(10.f);
  EXPECT_EQ(lse_of<LseBase::kLog2>(natural), static_cast<float>(10 * kLog2E));
  EXPECT_EQ(lse_of<LseBase::kNatural>(log2), static_cast<float>(10 * kLn2));
  // A sum of eight equal weights.
  EXPECT_EQ((lse_of<LseBase::kLog2>(SoftmaxState<LseBase::kLog2>{1, 8})), 4.f);
  EXPECT_EQ((lse_of<LseBase::kNatural>(SoftmaxState<LseBase::kLog2>{0, 8})),
            static_cast<float>(std::log(8.0)));
}

// Merging k states: weight i is exp2 of an argument with at most three roundings (difference,
// constant, product), each of relative size u, so absolute |x| u in the exponent; the sum of k
// positive terms adds k u; m is exact. The LSE is put together in double and rounded once.
RC_GTEST_PROP(MergeProperty, IsTheLogOfTheSumWithinTheDerivedBound, ()) {
  const auto codes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-2000, 2000));
  if (codes.empty()) return;
  std::vector<SoftmaxState<LseBase::kNatural>> parts;
  double largest = -HUGE_VAL, span = 0;
  for (int c : codes) {
    parts.push_back({static_cast<float>(c) / 64, 1 + static_cast<float>(std::abs(c) % 7)});
    largest = std::max<double>(largest, parts.back().m);
  }
  double sum = 0;
  for (const auto& p : parts) {
    sum += p.d * std::exp(p.m - largest);
    span = std::max(span, largest - p.m);
  }
  const double truth = largest + std::log(sum), u = 0x1p-24;
  const double relative =
      std::expm1(3 * u * span) + kExp2Error + u * static_cast<double>(2 * parts.size());
  // In double: exp, product and additions of the sum; log_portable and the library's log; m + log.
  const double in_double = gamma_of(static_cast<double>(parts.size()) + 2, 0x1p-52) +
                           (1e-15 + 0x1p-52) * std::max(1.0, std::log(sum)) +
                           0x1p-52 * std::abs(truth);
  const double bound = relative / (1 - relative) +
                       std::ldexp(static_cast<double>(parts.size()), -126) + u * std::abs(truth) +
                       in_double;
  const float got = lse_of<LseBase::kNatural>(merged<LseBase::kNatural>(parts));
  RC_ASSERT(std::abs(got - truth) <= bound);
}

}  // namespace
}  // namespace shadowgraph::lse_test
