#include "oracle/gate_oracle.h"

#include <cmath>

#include "core/float_formats.h"

namespace shadowgraph {
namespace {

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Heads a power of two.
std::vector<double> powers(int64_t heads) {
  const double ratio = std::pow(2, -std::pow(2, -(std::log2(static_cast<double>(heads)) - 3)));
  std::vector<double> slopes;
  for (int64_t i = 0; i < heads; ++i)
    slopes.push_back(ratio * std::pow(ratio, static_cast<double>(i)));
  return slopes;
}

std::vector<double> unscaled_slopes(int64_t heads) {
  int64_t below = 1;
  while (2 * below <= heads) below *= 2;
  std::vector<double> slopes = powers(below);
  const std::vector<double> twice = powers(2 * below);
  for (size_t i = 0; static_cast<int64_t>(slopes.size()) < heads; i += 2)
    slopes.push_back(twice[i]);
  return slopes;
}

}  // namespace

GateTruth gate_truth(const DecayGate& gate) {
  const ConstTensorView& x = gate.x;
  GateTruth truth;
  truth.channels = x.rank == 3 ? x.shape[2] : 1;
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    for (int64_t h = 0; h < x.shape[1]; ++h) {
      const double a = load_float(gate.a_log.at(h), DType::kF32, 0);
      for (int64_t i = 0; i < truth.channels; ++i) {
        double z = load_float(x.at(t, h), x.dtype, i);
        if (gate.dt_bias.defined()) z += load_float(gate.dt_bias.at(h), DType::kF32, i);
        double decay = -std::exp(a) * softplus(z);
        if (gate.kind == DecayGate::Kind::kStep) decay = a * softplus(z);
        if (gate.kind == DecayGate::Kind::kLowerBound)
          decay = gate.lower_bound * sigmoid(std::exp(a) * z);
        truth.log_decay.push_back(decay);
        if (gate.kind == DecayGate::Kind::kStep) truth.beta.push_back(softplus(z));
      }
      if (gate.b.defined())
        truth.beta.push_back(sigmoid(load_float(gate.b.at(t, h), gate.b.dtype, 0)));
    }
  }
  return truth;
}

std::vector<double> slope_truth(int32_t layer, int32_t num_layers, int64_t num_heads) {
  std::vector<double> slopes = num_heads > 0 ? unscaled_slopes(num_heads) : std::vector<double>();
  for (double& s : slopes)
    s *= num_layers <= 1 ? 1 + 1e-5 : 1 - static_cast<double>(layer) / (num_layers - 1) + 1e-5;
  return slopes;
}

}  // namespace shadowgraph
