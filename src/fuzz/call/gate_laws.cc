#include "fuzz/call/gate_laws.h"

#include "check/bounds/recurrent_compare.h"
#include "fuzz/call/row_ladder.h"

namespace shadowgraph {
namespace {

GateArrangement vary_gate(const Case& x, const RunOptions&, Rng& rng) {
  GateArrangement a = GateArrangement::of(x);
  vary_rows({}, rng, &a);
  return a;
}

struct GateFamily {
  using Arrangement = GateArrangement;
  using Scene = GateScene;
  using Results = RowResults;
  static constexpr auto make_data = make_gate_data;
  static constexpr auto judge = judge_gate;
  static constexpr auto vary = vary_gate;
};

}  // namespace

/// Exact: arguments from 64 on, where softplus(x) is x and sigmoid(x) is 1 in double, and
/// exp(a_log) = 1; b of 0 and of such.
GateData make_gate_data(const Case& c) {
  const auto& x = std::get<RecurrentCase>(c.call);
  Rng rng(c.seed);
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

GateArrangement GateArrangement::of(const Case& x) {
  GateArrangement a;
  a.seed = x.seed;
  a.poison_unread = true;
  a.calls.emplace_back();
  for (int64_t token = 0; token < x.tokens(); ++token) a.calls[0].push_back({token, 0, 1});
  return a;
}

/// Channels lie side by side; what has none may lie anyhow.
TensorView GateScene::add(const char* field, DType type, std::initializer_list<int64_t> shape) {
  return memory_.add(field, type, shape, rng_,
                     x_.decay_rank == 3 ? AxisOrder::kAsNamed : AxisOrder::kAny);
}

TensorView GateScene::lay_tokens(const TensorView& to, const LogicalTensor& from) const {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].row == RowPiece::kNobody) continue;
    scatter({from.row(pieces_[i].row, 0), static_cast<size_t>(from.heads * from.row_bytes())},
            at_place(to, static_cast<int64_t>(i)));
  }
  return to;
}

TensorView GateScene::lay_all(const TensorView& to, const LogicalTensor& from) const {
  scatter(from.bytes, to);
  return to;
}

void GateScene::lay(size_t index) {
  memory_ = CallMemory();
  pieces_ = how_.calls[index];
  add_idle_rows(
      how_.idle_rows,
      [] {
        return RowPiece{RowPiece::kNobody, 0, 1};
      },
      rng_, &pieces_);
  const int64_t tokens = std::ssize(pieces_), heads = x_.num_v_heads, channels = x_.head_dim_k;
  const bool deep = x_.decay_rank == 3;
  const auto of_tokens = [&](const char* field, DType type) {
    return deep ? add(field, type, {tokens, heads, channels}) : add(field, type, {tokens, heads});
  };
  const auto of_heads = [&](const char* field, DType type) {
    return memory_.add(field, type, {tokens, heads}, rng_, AxisOrder::kAny);
  };
  const DType f32 = DType::kF32;
  DecayGate gate;
  gate.kind = x_.gate;
  gate.x = lay_tokens(of_tokens("x", x_.dtype), data_.x);
  gate.a_log = lay_all(memory_.add("a_log", f32, {heads}, rng_), data_.a_log);
  if (x_.dt_bias)
    gate.dt_bias = lay_all(deep ? memory_.add("dt_bias", f32, {heads, channels}, rng_)
                                : memory_.add("dt_bias", f32, {heads}, rng_),
                           data_.dt_bias);
  if (x_.gate == DecayGate::Kind::kLowerBound) gate.lower_bound = x_.lower_bound;
  if (x_.b) gate.b = lay_tokens(of_heads("b", x_.dtype), data_.b);
  gate.log_decay = of_tokens("log_decay", f32);
  written_ = {gate.log_decay};
  if (x_.b || x_.gate == DecayGate::Kind::kStep) {
    gate.beta = of_heads("beta", f32);
    written_.emplace_back(gate.beta);
  }
  call_ = gate;
  if (how_.poison_unread) memory_.poison_unread(footprint_of(call_));
  memory_.remember();
}

void GateScene::collect(RowResults* results) const {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].row == RowPiece::kNobody) continue;
    const auto token = static_cast<size_t>(pieces_[i].row);
    const auto place = static_cast<int64_t>(i);
    results->out[token] = gather(at_place(ConstTensorView(gate().log_decay), place));
    if (gate().beta.defined())
      results->beside[token] = gather(at_place(ConstTensorView(gate().beta), place));
  }
}

Status judge_gate(const Case& x, const GateScene& scene) {
  return judge_taken(scene.gate(), is_exact(x.data));
}

Status judge_taken(const DecayGate& gate, bool exact) {
  const LawId law = exact ? LawId("num.exact") : LawId("num.bound");
  ArrayJudge decay(law, "log_decay"), beta(law, "beta");
  compare_gate(gate, gate_truth(gate), exact ? nullptr : find_recurrent_arithmetic("ours"),
               gate.log_decay, gate.beta, DType::kF32, &decay, &beta);
  Status status;
  decay.add_to(&status), beta.add_to(&status);
  return status;
}

Status check_gate_case(const Case& x, const RunOptions& options) {
  return check_rows<GateFamily>(x, options);
}

}  // namespace shadowgraph
