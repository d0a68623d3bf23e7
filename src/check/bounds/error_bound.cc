#include "check/bounds/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "check/bounds/rounding.h"

namespace shadowgraph {
namespace {

constexpr double kTiny = kFlushed;
constexpr double kF32Largest = 0x1.fffffep127;
constexpr double kMaxExponent = 700;
constexpr double kLargestCode = 128;  // of i8
constexpr double kTf32 = 0x1p-10;     // what a truncated fraction of 10 bits loses

Rounding rounding_of_p(const Arithmetic& a, DType q_type) {
  const DType type = a.round_p == RoundP::kToType ? a.p_type : q_type;
  const bool rounds = a.round_p == RoundP::kBF16
                          ? q_type == DType::kBF16
                          : a.round_p != RoundP::kNever && type != DType::kF32;
  if (!rounds) return {};
  Rounding p = rounding_to(type);
  p.half_subnormal /= a.p_scale;
  return p;
}

/// Addends of a sum of n terms: tensor cores add each block's products and the accumulator in one
/// truncating step.
double addends(double n, const Arithmetic& a) {
  return a.adds_per_block == 0 ? n : n + std::ceil(n / a.adds_per_block);
}

/// |Logits| before anything is added to them.
Eigen::ArrayXd capped_logits(const OracleRow& row) {
  return row.added.size() > 0 ? Eigen::ArrayXd(row.logits.abs() + row.added) : row.logits.abs();
}

/// The part of delta_j that scores in a type of 16 bits make: q.k is rounded to it, and again
/// scaled and masked. Before the soft cap a logit may be as large as its terms.
Eigen::ArrayXd score_errors(const OracleRow& row, const Arithmetic& a,
                            const Eigen::ArrayXd& delta) {
  const Rounding type = rounding_to(a.scores_type);
  Eigen::ArrayXd size = (row.soft_cap > 0 ? row.magnitudes : capped_logits(row)) + delta;
  if (row.added.size() > 0) size += row.added;
  const double scale = std::abs(row.scale);
  const Eigen::ArrayXd errors = gamma_of(row.added.size() > 0 ? 4 : 3, type.u) * size +
                                3 * type.half_subnormal * std::max(1.0, scale);
  // q.k itself, which the scale divides, must be in the type's range.
  const Eigen::ArrayXd largest = size * std::max(1.0, 1 / scale) * (1 + 3 * type.u);
  return (largest > type.largest).select(kInfinity, errors);
}

/// The part of delta_j that terms make. Each is a root and a product at most, and brought to base 2
/// by another one; up to four are added one after the other, in any order. The temperature is a
/// quotient of two logarithms, and multiplies once.
Eigen::ArrayXd term_errors(const OracleRow& row, const Arithmetic& a) {
  const Eigen::ArrayXd capped = capped_logits(row);
  Eigen::ArrayXd errors = gamma_of(3 + 4, a.u) * (row.added + capped);
  if (row.temperature != 1) errors += (gamma_of(4, a.u) + 2 * a.log_error) * capped;
  return errors;
}

/// delta_j
Eigen::ArrayXd logit_errors(const OracleRow& row, const Arithmetic& a) {
  const double terms = row.terms;
  const double scaling =
      gamma_of(a.scale_roundings + (row.k_scaled ? 1 : 0) + row.scale_factors, a.u_scale);
  const double products = a.tf32 ? (1 + kTf32) * (1 + kTf32) - 1 : 0;
  const double dot = (1 + products) * gamma_of(addends(terms, a), a.u_sum) + products + scaling;
  Eigen::ArrayXd delta = dot * (1 + scaling) * row.magnitudes;
  if (row.soft_cap > 0) {
    const Eigen::ArrayXd capped = capped_logits(row);
    delta += row.temperature * row.soft_cap * a.tanh_absolute + a.tanh_relative * capped;
    delta += scaling * capped;
  }
  if (row.added.size() > 0) delta += term_errors(row, a);
  // A kernel that computes to base 2 may not have the number.
  if (std::abs(row.logits.maxCoeff()) * kLog2E > kF32Largest) delta.setConstant(kInfinity);
  if (terms == 0) return delta;
  // Products below the normal range may be flushed to 0, and so may elements of q and k.
  delta += row.temperature * terms * kTiny * std::abs(row.scale) *
           (1 + row.query_max + row.key_max) * row.key_scales;
  if (a.scores_type != DType::kF32) delta += score_errors(row, a, delta);
  // A q.k may overflow before it is scaled.
  delta = (row.products > kF32Largest / (1 + dot)).select(kInfinity, delta);
  if (!row.k_scaled) return delta;
  // So may c z_j; and below the normal range it may be flushed.
  delta += row.temperature * kTiny * std::max(1.0, row.soft_cap) * (1 + dot) * row.products;
  const double c = std::abs(row.scale) * (row.soft_cap > 0 ? 1 / row.soft_cap : kLog2E);
  return (c * (1 + scaling) * row.key_scales > kF32Largest).select(kInfinity, delta);
}

/// Keys of one tile: the split and the largest logit of a run of row.keys.
struct Tile {
  int32_t split;
  double top;
};

std::vector<Tile> tiles_of(const OracleRow& row, const Arithmetic& a) {
  std::vector<Tile> tiles;
  int32_t last = -1;
  for (size_t j = 0; j < row.keys.size(); ++j) {
    const int32_t tile = row.keys[j] / a.tile;
    if (tile != last) tiles.push_back({a.split > 0 ? row.keys[j] / a.split : 0, -kInfinity});
    last = tile;
    tiles.back().top = std::max(tiles.back().top, row.logits[static_cast<Eigen::Index>(j)]);
  }
  return tiles;
}

/// How often a weight may be rescaled where keys come in order, if every logit is off by slack / 2.
/// Inside its split: by each later tile that may raise the split's maximum. When its split is
/// folded: if the maximum so far may be higher. Afterwards: by each later split that may raise the
/// maximum. Otherwise the factor is exactly 1.
double rescales_in_order(const OracleRow& row, const Arithmetic& a, double slack) {
  const std::vector<Tile> tiles = tiles_of(row, a);
  const auto may_exceed = [slack](double x, double y) { return !(x + slack <= y); };
  double most = 0, top = -kInfinity;  // of the splits that are folded
  for (size_t i = 0; i < tiles.size();) {
    const int32_t split = tiles[i].split;
    double own = 0, own_top = tiles[i].top;
    for (++i; i < tiles.size() && tiles[i].split == split; ++i) {
      if (may_exceed(tiles[i].top, own_top)) ++own;
      own_top = std::max(own_top, tiles[i].top);
    }
    if (may_exceed(top, own_top)) ++own;
    const bool first = split == tiles.front().split;
    if (!first && may_exceed(own_top, top)) ++most;
    most = std::max(most, own);
    top = std::max(top, own_top);
  }
  return most;
}

/// Shape of the reduction over a row's keys.
struct Reduction {
  double parts;     // splits whose results are merged, or folded; 1 = not split
  double stored;    // partial results that a key is in, one after the other
  double rescales;  // R
  double t, g;      // of a term in numerator and denominator
};

/// slack: twice the largest delta.
Reduction reduction_of(const OracleRow& row, const Arithmetic& a, double slack) {
  double n = static_cast<double>(row.keys.size());  // of a part
  double span = row.keys.back() - row.keys.front() + 1.0;
  // A range that starts anywhere touches one tile more than its length asks for.
  const auto touched = [&span](int unit) {
    return std::min(span, std::floor((span - 1) / unit) + 2);
  };
  Reduction r{};
  if (a.in_order) {
    const int first = a.split > 0 ? row.keys.front() / a.split : 0;
    const int last = a.split > 0 ? row.keys.back() / a.split : 0;
    r.parts = last - first + 1;
    r.rescales = rescales_in_order(row, a, slack);
    if (a.split > 0) n = std::min<double>(n, a.split), span = std::min<double>(span, a.split);
  } else {
    const bool split = a.split > 0 && row.values->rows() > a.split;
    r.parts = a.parts * (split ? touched(a.split) : 1);
    r.rescales = touched(a.tile) + (r.parts > 1 ? r.parts : 0);
  }
  // The first part, then what it is merged into, until all are.
  r.stored = r.parts > 1 ? std::max(1, a.parts - 1) : 0;
  r.rescales += a.merges + (std::isinf(row.sink) ? 0 : 1);
  const double merging = r.parts + a.merges + r.rescales + 1;
  const double below =
      a.lanes > 1 ? std::min(n, touched(a.lanes)) + std::log2(a.lanes) : addends(n, a);
  r.t = gamma_of(addends(n, a) + merging, a.u_sum);
  r.g = gamma_of(below + merging, a.u_sum);
  return r;
}

/// Weights and their errors, relative to a total of exp(lse).
struct Weights {
  Eigen::ArrayXd p, e, r;  // [keys]
  double sink_p = 0, sink_e = 0;
};

double largest_logit(const OracleRow& row, LseSink counted) {
  const double top = row.logits.maxCoeff();
  return counted == LseSink::kIncluded ? std::max(top, row.sink) : top;
}

/// p (exp(exponent_error) (1 + eps)^(R+1) - 1), given log p. A weight that is nothing stays so,
/// however little is known of its logit.
double weight_error(double log_p, double exponent_error, double exps, double exp_error) {
  const double exponent = exponent_error + exps * std::log1p(exp_error);
  if (exponent <= 1) return std::exp(log_p) * std::expm1(exponent);
  return log_p + exponent > kMaxExponent ? kInfinity : std::exp(log_p + exponent);
}

/// of_keys, and 0 for a key that weighs nothing even with its error: it rules no maximum, so its
/// error is its own alone. A large negative bias hides a key in this way.
Eigen::ArrayXd of_keys_that_weigh(const OracleRow& row, const Eigen::ArrayXd& delta,
                                  const Eigen::ArrayXd& of_keys) {
  constexpr double kNothing = 200;  // exp(-200) of the largest weight
  Eigen::Index top = 0;
  row.logits.maxCoeff(&top);
  const double least = row.logits[top] - delta[top] - kNothing;
  return (row.logits + delta >= least).select(of_keys, 0.0);
}

Weights weigh(const OracleRow& row, const Arithmetic& a, const Reduction& red,
              const Eigen::ArrayXd& delta, DType q_type, DType out_type, LseSink counted) {
  const double lse = row.lse_as(counted), top = largest_logit(row, counted);
  const double top_key = row.logits.maxCoeff();
  const double sink_delta =
      std::isinf(row.sink) ? 0 : gamma_of(a.scale_roundings, a.u_scale) * std::abs(row.sink);
  const double slack = 2 * std::max(of_keys_that_weigh(row, delta, delta).maxCoeff(), sink_delta);
  double shared = 0;  // exponent error of every weight
  if (a.scaled_maximum)
    shared += (red.rescales + 1) * a.u *
              (of_keys_that_weigh(row, delta, row.logits.abs()).maxCoeff() + slack);
  const bool partials = a.partials != Partials::kUnscaled && red.parts > 1;
  const Rounding p_type = rounding_of_p(a, q_type), out = rounding_to(out_type);
  // What underflows stands next to a weight of 1: the largest logit's; for P the largest key's.
  const double flushed = (red.rescales + 2) * kTiny * std::exp(top - lse);
  const double p_subnormal = p_type.half_subnormal * std::exp(top_key - lse);
  const double exps = red.rescales + 1 + (partials ? 1 : 0);
  // A part's result is divided by its sum, and stored.
  const double once =
      gamma_of(a.out_roundings, a.u) + (a.partials == Partials::kOutType ? out.u : 0);
  const double part_error = std::expm1(red.stored * std::log1p(once));

  Weights w;
  const auto n = row.logits.size();
  w.p = (row.logits - lse).exp();
  w.e.resize(n);
  w.r = Eigen::ArrayXd::Zero(n);
  for (Eigen::Index j = 0; j < n; ++j) {
    const double s = row.logits[j];
    double exponent = delta[j] + a.u * (top - s + slack) * (1 + a.u) + shared;
    // A part's LSE lies between its logits and the whole LSE; it is computed and stored in f32.
    if (partials) {
      const double size = std::max(std::abs(row.lse), std::abs(s)) + slack;
      exponent +=
          red.stored * (a.lse_roundings * a.u * size + a.log_error * std::max(1.0, row.lse - s));
    }
    w.e[j] = weight_error(s - lse, exponent, exps, a.exp_error) + flushed;
    const double rounding = std::max(p_type.u * (w.p[j] + w.e[j]), p_subnormal);
    if (a.sum_sees_rounded_p) {
      w.e[j] += rounding;
    } else {
      w.r[j] += rounding;
    }
    if (a.tf32)  // the weight, and the value that it meets
      w.r[j] += ((1 + kTf32) * (1 + kTf32) - 1) * (w.p[j] + w.e[j] + w.r[j]);
    if (row.v_scaled) w.r[j] += a.u * (w.p[j] + w.e[j] + w.r[j]);
    if (partials) w.r[j] += part_error * (w.p[j] + w.e[j] + w.r[j]);
  }
  if (counted == LseSink::kIncluded && !std::isinf(row.sink)) {
    w.sink_p = std::exp(row.sink - lse);
    const double exponent =
        sink_delta + a.u * (std::abs(row.sink - top_key) + slack) * (1 + a.u) + shared;
    w.sink_e = weight_error(row.sink - lse, exponent, exps, a.exp_error) + flushed;
  }
  return w;
}

/// kappa_max: relative error of the sum of weights.
double sum_error(const Weights& w, double g) {
  const double e = w.e.sum() + w.sink_e;
  return e + g * (w.p.sum() + w.sink_p + e);
}

Eigen::ArrayXd before_last_rounding(const OracleRow& row, const Arithmetic& a, const Weights& w,
                                    const Reduction& red, double partial_subnormal) {
  const auto n = static_cast<double>(row.keys.size());
  const double kappa = sum_error(w, red.g);
  // The sum before the division may overflow: its weights are at most 1, whatever the maximum that
  // they stand against when they are added.
  const double growth = n * (1 + red.t) * std::pow(1 + a.exp_error, red.rescales + 1);
  const bool overflows = growth * row.value_max > kF32Largest * row.v_scale ||
                         growth * row.value_scale_max > kF32Largest;
  if (!(kappa < 1) || overflows) return Eigen::ArrayXd::Constant(row.out.size(), kInfinity);
  const double mass = w.p.sum() + w.e.sum() + w.sink_p + w.sink_e;
  Eigen::ArrayXd bound = (w.sink_e + red.g * mass) * row.out.abs();
  for (size_t j = 0; j < row.keys.size(); ++j) {
    const auto at = static_cast<Eigen::Index>(j);
    const auto v = row.values->row(row.keys[j]).transpose().array();
    const double numerator_only = w.r[at] + red.t * (w.p[at] + w.e[at] + w.r[at]);
    bound += w.e[at] * (v - row.out).abs() + numerator_only * v.abs();
  }
  // Values, products and sums below the normal range; a weight times its scale before it meets a
  // code.
  const double of_key = row.v_scaled ? 1 + kLargestCode : 1;
  const double flushes = n * of_key + red.parts * (red.rescales + 2);
  bound += flushes * kTiny * std::max(1.0, row.v_scale) + partial_subnormal * row.v_scale;
  return bound / (1 - kappa);
}

/// Natural, given kappa_max.
double lse_bound(const OracleRow& row, const Arithmetic& a, LseSink counted, double kappa) {
  const double lse = row.lse_as(counted), top = largest_logit(row, counted);
  const double sum = kappa < 1 ? -std::log1p(-kappa) : kInfinity;
  const double log = a.log_error * std::max(1.0, lse - top);
  return sum + log + a.lse_roundings * a.u * (std::max(std::abs(top), std::abs(lse)) + sum + log);
}

}  // namespace

double largest_finite(DType t) { return rounding_to(t).largest; }

ErrorBound error_bound(const OracleRow& row, const Arithmetic& arithmetic, DType q_type,
                       DType out_type, LseSink lse_sink) {
  Arithmetic a = arithmetic;
  if (row.terms == 0 && a.in_order) a.split = 0;  // a merge adds all its states in one chain
  const Eigen::ArrayXd delta = logit_errors(row, a);
  const double largest = of_keys_that_weigh(row, delta, delta).maxCoeff();
  const Reduction red = reduction_of(row, a, 2 * largest);
  const Weights w = weigh(row, a, red, delta, q_type, out_type, LseSink::kIncluded);
  const Rounding out = rounding_to(out_type);
  const bool narrow_parts = a.partials == Partials::kOutType && red.parts > 1;
  ErrorBound bound;
  const double subnormal_parts = narrow_parts ? red.stored * out.half_subnormal : 0;
  bound.out = before_last_rounding(row, a, w, red, subnormal_parts);
  double last = std::pow(1 + a.u, a.out_roundings) * (1 + out.u), subnormal = out.half_subnormal;
  if (row.v_scale != 1) last *= std::pow(1 + a.u_scale, 2 + row.v_scale_factors);
  if (row.v_scale != 1 && a.v_scale_after) last *= 1 + out.u, subnormal *= 1 + row.v_scale;
  bound.out += (row.out.abs() + bound.out) * (last - 1) + subnormal;

  bound.top = largest + a.u * (std::abs(row.logits.maxCoeff()) + largest);
  const bool same = lse_sink == LseSink::kIncluded || std::isinf(row.sink);
  const Weights counted = same ? w : weigh(row, a, red, delta, q_type, out_type, lse_sink);
  bound.lse = lse_bound(row, a, lse_sink, sum_error(counted, red.g));
  return bound;
}

}  // namespace shadowgraph
