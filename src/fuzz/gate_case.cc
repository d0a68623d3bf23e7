#include "fuzz/gate_case.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "check/linear_compare.h"
#include "core/laws.h"
#include "fuzz/call_memory.h"
#include "fuzz/data.h"
#include "kernels/decay_gate.h"

namespace shadowgraph {
namespace {

/// A gate's inputs, before they are laid out: [tokens, heads, channels], [1, heads, channels], ...
struct GateData {
  LogicalTensor x, a_log, dt_bias, b;
};

/// Exact: arguments from 64 on, where softplus(x) is x and sigmoid(x) is 1 in double, and
/// exp(a_log) = 1; b of 0 and of such.
GateData make_gate_data(const Case& c, Rng& rng) {
  const LinearCase& x = c.linear;
  const int64_t tokens = x.tokens(), heads = x.num_v_heads;
  const int64_t channels = x.decay_rank == 3 ? x.head_dim_k : 1;
  GateData d;
  d.x = LogicalTensor(x.dtype, tokens, heads, channels);
  d.a_log = LogicalTensor(DType::kF32, 1, heads, 1);
  if (x.dt_bias) d.dt_bias = LogicalTensor(DType::kF32, 1, heads, channels);
  if (x.b) d.b = LogicalTensor(x.dtype, tokens, heads, 1);
  if (!is_exact(c.data)) {
    fill_random(d.x, c.data == CaseData::kPeaked ? 40 : 4, rng);
    fill(d.a_log, [&] { return 2 * rng.signed_unit(); });
    fill(d.dt_bias, [&] { return 3 * rng.signed_unit(); });
    fill_random(d.b, 6, rng);
    return d;
  }
  const bool step = x.gate == DecayGate::Kind::kStep;
  fill(d.x, [&] { return 64 + static_cast<float>(rng.below(32)); });
  fill(d.a_log, [&] { return step ? -static_cast<float>(rng.below(9)) : 0.F; });
  fill(d.dt_bias, [&] { return static_cast<float>(rng.below(32)); });
  fill(d.b, [&] { return rng.below(2) ? 0.F : 80.F; });
  return d;
}

/// A gate with its memory, its tokens in some order.
class ArrangedGate {
 public:
  ArrangedGate(const Case& c, const GateData& d, std::vector<int64_t> order, uint64_t seed)
      : order_(std::move(order)) {
    const LinearCase& x = c.linear;
    Rng rng(seed);
    const int64_t tokens = x.tokens(), heads = x.num_v_heads, channels = x.head_dim_k;
    const bool deep = x.decay_rank == 3;
    const AxisOrder any = deep ? AxisOrder::kAsNamed : AxisOrder::kAny;
    const auto of_tokens = [&](const char* field, DType type, AxisOrder axes) {
      return deep ? memory_.add(field, type, {tokens, heads, channels}, rng, axes)
                  : memory_.add(field, type, {tokens, heads}, rng, axes);
    };
    gate_.kind = x.gate;
    gate_.x = lay(of_tokens("x", x.dtype, any), d.x);
    const TensorView a_log = memory_.add("a_log", DType::kF32, {heads}, rng);
    scatter(d.a_log.bytes, a_log);
    gate_.a_log = a_log;
    if (x.dt_bias) {
      const TensorView bias = deep ? memory_.add("dt_bias", DType::kF32, {heads, channels}, rng)
                                   : memory_.add("dt_bias", DType::kF32, {heads}, rng);
      scatter(d.dt_bias.bytes, bias);
      gate_.dt_bias = bias;
    }
    if (x.gate == DecayGate::Kind::kLowerBound) gate_.lower_bound = x.lower_bound;
    if (x.b) gate_.b = lay(memory_.add("b", x.dtype, {tokens, heads}, rng, AxisOrder::kAny), d.b);
    gate_.log_decay = of_tokens("log_decay", DType::kF32, any);
    if (x.b || x.gate == DecayGate::Kind::kStep)
      gate_.beta = memory_.add("beta", DType::kF32, {tokens, heads}, rng, AxisOrder::kAny);
  }

  Status run() {
    memory_.poison_unread(decay_gate_footprint(gate_));
    memory_.remember();
    Status status = decay_gate(gate_);
    if (!status.ok()) return status;
    std::vector<ConstTensorView> written = {gate_.log_decay};
    if (gate_.beta.defined()) written.emplace_back(gate_.beta);
    status.add(memory_.check_written(written));
    status.add(memory_.check_footprint(decay_gate_footprint(gate_), written));
    return status;
  }

  /// Broken in one place: refused, and nothing is written.
  Status check_refusal(Rng& rng) {
    memory_.remember();
    DecayGate broken = gate_;
    const char* id = "input.shape";
    switch (rng.below(4)) {
      case 0: broken.log_decay.shape[1] += 1; break;
      case 1: broken.a_log.dtype = DType::kF16, id = "input.dtype"; break;
      case 2: broken.x.dtype = DType::kE5M2, id = "input.dtype"; break;
      default:
        broken.kind = DecayGate::Kind::kLowerBound, id = "param.scale";
        broken.lower_bound = std::numeric_limits<float>::infinity();
    }
    const Status said = decay_gate(broken);
    Status status = memory_.check_written({});
    if (!std::ranges::any_of(said.findings(), [&](const Finding& f) { return f.id == id; }))
      status.add(make_finding("input.shape", at("decay_gate"), std::string("refused under ") + id,
                              said.to_string()));
    return status;
  }

  const DecayGate& gate() const { return gate_; }
  /// In the case's order of tokens.
  std::vector<std::byte> result(int64_t token) const {
    const auto place = std::ranges::find(order_, token) - order_.begin();
    std::vector<std::byte> bytes = gather(at_place(gate_.log_decay, place));
    if (!gate_.beta.defined()) return bytes;
    const std::vector<std::byte> beta = gather(at_place(gate_.beta, place));
    bytes.insert(bytes.end(), beta.begin(), beta.end());
    return bytes;
  }

 private:
  TensorView lay(const TensorView& to, const LogicalTensor& from) const {
    for (size_t i = 0; i < order_.size(); ++i)
      scatter({from.row(order_[i], 0), static_cast<size_t>(from.heads * from.row_bytes())},
              at_place(to, static_cast<int64_t>(i)));
    return to;
  }

  const std::vector<int64_t> order_;
  CallMemory memory_;
  DecayGate gate_;
};

Status judge_gate(const Case& x, const DecayGate& gate) {
  const bool exact = is_exact(x.data);
  const LawId law = exact ? LawId("num.exact") : LawId("num.bound");
  ArrayJudge decay(law, "log_decay"), beta(law, "beta");
  compare_gate(gate, gate_truth(gate), exact ? nullptr : find_linear_arithmetic("ours"),
               gate.log_decay, gate.beta, DType::kF32, &decay, &beta);
  Status status;
  decay.add_to(&status), beta.add_to(&status);
  return status;
}

}  // namespace

Status check_gate_case(const Case& x, const RunOptions&) {
  Rng rng(x.seed);
  const GateData data = make_gate_data(x, rng);
  std::vector<int64_t> order(static_cast<size_t>(x.linear.tokens()));
  std::iota(order.begin(), order.end(), 0);
  ArrangedGate gate(x, data, order, x.seed);
  Status status = gate.check_refusal(rng);
  const Status ran = gate.run();
  status.add(ran);
  if (!ran.ok()) return status;
  status.add(judge_gate(x, gate.gate()));

  shuffle(order, rng);
  ArrangedGate again(x, data, order, rng.next());
  const Status varied = again.run();
  status.add(varied);
  for (const int64_t token : order) {
    if (!varied.ok() || gate.result(token) == again.result(token)) continue;
    status.add(make_finding("num.bits", at("log_decay, beta", token),
                            "the bits of the case as generated", "other bits in another order"));
    break;
  }
  return status;
}

}  // namespace shadowgraph
