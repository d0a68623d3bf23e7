#include "check/bounds/linear_bound.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attn/state_chunks.h"
#include "check/bounds/chunk_bound.h"
#include "check/bounds/rounding.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

/// Rounding of a result: f64 results are a reference's; f32 and bf16 may be flushed.
Rounding rounding_of(DType t) {
  if (t == DType::kF64) return {0x1p-53, 0};
  Rounding r = rounding_to(t);
  if (t == DType::kF32 || t == DType::kBF16) r.half_subnormal = kFlushed;
  return r;
}

}  // namespace

int64_t element_offset(const ConstTensorView& t, int64_t flat) {
  int64_t at = 0;
  for (int i = t.rank - 1; i >= 0; --i) {
    const auto axis = static_cast<size_t>(i);
    at += flat % t.shape[axis] * t.stride[axis];
    flat /= t.shape[axis];
  }
  return at;
}

double element(const ConstTensorView& t, int64_t flat) {
  const int64_t at = element_offset(t, flat);
  if (t.dtype != DType::kF64) return load_float(t.data, t.dtype, at);
  double x = 0;
  std::memcpy(&x, t.data + at * 8, 8);
  return x;
}

double with_rounding(double value, double error, DType t) {
  const Rounding r = rounding_of(t);
  return error + r.u * (std::abs(value) + error) + r.half_subnormal;
}

GateErrors gate_errors(const DecayGate& gate, const GateTruth& truth,
                       const RecurrentArithmetic& a) {
  GateErrors e;
  e.log_decay.resize(truth.log_decay.size());
  e.beta.resize(truth.beta.size());
  const bool step = gate.kind == DecayGate::Kind::kStep;
  for (size_t i = 0; i < truth.log_decay.size(); ++i) {
    const auto n = static_cast<int64_t>(i), head = n / truth.channels % gate.a_log.numel();
    double x = 1 + std::abs(element(gate.x, n));
    if (gate.dt_bias.defined()) x += std::abs(element(gate.dt_bias, n % gate.dt_bias.numel()));
    const double of_head = element(gate.a_log, head);
    double factor = step ? std::abs(of_head) : std::exp(of_head);
    // The bounded gate takes exp(a_log) inside its sigmoid.
    if (gate.kind == DecayGate::Kind::kLowerBound) factor *= std::abs(gate.lower_bound);
    e.log_decay[i] = a.gate_relative * std::abs(truth.log_decay[i]) + a.gate_absolute * x * factor;
    if (step) e.beta[i] = a.gate_relative * std::abs(truth.beta[i]) + a.gate_absolute * x;
  }
  for (size_t i = 0; i < truth.beta.size() && !step; ++i)
    e.beta[i] = a.gate_relative * truth.beta[i];
  return e;
}

LinearBounds::LinearBounds(const LinearAttention& call, const RecurrentArithmetic& arithmetic,
                           const GateTruth& gates, GateErrors errors)
    : call_(call), a_(arithmetic), gates_(gates), errors_(std::move(errors)) {
  if (a_.chunk != 0) bound_chunks();
}

bool LinearBounds::ends_chunk(const LinearStep& step) const {
  if (step.in_row + 1 == call_.rows.tokens(step.row)) return true;
  if (a_.chunk > 0) return (step.in_row + 1) % a_.chunk == 0;
  return begins_chunk(call_, step.token + 1, step.in_row + 1);
}

void LinearBounds::bound_chunks() {
  in_chunks_.resize(static_cast<size_t>(call_.v.shape[0] * call_.v.shape[1]));
  std::vector<ChunkToken> tokens;
  std::vector<LinearStep> steps;
  std::vector<Eigen::VectorXd> partial;
  RowMatrix before;
  Eigen::VectorXd error;
  for_each_step(call_, gates_, [&](const LinearStep& step) {
    if (step.in_row == 0) error = Eigen::VectorXd::Zero(step.v.size());
    if (tokens.empty()) before = *step.before;
    tokens.push_back(
        {step.q, step.k, step.v, step.decay, step.u, step.beta, beta_error(step), log_error(step)});
    steps.push_back(step);
    partial.emplace_back(error.size());
    for (int64_t v = 0; v < error.size(); ++v) partial.back()[v] = partial_sum(step, v);
    if (!ends_chunk(step)) return;
    const ChunkBound chunk =
        chunk_bound(tokens, before, error, call_.rule == LinearAttention::Rule::kDelta,
                    call_.l2norm, a_, call_.v.dtype, call_.states.dtype);
    for (size_t i = 0; i < steps.size(); ++i) {
      StepBound& b = in_chunks_[static_cast<size_t>(steps[i].token * call_.v.shape[1] + step.head)];
      b.state = Eigen::VectorXd::Constant(error.size(), std::numeric_limits<double>::infinity());
      b.out.resize(error.size());
      for (int64_t v = 0; v < error.size(); ++v)
        b.out[v] = out_error(steps[i], v, chunk.read[i][v], partial[i][v]);
      if (i + 1 == steps.size()) b.state = chunk.state;
    }
    error = chunk.state;
    tokens.clear(), steps.clear(), partial.clear();
  });
}

double LinearBounds::log_error(const LinearStep& step) const {
  double error = 0;
  if (!errors_.log_decay.empty()) {
    const int64_t at = (step.token * call_.v.shape[1] + step.head) * gates_.channels;
    for (int64_t i = 0; i < gates_.channels; ++i)
      error = std::max(error, errors_.log_decay[static_cast<size_t>(at + i)]);
  }
  return error;
}

double LinearBounds::decay_error(const LinearStep& step) const {
  return std::exp(log_error(step)) * (1 + a_.exp_error) - 1;
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

double LinearBounds::partial_sum(const LinearStep& step, int64_t v) const {
  if (a_.partial_channels == 0) return 0;
  double sum = 0;
  for (int64_t i = 0; i < step.q.size(); i += a_.partial_channels) {
    const int64_t n = std::min<int64_t>(a_.partial_channels, step.q.size() - i);
    sum += std::abs(step.after->row(v).segment(i, n).dot(step.q.segment(i, n).transpose()));
  }
  return sum;
}

double LinearBounds::out_error(const LinearStep& step, int64_t v, double read,
                               double partial) const {
  double sum = read;
  if (a_.partial_channels > 0)  // each part is within `read` at most
    sum += rounding_of(call_.out.dtype).u *
           (partial + std::ceil(static_cast<double>(step.k.size()) / a_.partial_channels) * read);
  if (call_.skip.defined())  // a product and a sum, each rounded
    sum += a_.u * (std::abs(step.summed[v]) + std::abs(step.summed[v] - step.read[v]) + read);
  const double gate = std::abs(step.gate[v]), gate_error = call_.z.defined() ? a_.silu_error : 0;
  const double out = sum * gate * (1 + gate_error) + gate_error * std::abs(step.out[v]);
  return out + a_.out_roundings * a_.u * (std::abs(step.out[v]) + out);
}

Eigen::VectorXd LinearBounds::error_before(const LinearStep& step) const {
  if (step.parent < 0) return Eigen::VectorXd::Zero(step.v.size());
  Eigen::VectorXd error = behind_[static_cast<size_t>(step.parent)];
  const DraftSteps& draft = call_.draft;
  const bool kept = !draft.parents.empty() && draft.keeps(call_.rows.slot(step.row) >= 0);
  if (!kept || !a_.rounds_kept || draft.states.dtype == DType::kF32) return error;
  const Rounding r = rounding_of(draft.states.dtype);
  const double flushed = r.half_subnormal * std::sqrt(static_cast<double>(step.k.size()));
  for (int64_t v = 0; v < error.size(); ++v)
    error[v] += r.u * (step.before->row(v).norm() + error[v]) + flushed;
  return error;
}

const StepBound& LinearBounds::of(const LinearStep& step) {
  if (a_.chunk != 0)
    return in_chunks_[static_cast<size_t>(step.token * call_.v.shape[1] + step.head)];
  if (step.in_row == 0) behind_.clear();
  const int64_t rows = step.v.size(), columns = step.k.size();
  const Eigen::VectorXd before = error_before(step);
  const double h_a = decay_error(step), h_b = beta_error(step);
  const double h_q = (call_.l2norm || call_.scale != 1 ? a_.norm_error : 0) + a_.scale_error;
  const double h_k = call_.l2norm ? a_.norm_error : 0;
  const double dot = gamma_of(static_cast<double>(columns) + 2, a_.u_sum);
  const double kappa = step.k.norm(), theta = step.q.norm(), beta = std::abs(step.beta);
  const bool delta = call_.rule == LinearAttention::Rule::kDelta;
  const double c = delta ? std::max(1.0, std::abs(1 - step.beta * kappa * kappa)) : 1;
  const double weight = (1 + h_b) * (1 + a_.u) * (1 + a_.u), product = (1 + h_k) * weight;
  const double flushed =
      kFlushed * static_cast<double>(columns + 4) * (1 + kappa + theta) * (1 + beta);

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
    const double outer = a_.outer_in_type ? rounding_of(call_.k.dtype).u : 0;
    double e = c * e1 + kappa * wrong + (h_k + outer) * kappa * (u + whole) + flushed;
    e = (e + a_.u * (n + e1 + after)) / (1 - 2 * a_.u);
    bound_.state[v] = e;
    double read = e * theta * (1 + h_q) + (n + e1 + after + (u + whole) * kappa) * theta *
                                              (h_q + h_k + dot * (1 + h_q) * (1 + h_k));
    read += flushed + a_.u * (std::abs(step.read[v]) + read);
    bound_.out[v] = out_error(step, v, read, partial_sum(step, v));
  }
  behind_.push_back(bound_.state);
  return bound_;
}

}  // namespace shadowgraph
