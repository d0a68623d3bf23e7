// The calls of recurrent vectors by their formulas, in double and one element after the other: what
// a reader made of a case is right if this gives the case's reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "attn/cases/recorded_case.h"
#include "core/float_formats.h"

namespace shadowgraph {

struct NaiveResult {
  std::vector<double> out;     // [tokens, ...]
  std::vector<double> states;  // [rows, ...a state]: behind each row's last token
  std::vector<double> draft;   // [tokens, ...a state]
  std::vector<double> chunks;  // [chunks, ...a state], on the call's grid
};

inline double element(const ConstTensorView& view, int64_t at) {
  if (view.dtype == DType::kF64) return reinterpret_cast<const double*>(view.data)[at];
  return load_float(view.data, view.dtype, at);
}

template <class... Index>
double at(const ConstTensorView& view, Index... index) {
  return element(view, view.offset(index...));
}

inline double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Decay and weight of a token's head and channel.
struct NaiveDecay {
  const LinearAttention& call;
  const DecayGate* gate;

  double log_decay(int64_t t, int64_t h, int64_t c) const {
    if (gate != nullptr) return gated(t, h, c);
    if (call.log_decay.rank == 1) return at(call.log_decay, h);
    return call.log_decay.rank == 2 ? at(call.log_decay, t, h) : at(call.log_decay, t, h, c);
  }
  double beta(int64_t t, int64_t h) const {
    if (gate != nullptr && gate->kind == DecayGate::Kind::kStep) return softplus(x(t, h, 0));
    if (gate != nullptr && gate->b.defined()) return sigmoid(at(gate->b, t, h));
    return call.beta.defined() ? at(call.beta, t, h) : 1;
  }

 private:
  double x(int64_t t, int64_t h, int64_t c) const {
    if (gate->x.rank == 2) return at(gate->x, t, h) + at(gate->dt_bias, h);
    return at(gate->x, t, h, c) + at(gate->dt_bias, h, c);
  }
  double gated(int64_t t, int64_t h, int64_t c) const {
    const double a = at(gate->a_log, h);
    switch (gate->kind) {
      case DecayGate::Kind::kSoftplus: return -std::exp(a) * softplus(x(t, h, c));
      case DecayGate::Kind::kLowerBound:
        return double{gate->lower_bound} * sigmoid(std::exp(a) * x(t, h, c));
      case DecayGate::Kind::kStep: return a * softplus(x(t, h, c));
    }
    return 0;
  }
};

class NaiveRecurrence {
 public:
  explicit NaiveRecurrence(const RecordedCase& vector)
      : vector_(vector),
        recurrence_(std::get<Recurrence>(vector.call)),
        call_(recurrence_.call),
        decay_{call_, recurrence_.gate ? &*recurrence_.gate : nullptr} {
    heads_ = call_.v.shape[1], dim_v_ = call_.v.shape[2], dim_k_ = call_.k.shape[2];
    key_value_ = call_.order == LinearAttention::StateOrder::kKeyValue;
  }

  NaiveResult run() {
    for (int64_t r = 0; r < call_.rows.rows(); ++r) run_row(r);
    return std::move(result_);
  }

 private:
  using State = std::vector<double>;  // as the pool has it

  size_t cell(int64_t h, int64_t v, int64_t k) const {
    return static_cast<size_t>(key_value_ ? (h * dim_k_ + k) * dim_v_ + v
                                          : (h * dim_v_ + v) * dim_k_ + k);
  }

  void run_row(int64_t r) {
    const auto size = static_cast<size_t>(heads_ * dim_v_ * dim_k_);
    State s(size, 0);
    const int64_t slot = call_.rows.state_indices[static_cast<size_t>(r)];
    for (size_t i = 0; call_.rows.starts_from_slot(r) && i < size; ++i)
      s[i] = element(vector_.states_before,
                     slot * static_cast<int64_t>(size) + static_cast<int64_t>(i));
    const int64_t first = call_.rows.cu_seqlens_q[static_cast<size_t>(r)];
    std::vector<State> steps;
    for (int64_t j = 0; j < call_.rows.tokens(r); ++j) {
      const int64_t t = first + j, grid = call_.chunk_grid == ChunkGrid::kRow ? j : t;
      if (grid % call_.chunk_size == 0 || j == 0) append(&result_.chunks, s);
      if (j > 0 && !call_.draft.parents.empty())
        s = steps[static_cast<size_t>(call_.draft.parents[static_cast<size_t>(t)])];
      for (int64_t h = 0; h < heads_; ++h) step(t, h, &s);
      const bool zero = slot < 0 && call_.rows.pad == PadRow::kZeroOut;
      if (zero) std::fill(result_.out.end() - heads_ * dim_v_, result_.out.end(), 0.0);
      steps.push_back(s);
      append(&result_.draft, s);
    }
    append(&result_.states, s);
  }

  double inverse_norm(const ConstTensorView& x, int64_t t, int64_t h) const {
    if (!call_.l2norm) return 1;
    double sum = 1e-6;
    for (int64_t c = 0; c < dim_k_; ++c) sum += at(x, t, h, c) * at(x, t, h, c);
    return 1 / std::sqrt(sum);
  }

  void step(int64_t t, int64_t h, State* s) {
    const int64_t group = h / (heads_ / call_.k.shape[1]);
    const double q_norm = inverse_norm(call_.q, t, group), k_norm = inverse_norm(call_.k, t, group);
    const double beta = decay_.beta(t, h);
    for (int64_t v = 0; v < dim_v_; ++v) {
      double old = 0, out = 0;
      const double x = at(call_.v, t, h, v);
      for (int64_t c = 0; c < dim_k_; ++c) {
        double& state = (*s)[cell(h, v, c)];
        state *= std::exp(decay_.log_decay(t, h, c));
        old += state * at(call_.k, t, group, c) * k_norm;
      }
      const double u = beta * (call_.rule == LinearAttention::Rule::kDelta ? x - old : x);
      for (int64_t c = 0; c < dim_k_; ++c) {
        double& state = (*s)[cell(h, v, c)];
        state += u * at(call_.k, t, group, c) * k_norm;
        out += state * at(call_.q, t, group, c) * q_norm;
      }
      out *= double{call_.scale};
      if (call_.skip.defined()) out += at(call_.skip, h) * x;
      if (call_.z.defined()) out *= at(call_.z, t, h, v) * sigmoid(at(call_.z, t, h, v));
      result_.out.push_back(out);
    }
  }

  static void append(std::vector<double>* to, const State& s) {
    to->insert(to->end(), s.begin(), s.end());
  }

  const RecordedCase& vector_;
  const Recurrence& recurrence_;
  const LinearAttention& call_;
  NaiveDecay decay_;
  int64_t heads_ = 0, dim_v_ = 0, dim_k_ = 0;
  bool key_value_ = false;
  NaiveResult result_;
};

inline NaiveResult naive_conv(const RecordedCase& vector) {
  const auto& call = std::get<ConvCase>(vector.call).call;
  const StateRows& rows = call.rows;
  const int64_t dim = call.x.shape[1], width = call.weight.shape[1];
  NaiveResult result;
  // A row's inputs: [0, width - 1) the slot's, then its tokens.
  const auto input = [&](int64_t r, int64_t i, int64_t c) {
    const auto row = static_cast<size_t>(r);
    if (i >= width - 1) return at(call.x, rows.cu_seqlens_q[row] + i - (width - 1), c);
    return rows.starts_from_slot(r) ? at(vector.states_before, rows.state_indices[row], c, i) : 0.0;
  };
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const int64_t first = rows.cu_seqlens_q[static_cast<size_t>(r)];
    for (int64_t j = 0; j < rows.tokens(r); ++j) {
      std::vector<int64_t> path(1, j + width - 1);  // newest first
      while (std::ssize(path) < width) {
        const int64_t token = path.back() - (width - 1);
        const bool tree = token > 0 && !call.draft.parents.empty();
        path.push_back(tree ? call.draft.parents[static_cast<size_t>(first + token)] + width - 1
                            : path.back() - 1);
      }
      for (int64_t c = 0; c < dim; ++c) {
        double y = call.bias.defined() ? at(call.bias, c) : 0;
        for (int64_t i = 0; i < width; ++i)
          y += at(call.weight, c, width - 1 - i) * input(r, path[static_cast<size_t>(i)], c);
        const bool silu = call.activation == CausalConv1d::Activation::kSilu;
        result.out.push_back(silu ? y * sigmoid(y) : y);
        for (int64_t i = width - 2; i >= 0; --i)
          result.draft.push_back(input(r, path[static_cast<size_t>(i)], c));
      }
    }
    for (int64_t c = 0; c < dim; ++c)
      for (int64_t i = 0; i < width - 1; ++i)
        result.states.push_back(input(r, rows.tokens(r) + i, c));
  }
  return result;
}

}  // namespace shadowgraph
