// Checks a DecayGate: the tensors that its kind needs, and no others.
#include <cmath>
#include <string>
#include <utility>

#include "attn/validate/cache_check.h"
#include "attn/validate/tensor_check.h"
#include "attn/validate/validate_recurrent.h"

namespace shadowgraph {
namespace {

/// A tensor that the kind of gate has no use for.
void check_undefined(TensorCheck& c, const char* field, const ConstTensorView& t,
                     const char* expected) {
  if (t.defined()) c.fail("input.shape", at(field), expected, "defined");
}

/// x, and what has its shape; kAny where x has none. Channels lie side by side.
std::pair<int64_t, int64_t> check_projection(TensorCheck& c, const DecayGate& g) {
  int64_t tokens = kAny, heads = kAny, channels = kAny;
  if (g.x.rank == 3 && g.kind != DecayGate::Kind::kStep) {
    if (c.input("x", g.x, {kAny, kAny, kAny}, kWide))
      tokens = g.x.shape[0], heads = g.x.shape[1], channels = g.x.shape[2];
    if (g.dt_bias.defined()) c.input("dt_bias", g.dt_bias, {heads, channels}, kF32);
    c.output("log_decay", g.log_decay, {tokens, heads, channels}, kF32);
  } else {
    if (c.strided_input("x", g.x, {kAny, kAny}, kWide)) tokens = g.x.shape[0], heads = g.x.shape[1];
    if (g.dt_bias.defined()) c.strided_input("dt_bias", g.dt_bias, {heads}, kF32);
    c.output("log_decay", g.log_decay, {tokens, heads}, kF32, false);
  }
  return {tokens, heads};
}

}  // namespace

Status validate(const DecayGate& g) {
  Status status;
  TensorCheck c(&status);
  const bool step = g.kind == DecayGate::Kind::kStep;
  const auto [tokens, heads] = check_projection(c, g);
  c.strided_input("a_log", g.a_log, {heads}, {DType::kF32});
  if (step) check_undefined(c, "b", g.b, "undefined: beta is the step");
  if (!step && g.b.defined())
    c.strided_input("b", g.b, {tokens, heads}, {DType::kF32, DType::kF16, DType::kBF16});
  if (step || g.b.defined()) {
    c.output("beta", g.beta, {tokens, heads}, {DType::kF32}, false);
  } else {
    check_undefined(c, "beta", g.beta, "undefined, as b is");
  }
  if (g.kind == DecayGate::Kind::kLowerBound &&
      !(g.lower_bound < 0 && std::isfinite(g.lower_bound)))
    c.fail("param.scale", at("lower_bound"), "finite, < 0", text(g.lower_bound));
  c.no_aliases();
  return status;
}

Status validate_slopes(int32_t layer, int32_t num_layers, std::span<float> out) {
  Status status;
  TensorCheck c(&status);
  if (num_layers < 1) {
    c.fail("input.shape", at("num_layers"), ">= 1", std::to_string(num_layers));
  } else if (layer < 0 || layer >= num_layers) {
    c.fail("input.shape", at("layer"), "0 <= layer < " + std::to_string(num_layers),
           std::to_string(layer));
  }
  c.written("out", out);
  return status;
}

}  // namespace shadowgraph
