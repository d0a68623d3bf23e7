#include "check/linear_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/laws.h"

namespace shadowgraph {
namespace {

constexpr double kSmallest = 0x1p-126;

double gamma(double terms, double u) {
  return terms * u < 1 ? terms * u / (1 - terms * u) : std::numeric_limits<double>::infinity();
}

double unit_roundoff(DType t) {
  switch (t) {
    case DType::kF16: return 0x1p-11;
    case DType::kBF16: return 0x1p-8;
    case DType::kF64: return 0x1p-53;
    default: return 0x1p-24;
  }
}
/// Half the distance between the smallest numbers of the type.
double half_smallest(DType t) {
  switch (t) {
    case DType::kF16: return 0x1p-25;
    case DType::kF64: return 0;
    default: return 0x1p-126;
  }
}

}  // namespace

double with_rounding(double value, double error, DType t) {
  return error + unit_roundoff(t) * (std::abs(value) + error) + half_smallest(t);
}

double LinearBounds::decay_error(const LinearStep& step) const {
  double log_error = 0;
  if (!errors_.log_decay.empty()) {
    const int64_t at = (step.token * call_.v.shape[1] + step.head) * gates_.channels;
    for (int64_t i = 0; i < gates_.channels; ++i)
      log_error = std::max(log_error, errors_.log_decay[static_cast<size_t>(at + i)]);
  }
  return std::exp(log_error) * (1 + a_.exp_error) - 1;
}

double LinearBounds::beta_error(const LinearStep& step) const {
  double error = a_.beta_error;
  if (!errors_.beta.empty() && step.beta != 0) {
    const double absolute =
        errors_.beta[static_cast<size_t>(step.token * call_.v.shape[1] + step.head)];
    error += absolute / std::abs(step.beta) * (1 + error);
  }
  return error;
}

const StepBound& LinearBounds::of(const LinearStep& step) {
  if (step.in_row == 0) behind_.clear();
  const int64_t rows = step.v.size(), columns = step.k.size();
  const Eigen::VectorXd before = step.parent < 0 ? Eigen::VectorXd(Eigen::VectorXd::Zero(rows))
                                                 : behind_[static_cast<size_t>(step.parent)];
  const double h_a = decay_error(step), h_b = beta_error(step);
  const double h_q = call_.l2norm || call_.scale != 1 ? a_.norm_error : 0;
  const double h_k = call_.l2norm ? a_.norm_error : 0;
  const double dot = gamma(static_cast<double>(columns) + 2, a_.u_sum);
  const double kappa = step.k.norm(), theta = step.q.norm(), beta = std::abs(step.beta);
  const bool delta = call_.rule == LinearAttention::Rule::kDelta;
  const double c = delta ? std::max(1.0, std::abs(1 - step.beta * kappa * kappa)) : 1;
  const double weight = (1 + h_b) * (1 + a_.u) * (1 + a_.u), product = (1 + h_k) * weight;
  const double flushed =
      kSmallest * static_cast<double>(columns + 4) * (1 + kappa + theta) * (1 + beta);

  bound_.out.resize(rows), bound_.state.resize(rows);
  for (int64_t v = 0; v < rows; ++v) {
    const double n = (step.before->row(v).transpose().array() * step.decay.array()).matrix().norm();
    const double after = step.after->row(v).norm(), u = std::abs(step.u[v]);
    const double e1 = step.decay.maxCoeff() * (1 + h_a) * before[v] + h_a * n;
    double wrong = (weight - 1) * u, whole = wrong;
    if (delta) {
      wrong +=
          beta * kappa * (e1 * (product - 1) + (h_k * n + dot * (n + e1) * (1 + h_k)) * product);
      whole = wrong + beta * kappa * e1 * product;
    }
    wrong += flushed, whole += flushed;
    double e = c * e1 + kappa * wrong + h_k * kappa * (u + whole) + flushed;
    e = (e + a_.u * (n + e1 + after)) / (1 - 2 * a_.u);
    bound_.state[v] = e;
    double read = e * theta * (1 + h_q) + (n + e1 + after + (u + whole) * kappa) * theta *
                                              (h_q + h_k + dot * (1 + h_q) * (1 + h_k));
    read += flushed + a_.u * (std::abs(step.read[v]) + read);
    double sum = read;
    if (call_.skip.defined())  // a product and a sum, each rounded
      sum += a_.u * (std::abs(step.summed[v]) + std::abs(step.summed[v] - step.read[v]) + read);
    const double gate = std::abs(step.gate[v]), gate_error = call_.z.defined() ? a_.silu_error : 0;
    const double out = sum * gate * (1 + gate_error) + gate_error * std::abs(step.out[v]);
    bound_.out[v] = out + a_.out_roundings * a_.u * (std::abs(step.out[v]) + out);
  }
  behind_.push_back(bound_.state);
  return bound_;
}

}  // namespace shadowgraph
