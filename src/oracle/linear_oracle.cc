#include "oracle/linear_oracle.h"

#include <cmath>
#include <vector>

#include "core/float_formats.h"

namespace shadowgraph {
namespace {

constexpr double kNormEps = 1e-6;

Eigen::VectorXd vector_at(const ConstTensorView& t, int64_t token, int64_t head) {
  Eigen::VectorXd x(t.shape[2]);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = load_float(t.at(token, head, i), t.dtype, 0);
  return x;
}

/// One row at one value head.
class HeadOracle {
 public:
  HeadOracle(const LinearAttention& call, const GateTruth& gates, int64_t row, int64_t head)
      : call_(call), gates_(gates), row_(row), head_(head) {
    step_.row = row, step_.head = head;
  }

  void run(const VisitStep& visit) {
    const int64_t tokens = call_.rows.tokens(row_);
    const RowMatrix first = initial();
    std::vector<RowMatrix> behind;  // each token
    for (int64_t j = 0; j < tokens; ++j) {
      step_.in_row = j;
      step_.token = call_.rows.begin(row_) + j;
      step_.parent = j - 1;
      if (j > 0 && !call_.draft.parents.empty())
        step_.parent = call_.draft.parents[static_cast<size_t>(step_.token)];
      const RowMatrix before = step_.parent < 0 ? first : behind[static_cast<size_t>(step_.parent)];
      behind.push_back(take(before));
      step_.before = &before, step_.after = &behind.back();
      visit(step_);
    }
  }

 private:
  RowMatrix initial() const {
    const int64_t rows = call_.v.shape[2], columns = call_.k.shape[2];
    RowMatrix s = RowMatrix::Zero(rows, columns);
    if (!call_.rows.starts_from_slot(row_)) return s;
    const int64_t slot = call_.rows.slot(row_);
    const bool by_value = call_.order == LinearAttention::StateOrder::kValueKey;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        s(r, c) = load_float(call_.states.at(slot, head_, by_value ? r : c, by_value ? c : r),
                             call_.states.dtype, 0);
    return s;
  }

  double factor(const Eigen::VectorXd& x) const {
    return call_.l2norm ? 1 / std::sqrt(x.squaredNorm() + kNormEps) : 1;
  }

  void read_gates() {
    const int64_t at = step_.token * call_.v.shape[1] + head_, dim = call_.k.shape[2];
    step_.decay.resize(dim);
    const ConstTensorView& g = call_.log_decay;
    for (int64_t i = 0; i < dim; ++i) {
      double log = 0;
      if (!gates_.log_decay.empty()) {
        log = gates_.log_decay[static_cast<size_t>(at * gates_.channels +
                                                   (gates_.channels > 1 ? i : 0))];
      } else {
        log = load_float(g.rank == 1   ? g.at(head_)
                         : g.rank == 2 ? g.at(step_.token, head_)
                                       : g.at(step_.token, head_, i),
                         g.dtype, 0);
      }
      step_.decay[i] = std::exp(log);
    }
    step_.beta = 1;
    if (call_.beta.defined())
      step_.beta = load_float(call_.beta.at(step_.token, head_), call_.beta.dtype, 0);
    if (!gates_.beta.empty()) step_.beta = gates_.beta[static_cast<size_t>(at)];
  }

  RowMatrix take(const RowMatrix& before) {
    const int64_t k_head = head_ / (call_.v.shape[1] / call_.k.shape[1]);
    step_.q = vector_at(call_.q, step_.token, k_head);
    step_.k = vector_at(call_.k, step_.token, k_head);
    step_.v = vector_at(call_.v, step_.token, head_);
    step_.q_factor = factor(step_.q) * call_.scale;
    step_.k_factor = factor(step_.k);
    step_.q *= step_.q_factor;
    step_.k *= step_.k_factor;
    read_gates();

    RowMatrix s = before * step_.decay.asDiagonal();
    step_.old = Eigen::VectorXd::Zero(s.rows());
    if (call_.rule == LinearAttention::Rule::kDelta) step_.old = s * step_.k;
    step_.u = step_.beta * (step_.v - step_.old);
    s += step_.u * step_.k.transpose();
    step_.read = s * step_.q;
    step_.summed = step_.read;
    if (call_.skip.defined())
      step_.summed += load_float(call_.skip.at(head_), DType::kF32, 0) * step_.v;
    step_.gate = Eigen::VectorXd::Ones(s.rows());
    if (call_.z.defined()) {
      const Eigen::VectorXd z = vector_at(call_.z, step_.token, head_);
      for (int64_t i = 0; i < z.size(); ++i) step_.gate[i] = z[i] / (1 + std::exp(-z[i]));
    }
    step_.out = step_.summed.cwiseProduct(step_.gate);
    return s;
  }

  const LinearAttention& call_;
  const GateTruth& gates_;
  const int64_t row_, head_;
  LinearStep step_;
};

}  // namespace

void for_each_step(const LinearAttention& call, const GateTruth& gates, const VisitStep& visit) {
  for (int64_t row = 0; row < call.rows.rows(); ++row) {
    if (!call.rows.is_computed(row)) continue;
    for (int64_t head = 0; head < call.v.shape[1]; ++head)
      HeadOracle(call, gates, row, head).run(visit);
  }
}

}  // namespace shadowgraph
