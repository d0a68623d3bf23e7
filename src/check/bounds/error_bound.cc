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
constexpr double kWellKnown = 0.5;    // kappa below which weights' errors alone give the bound

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

/// What a soft cap leaves of errors of logits: its slope is largest where a logit may be nearest to
/// 0.
Eigen::ArrayXd capped_errors(const OracleRow& row, const Eigen::ArrayXd& errors) {
  const Eigen::ArrayXd nearest = (row.uncapped - errors / row.temperature).max(0.0);
  return errors * (1 - (nearest / row.soft_cap).tanh().square());
}

/// delta_j
Eigen::ArrayXd logit_errors(const OracleRow& row, const Arithmetic& a) {
  const double terms = row.terms;
  const double scaling =
      gamma_of(a.scale_roundings + (row.k_scaled ? 1 : 0) + row.scale_factors, a.u_scale);
  const double products = a.tf32 ? (1 + kTf32) * (1 + kTf32) - 1 : 0;
  const double dot = (1 + products) * gamma_of(addends(terms, a), a.u_sum) + products + scaling;
  Eigen::ArrayXd delta = dot * (1 + scaling) * row.magnitudes;
  const Eigen::ArrayXd uncapped = delta;
  if (row.soft_cap > 0) {
    const Eigen::ArrayXd capped = capped_logits(row);
    delta = capped_errors(row, delta);
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
  if (a.scores_type != DType::kF32) delta += score_errors(row, a, delta.max(uncapped));
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

double largest_logit(const OracleRow& row, LseSink counted) {
  const double top = row.logits.maxCoeff();
  return counted == LseSink::kIncluded ? std::max(top, row.sink) : top;
}

/// of_keys, and 0 for a key that weighs nothing even with its error: it rules no maximum, so its
/// error is its own alone. A large negative bias hides a key in this way, and a sink all keys.
Eigen::ArrayXd of_keys_that_weigh(const OracleRow& row, const Eigen::ArrayXd& delta,
                                  const Eigen::ArrayXd& of_keys, double sink) {
  constexpr double kNothing = 200;  // exp(-200) of the largest weight
  Eigen::Index top = 0;
  row.logits.maxCoeff(&top);
  const double least = std::max(row.logits[top] - delta[top], sink) - kNothing;
  return (row.logits + delta >= least).select(of_keys, 0.0);
}

/// Logits' errors beside one that all have: weights do not depend on that one, an LSE does.
struct LogitErrors {
  Eigen::ArrayXd own;  // [keys]
  double common = 0;
  double largest = 0;  // own, of keys that weigh
};

/// If q has one element, a logit's error is a function of one product and its scale: it is one
/// number for all keys that are like the top one in these, unless parts are computed apart.
LogitErrors apart(const OracleRow& row, const Arithmetic& a, const Eigen::ArrayXd& delta,
                  LseSink counted) {
  const double sink = counted == LseSink::kIncluded ? row.sink : -kInfinity;
  LogitErrors x{delta, 0, 0};
  Eigen::Index top = 0;
  row.logits.maxCoeff(&top);
  const bool plain = row.added.size() == 0 || (row.added == 0.0).all();
  const bool together = row.terms == 1 && plain && a.partials == Partials::kUnscaled;
  if (together && sink <= row.logits[top] && std::isfinite(delta[top])) {
    x.common = delta[top];
    x.own = (row.logits == row.logits[top] && row.products == row.products[top] &&
             row.key_scales == row.key_scales[top])
                .select(0.0, delta + x.common);
  }
  x.largest = of_keys_that_weigh(row, x.own, x.own, sink).maxCoeff();
  return x;
}

/// How far the logarithms of weights may be off.
struct Exponents {
  Eigen::ArrayXd keys;  // [keys] delta_j + alpha_j + (R + 1) log(1 + eps)
  double sink = 0;
  double shared = 0;  // in each of them
};

bool has_partials(const Arithmetic& a, const Reduction& red) {
  return a.partials != Partials::kUnscaled && red.parts > 1;
}

Exponents exponent_errors(const OracleRow& row, const Arithmetic& a, const Reduction& red,
                          const LogitErrors& delta, LseSink counted) {
  const double top = largest_logit(row, counted), top_key = row.logits.maxCoeff();
  const double sink_delta =
      std::isinf(row.sink) ? 0 : gamma_of(a.scale_roundings, a.u_scale) * std::abs(row.sink);
  const double slack = 2 * std::max(delta.largest, sink_delta);
  const bool partials = has_partials(a, red);
  const double exps = (red.rescales + 1 + (partials ? 1 : 0)) * std::log1p(a.exp_error);
  Exponents x;
  if (a.scaled_maximum) {
    const double sink = counted == LseSink::kIncluded ? row.sink : -kInfinity;
    const Eigen::ArrayXd sizes = of_keys_that_weigh(row, delta.own, row.logits.abs(), sink);
    x.shared = (red.rescales + 1) * a.u * (sizes.maxCoeff() + slack);
  }
  x.keys = delta.own + a.u * (top - row.logits + slack) * (1 + a.u) + (x.shared + exps);
  // A part's LSE lies between its logits and the whole LSE; it is computed and stored in f32.
  if (partials) {
    const Eigen::ArrayXd sizes = row.logits.abs().max(std::abs(row.lse)) + slack;
    const Eigen::ArrayXd logs = (top_key - row.logits + std::log(row.mass)).max(1.0);
    x.keys += red.stored * (a.lse_roundings * a.u * sizes + a.log_error * logs);
  }
  x.sink = sink_delta + delta.common + a.u * (std::abs(row.sink - top_key) + slack) * (1 + a.u) +
           x.shared + exps;
  return x;
}

/// Weights and their errors, relative to their total D.
struct Weights {
  Eigen::ArrayXd p, e, r;  // [keys]
  double sink_p = 0, sink_e = 0;
  // Beside what underflows, `lost`: r_j over the weight, and e_j's part that P's rounding is
  double lost = 0, ratio = 0, of_p = 0;
};

/// p exp(exponent) - p, given log p. A weight that is nothing stays so, however little is known of
/// its logit.
double weight_error(double log_p, double exponent) {
  if (exponent <= 1) return std::exp(log_p) * std::expm1(exponent);
  return log_p + exponent > kMaxExponent ? kInfinity : std::exp(log_p + exponent);
}

Weights weigh(const OracleRow& row, const Arithmetic& a, const Reduction& red, const Exponents& x,
              DType q_type, DType out_type, LseSink counted) {
  const double top = largest_logit(row, counted), top_key = row.logits.maxCoeff();
  const double mass = row.mass_as(counted), log_mass = std::log(mass);
  const Rounding p_type = rounding_of_p(a, q_type), out = rounding_to(out_type);
  // What underflows stands next to a weight of 1: the largest logit's; for P the largest key's.
  const double flushed = (red.rescales + 2) * kTiny / mass;
  const double p_subnormal = p_type.half_subnormal * std::exp(top_key - top) / mass;
  // A part's result is divided by its sum, and stored.
  const double once =
      gamma_of(a.out_roundings, a.u) + (a.partials == Partials::kOutType ? out.u : 0);
  const double part_error = has_partials(a, red) ? std::expm1(red.stored * std::log1p(once)) : 0;
  // TF32: the weight, and the value that it meets
  const double factors[] = {a.tf32 ? (1 + kTf32) * (1 + kTf32) - 1 : 0, row.v_scaled ? a.u : 0,
                            part_error};
  Weights w;
  const auto n = row.logits.size();
  const Eigen::ArrayXd log_p = row.logits - top - log_mass;
  w.p = log_p.exp();
  w.e.resize(n);
  w.r = Eigen::ArrayXd::Zero(n);
  for (Eigen::Index j = 0; j < n; ++j) {
    w.e[j] = weight_error(log_p[j], x.keys[j]) + flushed;
    const double rounding = std::max(p_type.u * (w.p[j] + w.e[j]), p_subnormal);
    (a.sum_sees_rounded_p ? w.e : w.r)[j] += rounding;
    for (const double factor : factors) w.r[j] += factor * (w.p[j] + w.e[j] + w.r[j]);
  }
  if (counted == LseSink::kIncluded && !std::isinf(row.sink)) {
    w.sink_p = std::exp(row.sink - top - log_mass);
    w.sink_e = weight_error(row.sink - top - log_mass, x.sink) + flushed;
  }
  w.lost = flushed + p_subnormal, w.of_p = a.sum_sees_rounded_p ? p_type.u : 0;
  w.ratio = 1 + p_type.u;
  for (const double factor : factors) w.ratio *= 1 + factor;
  --w.ratio;
  return w;
}

/// kappa_max: relative error of the sum of weights.
double sum_error(const Weights& w, double g) {
  const double e = w.e.sum() + w.sink_e;
  return e + g * (w.p.sum() + w.sink_p + e);
}

/// beta_j, where weights alone are known badly.
struct Shares {
  Eigen::ArrayXd keys;   // [keys]
  bool of_sink = false;  // not small
  double exponent = 0;   // the largest error of those that are not small
  double small = 0;      // the sum of those that are
};

constexpr double kSmallShare = 0x1p-40;

Shares shares_of(const OracleRow& row, const Weights& w, const Exponents& x, LseSink counted) {
  const double top = largest_logit(row, counted), log_mass = std::log(row.mass_as(counted));
  const Eigen::ArrayXd log_p = row.logits - top - log_mass;
  const bool sinks = counted == LseSink::kIncluded && !std::isinf(row.sink);
  const double sink_p = row.sink - top - log_mass;
  double least = (log_p - x.keys).maxCoeff();
  if (sinks) least = std::max(least, sink_p - x.sink);
  Shares s;
  s.keys = (log_p + x.keys - least).min(0.0).exp();
  const double sink = sinks ? std::exp(std::min(0.0, sink_p + x.sink - least)) : 0;
  s.of_sink = sink >= kSmallShare;
  s.exponent =
      std::max((s.keys >= kSmallShare).select(x.keys, 0.0).maxCoeff(), s.of_sink ? x.sink : 0.0);
  s.small = (s.keys < kSmallShare).select(s.keys, 0.0).sum() + (s.of_sink ? 0 : sink);
  s.small += static_cast<double>(row.keys.size() + 1) * w.lost * std::exp(x.shared);
  return s;
}

/// Is a logit a number, and does its weight stay in f32?
bool has_shares(const Exponents& x, const Reduction& red) {
  constexpr double kMost = 80;  // exp(80) and exp(-80) are in it
  return x.shared < kMost && x.keys.isFinite().all() && red.g < kWellKnown;
}

/// The bound by the errors of weights.
Eigen::ArrayXd by_errors(const OracleRow& row, const Weights& w, const Reduction& red, double kappa,
                         double lost) {
  const double mass = w.p.sum() + w.e.sum() + w.sink_p + w.sink_e;
  Eigen::ArrayXd bound = (w.sink_e + red.g * mass) * row.out.abs();
  for (size_t j = 0; j < row.keys.size(); ++j) {
    const auto at = static_cast<Eigen::Index>(j);
    const auto v = row.values->row(row.keys[j]).transpose().array();
    const double numerator_only = w.r[at] + red.t * (w.p[at] + w.e[at] + w.r[at]);
    bound += w.e[at] * (v - row.out).abs() + numerator_only * v.abs();
  }
  return (bound + lost) / (1 - kappa);
}

/// The bound by their shares.
Eigen::ArrayXd by_shares(const OracleRow& row, const Weights& w, const Reduction& red,
                         const Shares& s, double lost) {
  const double ratio = (1 + w.ratio) * (1 + red.t) / (1 - red.g) - 1;
  const double more = (1 + red.g) / (1 - red.g);
  Eigen::ArrayXd apart = Eigen::ArrayXd::Zero(row.out.size()), most = apart, rest = apart;
  if (s.of_sink) apart = row.out.abs();
  for (size_t j = 0; j < row.keys.size(); ++j) {
    const double share = s.keys[static_cast<Eigen::Index>(j)];
    const auto v = row.values->row(row.keys[j]).transpose().array();
    if (share < kSmallShare) {
      rest += share * (v - row.out).abs();
    } else {
      apart = apart.max((v - row.out).abs()), most = most.max(v.abs());
    }
  }
  return apart + more * rest + ratio * most + more * s.small * (row.value_max + row.out.abs()) +
         lost;
}

Eigen::ArrayXd before_last_rounding(const OracleRow& row, const Arithmetic& a, const Weights& w,
                                    const Exponents& x, const Reduction& red,
                                    double partial_subnormal) {
  const auto n = static_cast<double>(row.keys.size());
  const double kappa = sum_error(w, red.g);
  // The sum before the division may overflow: its weights are at most 1, whatever the maximum that
  // they stand against when they are added.
  const double growth =
      n * (1 + red.t) * std::pow(1 + a.exp_error, red.rescales + 1) * std::exp(x.shared);
  const bool overflows = growth * row.value_max > kF32Largest * row.v_scale ||
                         growth * row.value_scale_max > kF32Largest;
  // Values, products and sums below the normal range; a weight times its scale before it meets a
  // code.
  const double of_key = row.v_scaled ? 1 + kLargestCode : 1;
  const double flushes = n * of_key + red.parts * (red.rescales + 2);
  const double lost =
      flushes * kTiny * std::max(1.0, row.v_scale) + partial_subnormal * row.v_scale;
  Eigen::ArrayXd bound = Eigen::ArrayXd::Constant(row.out.size(), kInfinity);
  if (overflows) return bound;
  if (kappa < 1) bound = by_errors(row, w, red, kappa, lost);
  if (kappa < kWellKnown || !has_shares(x, red)) return bound;
  const Shares s = shares_of(row, w, x, LseSink::kIncluded);
  return bound.min(by_shares(row, w, red, s, lost * std::exp(x.shared)));
}

/// The error of the logarithm of the sum of weights.
double log_sum_error(const OracleRow& row, const Weights& w, const Exponents& x,
                     const Reduction& red, LseSink counted) {
  const double kappa = sum_error(w, red.g);
  const double by_errors = kappa < 1 ? -std::log1p(-kappa) : kInfinity;
  if (kappa < kWellKnown || !has_shares(x, red)) return by_errors;
  const Shares s = shares_of(row, w, x, counted);
  if (!(s.small < 1)) return by_errors;
  const double sums = std::log1p(-s.small) + std::log1p(-red.g) + std::log1p(-w.of_p);
  return std::min(by_errors, s.exponent - sums);
}

/// Natural. sum: the error of the logarithm, and of the logits alike.
double lse_bound(const OracleRow& row, const Arithmetic& a, LseSink counted, double sum) {
  const double lse = row.lse_as(counted), top = largest_logit(row, counted);
  const double log = a.log_error * std::max(1.0, std::log(row.mass_as(counted)));
  return sum + log + a.lse_roundings * a.u * (std::max(std::abs(top), std::abs(lse)) + sum + log);
}

}  // namespace

double largest_finite(DType t) { return rounding_to(t).largest; }

ErrorBound error_bound(const OracleRow& row, const Arithmetic& arithmetic, DType q_type,
                       DType out_type, LseSink lse_sink) {
  Arithmetic a = arithmetic;
  if (row.terms == 0 && a.in_order) a.split = 0;  // a merge adds all its states in one chain
  const Eigen::ArrayXd delta = logit_errors(row, a);
  const LogitErrors logits = apart(row, a, delta, LseSink::kIncluded);
  const Reduction red = reduction_of(row, a, 2 * logits.largest);
  const Exponents x = exponent_errors(row, a, red, logits, LseSink::kIncluded);
  const Weights w = weigh(row, a, red, x, q_type, out_type, LseSink::kIncluded);
  const Rounding out = rounding_to(out_type);
  const bool narrow_parts = a.partials == Partials::kOutType && red.parts > 1;
  ErrorBound bound;
  const double subnormal_parts = narrow_parts ? red.stored * out.half_subnormal : 0;
  bound.out = before_last_rounding(row, a, w, x, red, subnormal_parts);
  double last = std::pow(1 + a.u, a.out_roundings) * (1 + out.u), subnormal = out.half_subnormal;
  if (row.v_scale != 1) last *= std::pow(1 + a.u_scale, 2 + row.v_scale_factors);
  if (row.v_scale != 1 && a.v_scale_after) last *= 1 + out.u, subnormal *= 1 + row.v_scale;
  bound.out += (row.out.abs() + bound.out) * (last - 1) + subnormal;

  const double largest = of_keys_that_weigh(row, delta, delta, -kInfinity).maxCoeff();
  bound.top = largest + a.u * (std::abs(row.logits.maxCoeff()) + largest);
  double sum = logits.common;
  if (lse_sink == LseSink::kIncluded || std::isinf(row.sink)) {
    sum += log_sum_error(row, w, x, red, lse_sink);
  } else {
    const LogitErrors alone = apart(row, a, delta, lse_sink);
    const Exponents y = exponent_errors(row, a, red, alone, lse_sink);
    const Weights counted = weigh(row, a, red, y, q_type, out_type, lse_sink);
    sum = alone.common + log_sum_error(row, counted, y, red, lse_sink);
  }
  bound.lse = lse_bound(row, a, lse_sink, sum);
  return bound;
}

}  // namespace shadowgraph
