#include "check/bounds/compress_bound.h"

#include <cmath>
#include <limits>

#include "check/bounds/rounding.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

/// Bound of one channel.
double pool_bound(const Eigen::ArrayXd& x, const Eigen::ArrayXd& kv, double y,
                  const CompressArithmetic& a) {
  const double most = x.maxCoeff();
  if (most == -kInfinity) return 0;
  const double three = std::pow(1 + a.u, 3), g = gamma_of(static_cast<double>(x.size()) + 1, a.u);
  double mass = 0, above = 0, below = 0;
  for (Eigen::Index i = 0; i < x.size(); ++i) {
    if (x[i] == -kInfinity) continue;
    const double d = most - x[i], w = std::exp(-d);
    const double exponent = a.u * (std::abs(x[i]) + std::abs(most)) * three + (three - 1) * d;
    const double t = (1 + a.exp_error) * std::exp(exponent) * (1 + g) - 1;
    mass += w;
    above += (w * t + kFlushed) * std::abs(kv[i]) + kFlushed;
    below += w * t + kFlushed;
  }
  above /= mass, below /= mass;
  if (!(below < 1)) return kInfinity;
  const double bound = (above + std::abs(y) * below) / (1 - below);
  return bound + a.u * (std::abs(y) + bound);
}

}  // namespace

Eigen::ArrayXd pool_bound(const PoolTruth& truth, const CompressArithmetic& a) {
  Eigen::ArrayXd bound(truth.pooled.size());
  for (Eigen::Index c = 0; c < bound.size(); ++c)
    bound[c] = pool_bound(truth.score.col(c).array() + truth.ape.col(c).array(),
                          truth.kv.col(c).array(), truth.pooled[c], a);
  return bound;
}

Eigen::ArrayXd norm_bound(const NormTruth& truth, const Eigen::ArrayXd& before,
                          const ConstTensorView& weight, const ConstTensorView& freqs, int64_t row,
                          const CompressArithmetic& a) {
  const auto dim = static_cast<double>(truth.x.size());
  const double moved = std::sqrt(before.square().sum() / dim) / truth.root;
  const double h = gamma_of(dim + 2, a.u) / 2 + a.root_error;
  const double factor = moved < 1 ? (1 + h) / (1 - moved) - 1 : kInfinity;
  Eigen::ArrayXd bound = (truth.x.abs() * factor + before * (1 + factor)) / truth.root;
  for (Eigen::Index c = 0; c < bound.size(); ++c)
    bound[c] *= std::abs(load_float(weight.at(c), DType::kF32, 0));
  const double g = gamma_of(2, a.u);
  bound += g * (truth.normed.abs() + bound) + kFlushed;
  const Eigen::Index first = bound.size() - freqs.shape[1];
  for (Eigen::Index i = 0; i < freqs.shape[1] / 2; ++i) {
    const double cos = std::abs(load_float(freqs.at(row, 2 * i), DType::kF32, 0));
    const double sin = std::abs(load_float(freqs.at(row, 2 * i + 1), DType::kF32, 0));
    const Eigen::Index p = first + 2 * i, q = p + 1;
    const double x = std::abs(truth.normed[p]), y = std::abs(truth.normed[q]);
    const double x_error = bound[p], y_error = bound[q];
    bound[p] = (x_error * cos + y_error * sin) * (1 + g) + g * (x * cos + y * sin) + kFlushed;
    bound[q] = (x_error * sin + y_error * cos) * (1 + g) + g * (x * sin + y * cos) + kFlushed;
  }
  return bound;
}

}  // namespace shadowgraph
