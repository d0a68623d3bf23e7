#include "kernels/recurrent/decay_gate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <new>
#include <stdexcept>

#include "attn/validate/validate_recurrent.h"
#include "core/float_formats.h"
#include "core/laws.h"
#include "core/parallel.h"
#include "core/plain_exp.h"
#include "kernels/spans.h"

namespace shadowgraph {
namespace {

constexpr int64_t kGateChannels = 64;  // edge: channels; whose arguments are made ready together
constexpr int64_t kGateTokens = 16;    // edge: tokens; of one item of work

/// One token's numbers at one head: one, or the channels'.
class HeadGate {
 public:
  HeadGate(const DecayGate& gate, int64_t token, int64_t head)
      : gate_(gate), token_(token), head_(head) {
    const float a_log = load_float(gate.a_log.at(head), DType::kF32, 0);
    a_ = gate.kind == DecayGate::Kind::kStep ? a_log : plain_exp(a_log);
  }

  void run() const {
    const ConstTensorView& x = gate_.x;
    const int64_t channels = x.rank == 3 ? x.shape[2] : 1;
    const std::byte* from = x.at(token_, head_);
    std::byte* to = gate_.log_decay.at(token_, head_);
    for (int64_t first = 0; first < channels; first += kGateChannels) {
      const int64_t count = std::min(kGateChannels, channels - first);
      std::array<double, kGateChannels> values;
      for (int64_t i = 0; i < count; ++i) {
        const double bias = gate_.dt_bias.defined() ? bias_of(first + i) : 0;
        values[static_cast<size_t>(i)] = load_float(from, x.dtype, first + i) + bias;
      }
      make(values.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        store_float(to, DType::kF32, first + i, static_cast<float>(values[static_cast<size_t>(i)]));
      }
    }
    if (gate_.b.defined()) {
      const double b = load_float(gate_.b.at(token_, head_), gate_.b.dtype, 0);
      write_beta(plain_sigmoid(b));
    }
  }

 private:
  double bias_of(int64_t channel) const {
    return load_float(gate_.dt_bias.at(head_), DType::kF32, channel);
  }
  void write_beta(double value) const {
    store_float(gate_.beta.at(token_, head_), DType::kF32, 0, static_cast<float>(value));
  }

  /// Arguments become decays.
  void make(double* values, int64_t count) const {
    switch (gate_.kind) {
      case DecayGate::Kind::kSoftplus:
        for (int64_t i = 0; i < count; ++i) values[i] = -a_ * plain_softplus(values[i]);
        return;
      case DecayGate::Kind::kLowerBound:
        for (int64_t i = 0; i < count; ++i)
          values[i] = gate_.lower_bound * plain_sigmoid(a_ * values[i]);
        return;
      case DecayGate::Kind::kStep: {
        const double step = plain_softplus(values[0]);
        write_beta(step);
        values[0] = a_ * step;
      }
    }
  }

  const DecayGate& gate_;
  const int64_t token_, head_;
  double a_;
};

/// Slopes of a power of two of heads: 2^(-8 (head + 1) / heads).
double slope(int64_t head, int64_t heads) {
  return std::exp2(-8 * static_cast<double>(head + 1) / static_cast<double>(heads));
}

/// t[token], [heads] or [heads, channels]; of what has no tokens all of it, token -1.
void add_heads(Footprint* spans, const ConstTensorView& t, Access access, int64_t token) {
  if (!t.defined()) return;
  const int first = token < 0 ? 0 : 1;
  const auto axis = [&](int i) {
    return i < t.rank ? SpanAxis{t.shape[i], t.stride[i]} : SpanAxis{};
  };
  add_block(spans,
            {t.data, token < 0 ? 0 : t.offset(token), 1, element_bytes(t.dtype), access,
             static_cast<int32_t>(token)},
            axis(first), axis(first + 1));
}

}  // namespace

void decay_gate_kernel(const DecayGate& gate) {
  const int64_t tokens = gate.x.shape[0], heads = gate.x.shape[1];
  const int64_t items = (tokens + kGateTokens - 1) / kGateTokens;
  parallel_for(items, team_size(0, items), [&](int64_t item, int) {
    for (int64_t t = item * kGateTokens; t < std::min(tokens, (item + 1) * kGateTokens); ++t)
      for (int64_t head = 0; head < heads; ++head) HeadGate(gate, t, head).run();
  });
}

Footprint decay_gate_footprint(const DecayGate& gate) {
  Footprint spans;
  if (gate.x.shape[0] == 0) return spans;
  add_heads(&spans, gate.a_log, Access::kRead, -1);
  add_heads(&spans, gate.dt_bias, Access::kRead, -1);
  for (int64_t t = 0; t < gate.x.shape[0]; ++t) {
    add_heads(&spans, gate.x, Access::kRead, t);
    add_heads(&spans, gate.b, Access::kRead, t);
    add_heads(&spans, gate.log_decay, Access::kWrite, t);
    add_heads(&spans, gate.beta, Access::kWrite, t);
  }
  return spans;
}

Status decay_gate(const DecayGate& gate) noexcept {
  try {
    Status status = validate(gate);
    if (status.ok()) decay_gate_kernel(gate);
    return status;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // more than a vector can hold
  }
  return Status::out_of_memory();
}

Status lightning_slopes(int32_t layer, int32_t num_layers, std::span<float> out) noexcept {
  try {
    Status status = validate_slopes(layer, num_layers, out);
    if (!status.ok()) return status;
    const double depth = num_layers > 1 ? static_cast<double>(layer) / (num_layers - 1) : 0;
    const auto power = static_cast<int64_t>(std::bit_floor(out.size()));
    for (int64_t h = 0; h < std::ssize(out); ++h) {
      const double s = h < power ? slope(h, power) : slope(2 * (h - power), 2 * power);
      out[static_cast<size_t>(h)] = static_cast<float>(s * (1 - depth + 1e-5));
    }
    return status;
  } catch (const std::bad_alloc&) {
  }
  return Status::out_of_memory();
}

}  // namespace shadowgraph
