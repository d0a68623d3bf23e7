// The error bound of rows whose logits have terms (AttentionTerms).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "check/bounds/error_bound.h"
#include "core/choices.h"
#include "oracle/small_call.h"

namespace shadowgraph::terms_bound_test {
namespace {

constexpr int32_t kKeys = 6, kDim = 4;

struct BiasedRow {
  SmallCall call{1, kKeys, 1, 1, kDim, kDim};
  std::vector<float> bias = std::vector<float>(kKeys);

  BiasedRow() {
    Rng rng(11);
    for (std::vector<float>* values : {&call.q, &call.k, &call.v})
      for (float& x : *values) x = rng.signed_unit();
  }
  /// fn(row, bound of plain f32).
  template <class Fn>
  void visit(const Fn& fn) {
    call.params().terms.key_bias = bias;
    for_each_row(call.call, [&](const OracleRow& row) {
      fn(row, error_bound(row, *find_arithmetic("plain_f32"), DType::kF32, DType::kF32,
                          LseSink::kExcluded));
    });
  }
};

TEST(TermsBound, AKeyThatALargeBiasHidesTakesNothingFromIt) {
  for (const float hidden : {-1e4F, -1e9F, std::numeric_limits<float>::lowest()}) {
    BiasedRow row;
    double plain = 0, biased = 0;
    row.visit([&](const OracleRow&, const ErrorBound& b) { plain = b.out.maxCoeff(); });
    row.bias[2] = row.bias[5] = hidden;
    row.visit([&](const OracleRow& r, const ErrorBound& b) {
      biased = b.out.maxCoeff();
      EXPECT_LT(r.weights[2], 1e-300);
      EXPECT_TRUE(std::isfinite(b.lse));
    });
    EXPECT_LT(biased, 4 * plain) << hidden;
    EXPECT_GT(biased, 0) << hidden;
  }
}

TEST(TermsBound, CountsTheRoundingOfALargeBias) {
  BiasedRow row;
  for (size_t i = 0; i < kKeys; ++i) row.bias[i] = 1000.3F + 0.37F * static_cast<float>(i);
  row.visit([&](const OracleRow& r, const ErrorBound& bound) {
    // The same in f32, a sum after the other.
    std::vector<float> logits;
    for (size_t j = 0; j < kKeys; ++j) {
      float dot = 0;
      for (size_t d = 0; d < kDim; ++d) dot += row.call.q[d] * row.call.k[j * kDim + d];
      logits.push_back(dot + row.bias[j]);
    }
    OracleRow without = r;
    without.added.resize(0);
    const ErrorBound less = error_bound(without, *find_arithmetic("plain_f32"), DType::kF32,
                                        DType::kF32, LseSink::kExcluded);
    double largest = 0, of_less = 0;
    for (Eigen::Index d = 0; d < kDim; ++d) {
      double sum = 0, value = 0;
      for (size_t j = 0; j < kKeys; ++j) {
        const double weight = std::exp(double{logits[j]} - double{logits[0]});
        sum += weight, value += weight * row.call.v[j * kDim + static_cast<size_t>(d)];
      }
      const double error = std::abs(value / sum - r.out[d]);
      EXPECT_LE(error, bound.out[d]);
      largest = std::max(largest, error / bound.out[d]);
      of_less = std::max(of_less, error / less.out[d]);
    }
    EXPECT_GT(of_less, 1) << "the roundings show";
    EXPECT_GT(largest, 0);
  });
}

TEST(TermsBound, NothingIsKnownOfALogitThatBase2CannotHold) {
  BiasedRow row;
  row.bias.assign(kKeys, std::numeric_limits<float>::lowest());
  row.visit([](const OracleRow& r, const ErrorBound& bound) {
    EXPECT_TRUE(std::isfinite(r.lse));
    EXPECT_TRUE(std::isinf(bound.lse));
  });
}

}  // namespace
}  // namespace shadowgraph::terms_bound_test
