#include "core/plain_exp.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace shadowgraph::plain_exp_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

double relative_error(double got, long double wanted) {
  return static_cast<double>(std::fabs((got - wanted) / wanted));
}

/// A number of any size, as often small as large.
rc::Gen<double> numbers(double most) {
  return rc::gen::map(rc::gen::arbitrary<int64_t>(), [most](int64_t bits) {
    const double unit = static_cast<double>(bits) * 0x1p-63;
    return bits % 2 == 0 ? unit * most : std::remainder(unit * 0x1p20, 2.0);
  });
}

RC_GTEST_PROP(PlainExp, IsExpWithin50Bits, ()) {
  const double x = *numbers(700);
  RC_ASSERT(relative_error(plain_exp(x), expl(x)) < 0x1p-50);
}

RC_GTEST_PROP(PlainExp, SoftplusAndSigmoidAreWithin49Bits, ()) {
  const double x = *numbers(700);
  const long double e = expl(x);
  RC_ASSERT(relative_error(plain_sigmoid(x), e / (1 + e)) < 0x1p-49);
  if (x != 0) RC_ASSERT(relative_error(plain_silu(x), x * e / (1 + e)) < 0x1p-49);
  if (x <= 20) RC_ASSERT(relative_error(plain_softplus(x), log1pl(e)) < 0x1p-49);
  if (x > 20) RC_ASSERT(plain_softplus(x) == x);
}

TEST(PlainExp, PowersOfTheIntegersNearEachStepAgree) {
  for (int n = -1020; n <= 1022; ++n) {
    for (const double off : {-0x1p-30, 0.0, 0x1p-30}) {
      const double x = (n + 0.5) * std::log(2.0) + off;
      ASSERT_LT(relative_error(plain_exp(x), expl(x)), 0x1p-50) << n;
    }
  }
}

TEST(PlainExp, TheEndsAreWhatTheHeaderSays) {
  EXPECT_EQ(plain_exp(0), 1);
  EXPECT_EQ(plain_exp(710), kInf);
  EXPECT_EQ(plain_exp(kInf), kInf);
  EXPECT_EQ(plain_exp(-kInf), plain_exp(-708));
  EXPECT_LT(plain_exp(-kInf), 1e-307);
  EXPECT_EQ(plain_sigmoid(-kInf), 0);
  EXPECT_EQ(plain_sigmoid(kInf), 1);
  EXPECT_EQ(plain_softplus(kInf), kInf);
  EXPECT_EQ(plain_softplus(std::nextafter(20.0, 21.0)), std::nextafter(20.0, 21.0));
  EXPECT_GT(plain_softplus(20), 20);
  EXPECT_EQ(plain_silu(kInf), kInf);
  EXPECT_TRUE(std::isnan(plain_silu(-kInf)));
  for (auto* f : {plain_exp, plain_sigmoid, plain_silu, plain_softplus})
    EXPECT_TRUE(std::isnan(f(kNaN)));
}

}  // namespace
}  // namespace shadowgraph::plain_exp_test
