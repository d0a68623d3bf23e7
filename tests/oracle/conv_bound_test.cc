// The bound of a convolution holds for arithmetics other than ours, carried out here step by step,
// and each of its parts is needed: without it some result lies outside.
#include "check/bounds/conv_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/choices.h"
#include "core/float_formats.h"

namespace shadowgraph::conv_bound_test {
namespace {

using Activation = CausalConv1d::Activation;
constexpr float kInf = std::numeric_limits<float>::infinity();

float rounded(float x, DType t) {
  std::byte memory[8];
  store_float(memory, t, 0, x);
  return load_float(memory, t, 0);
}

/// One channel, one token: what there is to sum.
struct Sum {
  std::vector<float> w, x;
  float bias = 0;

  Sum(Rng& rng, int width, DType type, float largest, float weights) {
    for (int i = 0; i < width; ++i) {
      w.push_back(rounded(weights * rng.signed_unit(), type));
      x.push_back(rounded(largest * rng.signed_unit(), type));
    }
    bias = weights < 1 ? 0 : rounded(rng.signed_unit(), type);
  }
  ConvToken token(Activation a) const {
    ConvToken t;
    t.sum = t.magnitude = t.out = Eigen::ArrayXd::Zero(1);
    t.sum[0] = bias, t.magnitude[0] = std::abs(bias);
    for (size_t i = 0; i < w.size(); ++i) {
      t.sum[0] += static_cast<double>(w[i]) * x[i];
      t.magnitude[0] += std::abs(static_cast<double>(w[i]) * x[i]);
    }
    t.out[0] = t.sum[0];
    if (a == Activation::kSilu) t.out[0] /= 1 + std::exp(-t.sum[0]);
    return t;
  }
  /// As a kernel of this arithmetic would.
  float run(Activation a, const ConvArithmetic& how, DType type) const {
    float s = bias;
    for (size_t i = 0; i < w.size(); ++i) {
      const float product = w[i] * x[i];
      s += how.products_in_type ? rounded(product, type) : product;
    }
    if (a == Activation::kSilu) {
      if (how.silu_error > 0x1p-23) {
        s = s / (1 + static_cast<float>(std::exp(static_cast<double>(-s))));
      } else {
        s = static_cast<float>(s / (1 + std::exp(-static_cast<double>(s))));
      }
    }
    return rounded(s, type);
  }
};

/// The largest error of many sums, of their bound. run: the arithmetic that is carried out.
double worst(const ConvArithmetic& run, const ConvArithmetic& bound, Activation a, DType type,
             float largest, float weights = 1) {
  Rng rng(17);
  double most = 0;
  for (int n = 0; n < 4000; ++n) {
    const int width = 2 + n % 7;
    const Sum sum(rng, width, type, largest, weights);
    const ConvToken t = sum.token(a);
    const double error = std::abs(sum.run(a, run, type) - t.out[0]);
    most = std::max(most, error / conv_bound(t, width, a, bound, type)[0]);
  }
  return most;
}

constexpr ConvArithmetic kOurs;
constexpr ConvArithmetic kInType = {.products_in_type = true};
/// A correctly rounded exp, an addition and a division.
constexpr ConvArithmetic kExpInF32 = {.silu_error = 3.001 * 0x1p-24};

TEST(ConvBound, HoldsForWhatItDescribes) {
  for (const Activation a : {Activation::kNone, Activation::kSilu}) {
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const ConvArithmetic& how : {kOurs, kInType, kExpInF32}) {
        for (const float largest : {1e-2F, 1.F, 20.F, 90.F}) {
          const double most = worst(how, how, a, type, largest);
          EXPECT_LE(most, 1);
          EXPECT_GT(most, 0.1);
        }
      }
    }
  }
}

TEST(ConvBound, HoldsBelowTheNormalRange) {
  for (const Activation a : {Activation::kNone, Activation::kSilu}) {
    for (const ConvArithmetic& how : {kOurs, kInType}) {
      for (const float largest : {1e-20F, 1e-24F}) {
        EXPECT_LE(worst(how, how, a, DType::kF32, largest, 1e-20F), 1);
        EXPECT_LE(worst(how, how, a, DType::kBF16, largest, 1e-20F), 1);
        EXPECT_LE(worst(how, how, a, DType::kF16, largest * 1e17F, 1e-3F), 1);
      }
    }
  }
}

TEST(ConvBound, SeesAnotherArithmetic) {
  // Products of 8 bits have errors that sums of 24 do not; in bf16 the output's rounding hides
  // single ones, but not all.
  EXPECT_GT(worst(kInType, kOurs, Activation::kNone, DType::kBF16, 20), 1);
  EXPECT_GT(worst(kInType, kOurs, Activation::kSilu, DType::kF16, 20), 1);
  // Its division, addition and exp are three roundings; the sum's are what there is beside them.
  const ConvArithmetic coarse = {.silu_error = 0x1p-16};
  EXPECT_LT(worst(kExpInF32, coarse, Activation::kSilu, DType::kF32, 1), 0.1);
}

/// A result in double that is stored in f32 is rounded there.
TEST(ConvBound, DoublesAreRoundedWhereTheyAreStored) {
  ConvToken t;
  t.sum = t.magnitude = t.out = Eigen::ArrayXd::Constant(1, 3);
  const ConvArithmetic in_double = {.u = 0x1p-53, .silu_error = 0x1p-50};
  const double bound = conv_bound(t, 4, Activation::kNone, in_double, DType::kF32)[0];
  EXPECT_GE(bound, 3 * 0x1p-24);
  EXPECT_LE(bound, 3.001 * 0x1p-24);
}

TEST(ConvBound, TheSlopeOfSiluIsItsLargest) {
  double steepest = 0;
  for (int i = -10000; i <= 10000; ++i) {
    const double x = i * 1e-3, s = 1 / (1 + std::exp(-x));
    steepest = std::max(steepest, s * (1 + x * (1 - s)));
  }
  // An error that only the sum has.
  ConvToken t;
  t.sum = t.out = Eigen::ArrayXd::Zero(1), t.magnitude = Eigen::ArrayXd::Constant(1, 1);
  const ConvArithmetic none = {.silu_error = 0};
  const double before = conv_bound(t, 4, Activation::kNone, none, DType::kF32)[0];
  const double after = conv_bound(t, 4, Activation::kSilu, none, DType::kF32)[0];
  EXPECT_GE(after / before, steepest);
  EXPECT_LE(after / before, steepest + 1e-6);
}

TEST(ConvBound, AddsWhatIsFlushed) {
  ConvToken t;
  t.sum = t.magnitude = t.out = Eigen::ArrayXd::Constant(1, 1e-38);
  const auto bound = [&](const ConvArithmetic& a) {
    return conv_bound(t, 2, Activation::kNone, a, DType::kF32)[0];
  };
  EXPECT_LT(bound({}), 1e-44);
  EXPECT_GE(bound({.flushes = true}), 1e-38);
}

TEST(ConvBound, IsInfiniteWhereASumMayOverflow) {
  ConvToken t;
  t.sum = t.out = Eigen::ArrayXd::Zero(3);
  t.magnitude = Eigen::ArrayXd::Zero(3);
  t.magnitude << 1e38, 60000, 3.5e38;
  const auto bound = [&](const ConvArithmetic& a, DType type) {
    return conv_bound(t, 4, Activation::kNone, a, type);
  };
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Eigen::ArrayXd b = bound(kOurs, type);
    EXPECT_LT(b[0], kInf);
    EXPECT_EQ(b[2], kInf);
  }
  EXPECT_EQ(bound(kInType, DType::kF16)[0], kInf);
  EXPECT_LT(bound(kInType, DType::kF16)[1], kInf);
  EXPECT_LT(bound(kInType, DType::kBF16)[0], kInf);
}

TEST(ConvBound, ZerosAreExact) {
  ConvToken t;
  t.computed = false;
  t.out = t.magnitude = Eigen::ArrayXd::Zero(2);
  EXPECT_EQ(conv_bound(t, 4, Activation::kSilu, kOurs, DType::kBF16).maxCoeff(), 0);
}

}  // namespace
}  // namespace shadowgraph::conv_bound_test
