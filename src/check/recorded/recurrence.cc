// Judging recorded recurrences, with or without their gate.
#include "check/recorded/case_judge.h"

namespace shadowgraph {
namespace {

class RecurrenceJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const Recurrence& recurrence) {
    recurrence_ = &recurrence;
    LinearAttention call = recurrence.call;
    if (recurrence.gate) {
      gates_ = gate_truth(*recurrence.gate);
      if (!run_gate(*recurrence.gate, &call)) return;
    }
    truth_ = call;
    truth_.states = memory_.copy(call.states, c_.states_before);
    if (!run_ours(&call)) return;
    judge_ours(call, "ours", "ours.");
    verdict_.rows += truth_.v.shape[0] * truth_.v.shape[1];
    if (!judge_chunked(call)) return;
    judge_gpu();
    judge_reference();
  }

 private:
  bool run_gate(DecayGate gate, LinearAttention* call) {
    gate.log_decay = memory_.of(gate.log_decay);
    gate.beta = memory_.of(gate.beta);
    if (!take_refused(decay_gate(gate))) return false;
    call->log_decay = gate.log_decay;
    if (gate.beta.defined()) call->beta = gate.beta;
    return true;
  }

  bool run_ours(LinearAttention* call) {
    call->out = memory_.of(call->out);
    call->states = memory_.copy(call->states, c_.states_before);
    call->draft.states = memory_.of(call->draft.states);
    call->chunk_states = memory_.of(call->chunk_states);
    return take_refused(linear_attention(*call));
  }

  GateErrors errors(const RecurrentArithmetic& a) const {
    return recurrence_->gate ? gate_errors(*recurrence_->gate, gates_, a) : GateErrors{};
  }
  RecurrentPlaces places() const { return {c_.out_valid, recurrence_->recorded_chunks, false, -1}; }

  void judge_ours(const LinearAttention& call, std::string_view arithmetic,
                  const std::string& prefix) {
    const RecurrentArithmetic& a = *find_recurrent_arithmetic(arithmetic);
    LinearBounds bounds(truth_, a, gates_, errors(a));
    RecurrentJudges j("num.bound", prefix);
    compare_recurrence(truth_, gates_, &bounds,
                       {call.out, call.states, call.draft.states, call.chunk_states}, places(), &j);
    settle(j, Whose::kOurs);
    check_untouched(truth_.rows, truth_.store, call.states, prefix);
  }

  /// The other form of a call without a draft. False: it is refused.
  bool judge_chunked(LinearAttention call) {
    if (call.draft.states.defined() || !call.draft.parents.empty()) return true;
    call.form = LinearAttention::Form::kChunked;
    if (!run_ours(&call)) return false;
    judge_ours(call, call.log_decay.rank == 3 ? "ours_chunked_channels" : "ours_chunked",
               "chunked.");
    return true;
  }

  void judge_gpu() {
    const Recorded& gpu = c_.gpu();
    check_untouched(truth_.rows, truth_.store, gpu.states, "gpu.");
    const RecurrentArithmetic* found = find_recurrent_arithmetic(gpu.kernel);
    if (found == nullptr) return no_such_kernel("recurrent_arithmetics.inc", gpu.kernel);
    RecurrentArithmetic a = *found;
    if (c_.dtype == DType::kF32) a.beta_error = 0;  // rounded to the activations' type
    LinearBounds bounds(truth_, a, gates_, errors(a));
    RecurrentJudges j = arrays(Whose::kGpu);
    compare_recurrence(truth_, gates_, &bounds,
                       {gpu.out, gpu.states, gpu.draft_states, gpu.chunk_states}, places(), &j);
    if (gpu.known_wrong.empty()) return settle(j, Whose::kGpu);
    verdict_.known_wrong.push_back("gpu: error " +
                                   std::to_string(std::max(j.out.worst(), j.states.worst())) +
                                   " times its bound (" + gpu.known_wrong + ")");
  }

  /// Where a reference has gates of its own (before the kernel rounded them), it was computed with
  /// these.
  void judge_reference() {
    const RecurrentArithmetic& a = *find_recurrent_arithmetic("float64_recurrence");
    const Recorded& ref = c_.reference;
    GateTruth gates = gates_;
    GateErrors stored = errors(a);
    if (ref.log_decay.defined() && truth_.log_decay.defined()) {
      stored = {};
      gates.channels = ref.log_decay.rank == 3 ? ref.log_decay.shape[2] : 1;
      take_stored(ref.log_decay, &gates.log_decay, &stored.log_decay);
      if (ref.beta.defined()) take_stored(ref.beta, &gates.beta, &stored.beta);
    }
    LinearBounds bounds(truth_, a, gates, std::move(stored));
    RecurrentJudges j = arrays(Whose::kReference);
    RecurrentPlaces of_rows = places();
    of_rows.states_of_rows = true;
    compare_recurrence(truth_, gates, &bounds, {ref.out, ref.states, ref.draft_states, {}}, of_rows,
                       &j);
    settle(j, Whose::kReference);
  }

  /// How far stored values may be off by the rounding to their type; and the values themselves,
  /// where no gate gives them.
  static void take_stored(const ConstTensorView& t, std::vector<double>* values,
                          std::vector<double>* errors) {
    const bool given = !values->empty();
    for (int64_t i = 0; i < t.numel(); ++i) {
      const double value = element(t, i);
      if (!given) values->push_back(value);
      errors->push_back(with_rounding(value, 0, t.dtype));
    }
  }

  const Recurrence* recurrence_ = nullptr;
  GateTruth gates_;
  LinearAttention truth_;  // with the states as they were before the call
};

}  // namespace

RecordedVerdict judge_call(const Recurrence& call, const RecordedCase& c) {
  return judged<RecurrenceJudge>(call, c);
}

}  // namespace shadowgraph
