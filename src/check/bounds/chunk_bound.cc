#include "check/bounds/chunk_bound.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "check/bounds/rounding.h"

namespace shadowgraph {
namespace {

using Matrix = Eigen::MatrixXd;

/// Roundoff of an operand of a matrix product; TF32 may be truncated.
double operand_roundoff(DType t) { return t == DType::kF32 ? 0x1p-10 : rounding_to(t).u; }

class Chunk {
 public:
  Chunk(const std::vector<ChunkToken>& tokens, const RowMatrix& before,
        const Eigen::VectorXd& error, bool delta, bool normalised, const RecurrentArithmetic& a,
        DType type)
      : t_(tokens),
        before_(before),
        error_(error),
        a_(a),
        delta_(delta),
        p_(a.f32_products ? a.u : operand_roundoff(type)),
        h_(p_ + (normalised ? p_ : 0)),
        n_(std::ssize(tokens)),
        dim_(before.cols()),
        dot_(gamma_of(static_cast<double>(dim_) + 2, a.u_sum)),
        sum_(gamma_of(static_cast<double>(n_) + 2, a.u_sum)),
        chain_(a.f32_products ? sum_ : 0),
        solved_(a.f32_products ? dot_ : 0) {
    // Each product of a token's dots and of its sums may be flushed, next to operands of any size.
    double largest = 1 + before_.cwiseAbs().maxCoeff();
    for (const ChunkToken& t : t_)
      largest += t.q.norm() + t.k.norm() + t.u.norm() + std::abs(t.beta) * t.v.norm();
    flushed_ = kFlushed * static_cast<double>((dim_ + n_ + 4) * (n_ + 1)) * largest * largest;
    make_decays();
    make_products();
    if (delta_) make_inverse();
  }

  ChunkBound bound(DType state_type) const {
    ChunkBound b;
    const int64_t rows = before_.rows();
    b.state.resize(rows);
    for (int64_t i = 0; i < n_; ++i) b.read.emplace_back(rows);
    for (int64_t v = 0; v < rows; ++v) bound_row(v, state_type, &b);
    return b;
  }

 private:
  const ChunkToken& at(int64_t i) const { return t_[static_cast<size_t>(i)]; }

  void make_decays() {
    Eigen::VectorXd all = Eigen::VectorXd::Ones(dim_);
    double logs = 0, log_error = 0, through = 1;
    for (int64_t i = 0; i < n_; ++i) {
      const ChunkToken& x = at(i);
      all = all.cwiseProduct(x.decay);
      from_start_.push_back(all);
      // A decay below e^-200 is nothing, whatever its relative error.
      logs += std::min(200.0, -std::log(std::max(x.decay.minCoeff(), 1e-300)));
      log_error += x.log_error;
      if (a_.running_decays) log_error += a_.exp_error + a_.u;
      // Sums of logarithms are rounded, and so is the difference of two.
      const double rounding = static_cast<double>(i + 3) * a_.u * logs;
      decay_error_ = std::expm1(2 * (log_error + rounding)) + a_.exp_error * 2;
      const double kappa = x.k.squaredNorm();
      through *= x.decay.maxCoeff() * (delta_ ? std::max(1.0, std::abs(1 - x.beta * kappa)) : 1);
      through_.push_back(through);
    }
  }

  /// Dots of i's and j's vectors with the decay between them, and of their magnitudes.
  void make_products() {
    keys_ = key_sizes_ = reads_ = read_sizes_ = Matrix::Zero(n_, n_);
    to_end_.resize(n_);
    for (int64_t j = 0; j < n_; ++j) {
      Eigen::VectorXd decayed = at(j).k;
      for (int64_t i = j; i < n_; ++i) {
        if (i > j) decayed = decayed.cwiseProduct(at(i).decay);
        const Eigen::VectorXd size = decayed.cwiseAbs();
        keys_(i, j) = at(i).k.dot(decayed);
        key_sizes_(i, j) = at(i).k.cwiseAbs().dot(size);
        reads_(i, j) = std::abs(at(i).q.dot(decayed));
        read_sizes_(i, j) = at(i).q.cwiseAbs().dot(size);
      }
      to_end_[j] = decayed.norm();
    }
  }

  void make_inverse() {
    Matrix l = Matrix::Zero(n_, n_), d = l;
    // Blocks of 16 are inverted by substitution and merged by two products, each of two operands in
    // TF32, which may be truncated.
    const double inverting =
        (a_.f32_products ? 0 : 4 * 0x1p-10) + gamma_of(static_cast<double>(n_), a_.u_sum);
    for (int64_t i = 0; i < n_; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        const double factor =
            (1 + h_) * (1 + h_) * (1 + decay_error_) * (1 + at(i).beta_error) * (1 + dot_);
        l(i, j) = at(i).beta * keys_(i, j);
        d(i, j) = std::abs(at(i).beta) * key_sizes_(i, j) * (factor - 1 + inverting);
      }
    }
    const Matrix one = Matrix::Identity(n_, n_);
    const Matrix t = (one + l).triangularView<Eigen::UnitLower>().solve(one);
    inverse_ = t.cwiseAbs();
    const Matrix td = inverse_ * d;
    inverse_error_ = (one - td).triangularView<Eigen::UnitLower>().solve(td * inverse_);
    inverse_error_ += p_ * (inverse_ + inverse_error_);
    // w, as a norm, and its error.
    w_.resize(n_), w_error_.resize(n_);
    for (int64_t i = 0; i < n_; ++i) {
      Eigen::VectorXd w = Eigen::VectorXd::Zero(dim_);
      double error = 0;
      for (int64_t j = 0; j <= i; ++j) {
        const Eigen::VectorXd key =
            from_start_[static_cast<size_t>(j)].cwiseProduct(at(j).k) * at(j).beta;
        w += t(i, j) * key;
        const double factor = (1 + h_) * (1 + p_) * (1 + decay_error_) * (1 + at(j).beta_error) *
                              (1 + sum_) * (1 + solved_);
        error += (inverse_error_(i, j) * factor + inverse_(i, j) * (factor - 1)) * key.norm();
      }
      w_[i] = w.norm();
      w_error_[i] = error + p_ * (w_[i] + error);
    }
    made_ = t;
  }

  /// Error of u, except what the error of the state adds to it.
  Eigen::VectorXd error_of_u(int64_t v, double norm) const {
    Eigen::VectorXd error(n_);
    for (int64_t i = 0; i < n_; ++i) {
      const ChunkToken& x = at(i);
      const double given = (1 + x.beta_error) * (1 + p_) * (1 + a_.u);
      if (!delta_) {
        error[i] = (given - 1) * std::abs(x.u[v]);
        continue;
      }
      double value = 0, off = 0;
      for (int64_t j = 0; j <= i; ++j) {
        const double size = std::abs(at(j).beta * at(j).v[v]);
        const double factor = (1 + at(j).beta_error) * (1 + p_) * (1 + p_) * (1 + sum_);
        off += (inverse_error_(i, j) * factor + inverse_(i, j) * (factor - 1)) * size;
        value += made_(i, j) * at(j).beta * at(j).v[v];
      }
      off += p_ * (std::abs(value) + off);
      off += w_error_[i] * norm * (1 + p_) * (1 + dot_) + w_[i] * norm * (p_ + dot_ + p_ * dot_);
      error[i] = off + a_.u * (std::abs(x.u[v]) + off);
    }
    return error;
  }

  void bound_row(int64_t v, DType state_type, ChunkBound* b) const {
    const double e = error_[v], norm = before_.row(v).norm() + e;
    const Eigen::VectorXd off = error_of_u(v, norm);
    const double twice = (1 + p_) * (1 + p_) * (1 + sum_);
    const double dots = (1 + h_) * (1 + h_) * (1 + dot_) * (1 + decay_error_);
    for (int64_t i = 0; i < n_; ++i) {
      const auto s = static_cast<size_t>(i);
      const double theta = at(i).q.norm();
      const double decayed = from_start_[s].cwiseProduct(at(i).q).norm();
      double read = e * through_[s] * theta;
      read += norm * decayed *
              ((1 + h_) * (1 + p_) * (1 + p_) * (1 + decay_error_) * (1 + dot_) * (1 + chain_) - 1);
      double value = norm * decayed;
      for (int64_t j = 0; j <= i; ++j) {
        const double size = std::abs(at(j).u[v]) + off[j];
        read += reads_(i, j) * (off[j] + size * (twice - 1)) +
                read_sizes_(i, j) * (dots - 1) * twice * size;
        value += read_sizes_(i, j) * size;
      }
      b->read[s][v] = read + 2 * a_.u * (value + read) + flushed_;
    }
    double state = e * through_.back() + norm * from_start_.back().maxCoeff() *
                                             ((1 + decay_error_ + 2 * a_.u) * (1 + chain_) - 1);
    double size = norm * from_start_.back().maxCoeff();
    for (int64_t j = 0; j < n_; ++j) {
      const double u = std::abs(at(j).u[v]) + off[j];
      state += to_end_[j] * (off[j] + u * (twice * (1 + h_) * (1 + decay_error_) - 1));
      size += to_end_[j] * u;
    }
    // Ours is rounded where it is stored, which is not here.
    const bool in_f32 = a_.f32_products || state_type == DType::kF32;
    const double kept = in_f32 ? 0 : operand_roundoff(state_type);
    b->state[v] = state + (2 * a_.u + kept) * (size + state) + flushed_;
  }

  const std::vector<ChunkToken>& t_;
  const RowMatrix& before_;
  const Eigen::VectorXd& error_;
  const RecurrentArithmetic& a_;
  const bool delta_;
  const double p_, h_;
  const int64_t n_, dim_;
  const double dot_, sum_;
  const double chain_;   // of what a sum over tokens goes on from
  const double solved_;  // of S k, where it stands under the inverse
  double flushed_ = 0;
  double decay_error_ = 0;  // relative, of any decay between two places of the chunk
  std::vector<Eigen::VectorXd> from_start_;
  std::vector<double> through_;  // what the norm of an error of the state grows to, at most
  Matrix keys_, key_sizes_, reads_, read_sizes_, made_, inverse_, inverse_error_;
  Eigen::VectorXd to_end_, w_, w_error_;
};

}  // namespace

ChunkBound chunk_bound(const std::vector<ChunkToken>& tokens, const RowMatrix& before,
                       const Eigen::VectorXd& error, bool delta, bool normalised,
                       const RecurrentArithmetic& arithmetic, DType type, DType state_type) {
  return Chunk(tokens, before, error, delta, normalised, arithmetic, type).bound(state_type);
}

}  // namespace shadowgraph
