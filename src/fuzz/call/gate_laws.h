// decay_gate under the ladder: exact where softplus and sigmoid are, within the bound elsewhere;
// tokens have the same bits in another order, alone, and with other strides. Tested by
// tests/fuzz/recurrent_laws_test.cc.
#pragma once

#include "fuzz/call/data.h"
#include "fuzz/call/ladder.h"
#include "fuzz/call/laid_call.h"

namespace shadowgraph {

Status check_gate_case(const Case& x, const RunOptions& options);

/// A gate's inputs, before they are laid out: [tokens, heads, channels], [1, heads, 1], [1, heads,
/// channels], [tokens, heads, 1].
struct GateData {
  LogicalTensor x, a_log, dt_bias, b;
};
GateData make_gate_data(const Case& x);

/// How a Case looks in memory. A piece is a token.
struct GateArrangement : RowArrangement {
  static GateArrangement of(const Case& x);
  std::string to_string() const { return describe_rows(); }
};

class GateScene : public LaidCall<GateCall> {
 public:
  GateScene(const Case& x, const GateData& data, const GateArrangement& how)
      : x_(std::get<RecurrentCase>(x.call)), data_(data), how_(how), rng_(how.seed) {}
  GateScene(const GateScene&) = delete;
  GateScene& operator=(const GateScene&) = delete;

  void lay(size_t index);
  void collect(RowResults* results) const;
  const DecayGate& gate() const { return std::get<DecayGate>(call_); }

 private:
  TensorView add(const char* field, DType type, std::initializer_list<int64_t> shape);
  TensorView lay_tokens(const TensorView& to, const LogicalTensor& from) const;
  TensorView lay_all(const TensorView& to, const LogicalTensor& from) const;

  const RecurrentCase& x_;
  const GateData& data_;
  const GateArrangement how_;
  Rng rng_;
};

Status judge_gate(const Case& x, const GateScene& scene);
/// The same of any gate that was taken.
Status judge_taken(const DecayGate& gate, bool exact);

}  // namespace shadowgraph
