#include "check/bounds/conv_bound.h"

#include <cmath>
#include <limits>

#include "check/bounds/error_bound.h"
#include "check/bounds/rounding.h"

namespace shadowgraph {
namespace {

constexpr double kSiluSlope = 1.0998394;  // rounded up

/// Bound of the sum before the activation.
Eigen::ArrayXd sum_bound(const ConvToken& t, double width, const ConvArithmetic& a, DType x_type) {
  const double g = gamma_of(width, a.u);
  const DType product_type = a.products_in_type ? x_type : DType::kF32;
  Rounding product = rounding_to(product_type);
  if (!a.products_in_type) product.u = a.u;
  const double flushed = a.flushes ? kFlushed : 0;
  const double lost = width * (product.half_subnormal + 2 * flushed) * (1 + g);
  const Eigen::ArrayXd bound = t.magnitude * (g * (1 + product.u) + product.u) + lost;
  const double largest = largest_finite(product_type) / ((1 + g) * (1 + product.u));
  return (t.magnitude > largest).select(kInfinity, bound);
}

}  // namespace

Eigen::ArrayXd conv_bound(const ConvToken& token, int64_t width,
                          CausalConv1d::Activation activation, const ConvArithmetic& a,
                          DType x_type) {
  if (!token.computed) return Eigen::ArrayXd::Zero(token.out.size());
  Eigen::ArrayXd bound = sum_bound(token, static_cast<double>(width), a, x_type);
  if (activation == CausalConv1d::Activation::kSilu) {
    bound *= kSiluSlope;
    bound += a.silu_error * (token.out.abs() + bound) + (a.flushes ? kFlushed : 0x1p-150);
  }
  if (x_type == DType::kF32 && a.u >= rounding_to(x_type).u) return bound;
  const Rounding out = rounding_to(x_type);
  return bound + out.u * (token.out.abs() + bound) + out.half_subnormal;
}

}  // namespace shadowgraph
